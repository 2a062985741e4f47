"""HBase's two Thrift services, and connections to the gateways that serve them."""

from __future__ import annotations

import enum

from hqueue.hbase.thrift.idl import Hbase, hbase2
from hqueue.net.contexts import TlsContexts
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


def connect(
    address: GatewayAddress, service: Service, settings: Settings, tls: TlsContexts | None = None
) -> Connection:
    """Open a connection to one of a host's two gateways; by TLS, if that is given.

    Raises:
        RefusedError: client and gateway don't accept each other.
        OSError: it can't be opened within ``connect_timeout_ms``.
    """
    return Connection(
        _SERVICES[service],
        address.host,
        address.thrift1_port if service is Service.THRIFT1 else address.thrift2_port,
        bounded_ms(settings.connect_timeout_ms) / 1e3,
        transport=settings.transport,
        protocol=settings.protocol,
        tls=tls,
    )
