"""Opening connections to Thrift servers."""

from __future__ import annotations

import select
import socket
import struct
import time
from functools import partial
from typing import Any

from thriftpy2 import protocol as thrift_protocols
from thriftpy2 import transport as transports
from thriftpy2.protocol.exc import TProtocolException
from thriftpy2.thrift import TApplicationException, TException

from hqueue.net.contexts import TlsContexts
from hqueue.net.sockets import shake
from hqueue.rpc.calls import NotThriftError
from hqueue.rpc.http_transport import HttpTransport
from hqueue.rpc.messages import Client
from hqueue.rpc.protocols import BulkProtocol, CompactProtocol
from hqueue.rpc.transports import BoundedSocket, BulkTransport, FramedBulkTransport
from hqueue.runtime.interrupts import is_interruption
from hqueue.runtime.sockets import open_connection

__all__ = ["Connection", "ReportedError", "ThriftError", "is_another_service", "open_socket"]

try:
    from thriftpy2.protocol.cybin.cybin import ProtocolError
except ImportError:  # It is not compiled here, and raises the others.
    ProtocolError = TException

ThriftError = (TException, ProtocolError, LookupError, struct.error)
"""What a call raises beside `OSError`: an error that the service declares, or a reply that breaks
the protocol. The compiled protocol's own error is not a `TException`."""

ReportedError = TApplicationException
"""Thrift's own error, by which a server says why it does not serve a call."""

_HUNG_UP = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)  # Linux has it.

_UNKNOWN_CALLS = (
    TApplicationException.UNKNOWN_METHOD,
    TApplicationException.INVALID_MESSAGE_TYPE,
)

_TRANSPORTS: dict[str, tuple[Any, Any]] = {
    "buffered": (transports.TBufferedTransport, BulkTransport),
    "framed": (transports.TFramedTransport, FramedBulkTransport),
}
_PROTOCOLS: dict[str, tuple[Any, Any]] = {
    "binary": (thrift_protocols.TBinaryProtocol, BulkProtocol),
    "compact": (CompactProtocol, CompactProtocol),
}
"""What writes small requests, compiled if it can be; and what writes large ones, and reads."""


def open_socket(
    host: str, port: int, timeout_s: float, tls: TlsContexts | None = None
) -> socket.socket:
    """A connection for calls, each of which is sent at once, however small it is.

    Args:
        host, port: where the server listens.
        timeout_s: the bound.
        tls: what TLS is spoken with; in clear if None, or if the server does not speak it and may
            be called so.

    Raises:
        RefusedError: one side does not accept the other.
        OSError: it can't be opened within `timeout_s`.
    """
    ends_s = time.monotonic() + timeout_s

    def connect() -> socket.socket:
        connected = open_connection((host, port), max(0.001, ends_s - time.monotonic()))
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connected

    connected = connect()
    plaintext = None if tls is None else tls.plaintext
    if tls is None or (plaintext is not None and plaintext.has(host, port)):
        return connected
    connected.settimeout(max(0.001, ends_s - time.monotonic()))
    try:
        shaken = shake(connected, tls, host)
    except OSError as exc:
        if plaintext is None or is_interruption(exc) or not plaintext.adds(host, port, exc):
            raise
        return connect()
    if plaintext is not None:
        plaintext.spoke_tls(host, port)
    return shaken


def is_another_service(error: BaseException | None) -> bool:
    """Whether an error of a call means that another service listens there, which has done nothing:
    the service does not know the method, or its answer is not Thrift's.
    """
    if isinstance(error, TApplicationException):
        return error.type in _UNKNOWN_CALLS
    if isinstance(error, TProtocolException):
        return bool(error.type == TProtocolException.BAD_VERSION)
    return isinstance(error, NotThriftError)


class Connection:
    """An open connection. Not thread-safe: one request at a time.

    Args:
        service: the service that is called, as `hqueue.rpc.services.load` has it.
        host, port: where it is served.
        timeout_s: the bound on opening it.
        transport: ``buffered``, ``framed`` or ``http``.
        protocol: ``binary`` or ``compact``.
        tls: what TLS is spoken with; in clear if None.

    Raises:
        RefusedError: one side does not accept the other.
        OSError: it can't be opened within `timeout_s`.
    """

    def __init__(
        self,
        service: Any,
        host: str,
        port: int,
        timeout_s: float,
        *,
        transport: str = "buffered",
        protocol: str = "binary",
        tls: TlsContexts | None = None,
    ) -> None:
        self.socket = BoundedSocket(open_socket(host, port, timeout_s, tls))
        """Its time-out is set before each request."""
        # What is text in an IDL may be bytes: without decode_response=False thriftpy2 would try
        # each as UTF-8.
        carriers: tuple[Any, ...]
        if transport in _TRANSPORTS:
            carriers, protocols = _TRANSPORTS[transport], _PROTOCOLS[protocol]
        else:  # The compiled protocol writes into compiled transports alone.
            carriers = 2 * (partial(HttpTransport, host=f"{host}:{port}"),)
            protocols = 2 * _PROTOCOLS[protocol][1:]
        small, large = [
            spoken(carried(self.socket), decode_response=False)
            for carried, spoken in zip(carriers, protocols, strict=True)
        ]
        # Answers are all read by ours: the compiled one believes a count, and steps over two
        # billion values of no type for minutes.
        self.client: Any = Client(service, large, small)
        self.bulk_client: Any = Client(service, large)
        """Two on one wire, used in turns: the former writes small requests by thriftpy2's compiled
        protocol, the latter also large values."""

    def is_quiet(self) -> bool:
        """Whether nothing came, and the other side has not hung up."""
        return not self._has(select.POLLIN | select.POLLHUP | select.POLLERR)

    def is_open(self) -> bool:
        """Whether the other side has not hung up. Something may have come: by HTTP the end of an
        answer does.
        """
        return not self._has(_HUNG_UP)

    def _has(self, events: int) -> bool:
        waiting = select.poll()
        waiting.register(self.socket.fileno(), events)
        return bool(waiting.poll(0))

    def close(self) -> None:
        """Close the socket. Never raises."""
        try:
            self.socket.close()
        except OSError:
            pass
