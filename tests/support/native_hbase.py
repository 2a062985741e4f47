"""A local server's HBase as it is reached without gateways: in clear, or by Kerberos and TLS."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

import hqueue
from hqueue import GatewayAddress, Settings, local
from tests.support.raw import RawHBase
from tests.support.registries import master_of

__all__ = ["SHOWN_IN_CLEAR", "NativeHBase", "security_of"]

SHOWN_IN_CLEAR = pytest.mark.thorough(
    "in clear it is shown, too, and `test_security` shows the rest"
)
"""For what runs over Kerberos and TLS, too."""


class NativeHBase:
    """What clients and processes are given to reach it.

    Args:
        server: the server.
        gateway: starts gateways before it if none are there, and says where they are: a way past
            what is tested.
    """

    def __init__(self, server: local.LocalServer, gateway: Callable[[], GatewayAddress]) -> None:
        self.server = server
        self.zookeeper = server.zookeeper
        self._gateway = gateway
        self.given: dict[str, Any] = {"zookeeper": self.zookeeper, **security_of(server)}
        """The settings: the address of ZooKeeper, and what security takes."""

    @property
    def gateway(self) -> GatewayAddress:
        return self._gateway()

    @property
    def raw(self) -> RawHBase:
        return RawHBase(self.gateway)

    @property
    def master(self) -> str:
        """Where its master listens."""
        return str(master_of(self.server))

    def connect(self, **given: object) -> hqueue.Client:
        """A client that is given this, and knows nothing else."""
        return hqueue.connect(Settings(**{**self.given, **given}))

    def environment(self) -> dict[str, str]:
        """The variables that say the same to a process, but for ZooKeeper's address."""
        given = {name: value for name, value in self.given.items() if name != "zookeeper"}
        return {
            f"HQUEUE_{name.upper()}": str(value).lower() if value is True else str(value)
            for name, value in given.items()
        }


def security_of(server: local.LocalServer) -> dict[str, Any]:
    """The settings of security that clients of a server need, but for those that are defaults."""
    settings = server.settings()
    return {
        field.name: getattr(settings, field.name)
        for field in dataclasses.fields(Settings)
        if field.name.startswith(("hbase_", "kerberos_", "tls_", "zookeeper_"))
        and getattr(settings, field.name) not in (field.default, ())
    }
