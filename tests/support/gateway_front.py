"""What stands before gateways in memory: TLS as a proxy ends it, and Thrift over HTTP as HBase's
own gateways serve it.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from hqueue import GatewayAddress
from tests.support.memory.gateway import GatewayPair

__all__ = ["front"]

LENGTH = struct.Struct(">I")


class _Front(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int, handler: Any, context: ssl.SSLContext | None) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.target = ("127.0.0.1", port)
        self.calls = self.begun = self.ended = 0
        """Requests; connections; and those that are over."""
        if context is not None:
            self.socket = context.wrap_socket(
                self.socket, server_side=True, do_handshake_on_connect=False
            )
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Who is refused, or goes, is no news."""


class _Relay(BaseHTTPRequestHandler):
    """Passes on what comes."""

    server: _Front

    def handle(self) -> None:
        # A record of TLS is read at once, so none of it waits where `select` does not see it.
        with socket.create_connection(self.server.target) as gateway:
            while True:
                ready, _, _ = select.select([self.request, gateway], [], [])
                source, sink = (
                    (gateway, self.request) if gateway in ready else (self.request, gateway)
                )
                data = source.recv(65_536)
                if not data:
                    return
                self.server.calls += source is self.request
                sink.sendall(data)


class _Http(BaseHTTPRequestHandler):
    """Has framed gateways answer what is posted; every other answer is chunked."""

    server: _Front
    protocol_version = "HTTP/1.1"
    timeout = 0.5
    """An idle connection is ended."""

    def do_POST(self) -> None:
        self.server.calls += 1
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with socket.create_connection(self.server.target) as gateway:
            gateway.sendall(LENGTH.pack(len(body)) + body)
            with gateway.makefile("rb") as answers:
                answer = answers.read(LENGTH.unpack(answers.read(LENGTH.size))[0])
        self.send_response(200)
        if self.server.calls % 2:
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)
            return
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for at in range(0, len(answer), 30_000):
            chunk = answer[at : at + 30_000]
            self.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        self.wfile.write(b"0\r\n\r\n")

    def setup(self) -> None:
        super().setup()
        self.server.begun += 1

    def finish(self) -> None:
        super().finish()
        self.request.close()
        self.server.ended += 1

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@contextlib.contextmanager
def front(
    pair: GatewayPair, context: ssl.SSLContext | None, *, http: bool
) -> Iterator[tuple[GatewayAddress, list[_Front]]]:
    """What stands before both ports of gateways, and where that is.

    Args:
        pair: the gateways; framed ones, for HTTP.
        context: what TLS is spoken with; in clear if None.
        http: whether HTTP is spoken.
    """
    ports = (pair.address.thrift1_port, pair.address.thrift2_port)
    fronts = [_Front(port, _Http if http else _Relay, context) for port in ports]
    try:
        yield GatewayAddress("127.0.0.1", *(each.server_port for each in fronts)), fronts
    finally:
        for each in fronts:
            each.shutdown()
            each.server_close()
