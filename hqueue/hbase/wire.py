"""What comes off the wire is bounded: in time, in bytes, and in what it makes the decoder do."""

from __future__ import annotations

import socket
import time
from typing import Any

from thriftpy2.protocol import TCompactProtocol
from thriftpy2.thrift import TType

from hqueue.limits import ANSWER_BYTES_MAX

__all__ = ["BoundedSocket", "CompactProtocol"]


class BoundedSocket:
    """A socket under a Thrift transport. One time-out bounds a whole request with its answer.

    A socket's own time-out would begin anew with every piece that comes in, so that a gateway
    which sends a byte now and then would be waited for without end. And a length that is off would
    be waited for, with memory set aside, as if so much could come.

    Args:
        connected: an open socket, which belongs to this object from now on.
    """

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._socket_s = 0.0
        self.settimeout(0.0)

    def settimeout(self, seconds: float) -> None:
        """Begin a request: from now on everything together may take so long, or a tenth more."""
        self._ends_s = time.monotonic() + seconds
        self._left_bytes = ANSWER_BYTES_MAX

    def read(self, size: int) -> bytes:
        """What is there, at most `size` bytes.

        Raises:
            OSError: nothing came in time, the other side closed, or the answer is too large.
        """
        if size > ANSWER_BYTES_MAX or self._left_bytes <= 0:
            raise ConnectionError("the answer is larger than any that a gateway should give")
        self._wait_no_longer()
        data = self._socket.recv(size)
        if not data:
            raise ConnectionError("the gateway closed the connection")
        self._left_bytes -= len(data)
        return data

    def write(self, data: bytes) -> None:
        """Send it all."""
        self._wait_no_longer()
        self._socket.sendall(data)

    def flush(self) -> None:
        """Nothing is held back here."""

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _wait_no_longer(self) -> None:
        left_s = self._ends_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        # Setting it is a system call. For an answer that comes in time none is needed.
        if not left_s <= self._socket_s <= 1.1 * left_s:
            self._socket.settimeout(left_s)
            self._socket_s = left_s


class CompactProtocol(TCompactProtocol):
    """Refuses values of no type: they have no bytes, so two billion of them could be "skipped"."""

    def skip(self, kind: Any) -> None:
        """Step over a value."""
        if kind == TType.STOP:
            raise ValueError("a value has no type")
        super().skip(kind)  # type: ignore[no-untyped-call]
