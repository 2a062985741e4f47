"""The back ends that the suites run through. A further one is a further fixture parameter."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from hqueue import local
from hqueue.metadata import Coordination
from hqueue.zookeeper import ZooKeeperCoordination
from hqueue.zookeeper.allocation import SESSION_BYTES_MAX

Open = Callable[[], Coordination]
"""Opens a session of its own; all of a test see the same records."""


SPREAD_BYTES_MAX = 512
"""So little that nearly every test needs several sessions at ZooKeeper."""


@pytest.fixture(params=["zookeeper", "zookeeper-spread"])
def open_coordination(request: pytest.FixtureRequest, server: local.LocalServer) -> Iterator[Open]:
    """Sessions on an empty coordination service. They are closed after the test."""
    opened: list[Coordination] = []
    bytes_max = SESSION_BYTES_MAX if request.param == "zookeeper" else SPREAD_BYTES_MAX
    settings = server.settings(
        zookeeper_root=f"/hqueue-{uuid.uuid4().hex[:12]}", zookeeper_session_timeout_ms=2_000
    )

    def open_session() -> Coordination:
        opened.append(ZooKeeperCoordination(settings, session_bytes_max=bytes_max))
        return opened[-1]

    yield open_session
    for coordination in opened:
        coordination.close()


@pytest.fixture
def coordination(open_coordination: Open) -> Coordination:
    """One session."""
    return open_coordination()
