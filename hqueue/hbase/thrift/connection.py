"""One connection to one of a host's two Thrift gateways."""

from __future__ import annotations

import enum
import socket
from typing import Any

from thriftpy2 import protocol, transport
from thriftpy2.thrift import TClient

from hqueue.hbase.thrift.idl import Hbase, hbase2
from hqueue.hbase.thrift.protocols import BulkProtocol, CompactProtocol
from hqueue.hbase.thrift.wire import BoundedSocket, BulkTransport, FramedBulkTransport
from hqueue.settings.addresses import GatewayAddress
from hqueue.settings.connection import Settings

__all__ = ["Connection", "Service"]


class Service(enum.IntEnum):
    """HBase's two Thrift services. Each has a gateway process and a port of its own."""

    THRIFT1 = 1
    """Scans and gets of many rows: happybase's service."""

    THRIFT2 = 2
    """Conditional puts and administration."""


_TRANSPORTS = {
    "buffered": (transport.TBufferedTransport, BulkTransport),
    "framed": (transport.TFramedTransport, FramedBulkTransport),
}
_PROTOCOLS = {
    "binary": (protocol.TBinaryProtocol, BulkProtocol),
    "compact": (CompactProtocol, CompactProtocol),
}
"""The one for what is small, which is compiled if it can be, and the one for large values."""

_SERVICES = {Service.THRIFT1: Hbase, Service.THRIFT2: hbase2.THBaseService}


class Connection:
    """An open connection. Not thread-safe: one request at a time.

    Args:
        address: the gateway's host and ports.
        service: which of the two.
        settings: time-outs, transport and protocol.

    Raises:
        OSError: it can't be opened within ``connect_timeout_ms``.
    """

    def __init__(self, address: GatewayAddress, service: Service, settings: Settings) -> None:
        port = address.thrift1_port if service is Service.THRIFT1 else address.thrift2_port
        connected = socket.create_connection(
            (address.host, port), timeout=settings.connect_timeout_ms / 1e3
        )
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = BoundedSocket(connected)
        """Its time-out is set before each request."""
        # Cells are bytes: without decode_response=False thriftpy2 would try each as UTF-8.
        clients: list[Any] = [
            TClient(_SERVICES[service], spoken(carried(self.socket), decode_response=False))
            for carried, spoken in zip(
                _TRANSPORTS[settings.transport], _PROTOCOLS[settings.protocol], strict=True
            )
        ]
        self.client, self.bulk_client = clients
        """Two on one wire, used in turns: thriftpy2's own, and one for large values."""
        self.used_ms = 0.0

    def close(self) -> None:
        """Close the socket. Never raises."""
        try:
            self.socket.close()
        except OSError:
            pass
