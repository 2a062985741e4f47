"""HBase's two Thrift services, and connections to the gateways that serve them."""

from __future__ import annotations

import enum

from hqueue.hbase.thrift.idl import Hbase, hbase2
from hqueue.rpc.connection import Connection
from hqueue.runtime.clock import bounded_ms
from hqueue.settings.addresses import GatewayAddress
from hqueue.settings.connection import Settings

__all__ = ["Connection", "Service", "connect"]


class Service(enum.IntEnum):
    """HBase's two Thrift services. Each has a gateway process and a port of its own."""

    THRIFT1 = 1
    """Scans and gets of many rows: happybase's service."""

    THRIFT2 = 2
    """Conditional puts and administration."""


_SERVICES = {Service.THRIFT1: Hbase, Service.THRIFT2: hbase2.THBaseService}


def connect(address: GatewayAddress, service: Service, settings: Settings) -> Connection:
    """Open a connection to one of a host's two gateways.

    Raises:
        OSError: it can't be opened within ``connect_timeout_ms``.
    """
    return Connection(
        _SERVICES[service],
        address.host,
        address.thrift1_port if service is Service.THRIFT1 else address.thrift2_port,
        bounded_ms(settings.connect_timeout_ms) / 1e3,
        transport=settings.transport,
        protocol=settings.protocol,
    )
