"""Fixtures of the integration tests. The servers are in ``tests/conftest.py``."""

from __future__ import annotations

import pytest

from hqueue import local

from .raw import RawHBase


@pytest.fixture(scope="session")
def raw(server: local.LocalServer) -> RawHBase:
    """The standalone server's HBase, without hqueue."""
    return RawHBase(server.gateways[0])


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The cluster's tests come last: its fifteen processes are not beside the others for long."""
    items.sort(key=lambda item: item.get_closest_marker("cluster") is not None)
