"""Thrift over HTTP/1.1: each request is a POST, and the body of its response is the answer."""

from __future__ import annotations

from hqueue.net.refusals import RefusedError
from hqueue.rpc.transports import PIECE_BYTES, BoundedSocket, BulkTransport

__all__ = ["HttpTransport"]

LINE_BYTES_MAX = 16 * 1024
LINES_MAX = 100
"""Of a response, before its body."""

_GOOD = b"200"
_REFUSALS = (b"401", b"403")


class HttpTransport(BulkTransport):
    """A Thrift transport. One connection serves many requests, one after the other.

    Args:
        connected: the socket.
        host: the server's name and port, as it was called.
    """

    def __init__(self, connected: BoundedSocket, host: str) -> None:
        super().__init__(connected)
        self._front = (
            f"POST / HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/x-thrift\r\n"
            "Accept: application/x-thrift\r\nContent-Length: "
        ).encode("ascii")
        self._left = 0
        """Of the body, or of its chunk."""
        self._is_chunked = False
        """Whether another chunk follows."""

    def read(self, size: int) -> bytes:
        """Exactly this many bytes, of bodies.

        Raises:
            RefusedError: the server asks for a proof that this client does not give: it has done
                nothing.
            OSError: as `BoundedSocket.read`, or the response is malformed.
        """
        pieces = []
        while size > 0:
            if self._left == 0:
                self._begin()
            taken = min(size, self._left)
            pieces.append(super().read(taken))
            self._left -= taken
            size -= taken
        return b"".join(pieces)

    def flush(self) -> None:
        """Send what was written, as one request.

        Raises:
            OSError: as `BulkTransport.flush`.
        """
        first, *others = self._written()
        length = len(first) + sum(map(len, others))
        self._send([b"%b%d\r\n\r\n%b" % (self._front, length, bytes(first)), *others])

    def _begin(self) -> None:
        """Go on to bytes of a body."""
        if self._is_chunked:
            self._begin_chunk()
        while not self._left:
            self._begin_response()

    def _begin_response(self) -> None:
        version, _, said = self._line().partition(b" ")
        status, headers = said[:3], self._headers()
        if not version.startswith(b"HTTP/1."):
            raise ConnectionError("the server does not speak HTTP")
        if status in _REFUSALS:
            raise RefusedError(
                "the gateway asks for a proof of identity by HTTP, which this client can't give: "
                "see hbase.thrift.security.qop of the gateway, or use hbase='native'",
                status=status.decode("ascii", "replace"),
            )
        if status != _GOOD:
            raise ConnectionError(f"the gateway answered with the HTTP status {status!r}")
        if headers.get(b"transfer-encoding", b"").lower() == b"chunked":
            self._begin_chunk()
        else:
            self._left = _number(headers.get(b"content-length", b""), 10)

    def _begin_chunk(self) -> None:
        """Go on to the next chunk; to the end of the response if there is none."""
        if self._is_chunked:
            self._line()  # The end of the one before.
        size, _, _ = self._line().partition(b";")
        self._left = _number(size, 16)
        self._is_chunked = self._left > 0
        if not self._left:
            self._headers()

    def _headers(self) -> dict[bytes, bytes]:
        headers: dict[bytes, bytes] = {}
        for _ in range(LINES_MAX):
            line = self._line()
            if not line:
                return headers
            name, _, value = line.partition(b":")
            headers[name.strip().lower()] = value.strip()
        raise ConnectionError("the HTTP response has too many headers")

    def _line(self) -> bytes:
        while (end := self._received.find(b"\r\n", self._at)) < 0:
            left = self._received[self._at :]
            if len(left) > LINE_BYTES_MAX:
                raise ConnectionError("a line of the HTTP response is too long")
            self._received, self._at = left + self._socket.read(PIECE_BYTES), 0
        line, self._at = self._received[self._at : end], end + 2
        return line


def _number(text: bytes, base: int) -> int:
    try:
        number = int(text, base)
    except ValueError:
        number = -1
    if number < 0:
        raise ConnectionError("the HTTP response does not say how long it is")
    return number
