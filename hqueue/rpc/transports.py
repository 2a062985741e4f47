"""The bytes between here and a server: all that comes in is bounded, and large values uncopied."""

from __future__ import annotations

import math
import select
import socket
import ssl
import struct
import time
from collections.abc import Callable

from hqueue.net.alerts import refusal_in, refusal_without_tls
from hqueue.runtime.interrupts import is_interruption
from hqueue.settings.limits import ANSWER_BYTES_MAX

__all__ = [
    "LARGE_BYTES",
    "BoundedSocket",
    "BulkTransport",
    "FramedBulkTransport",
]

PIECE_BYTES = 64 * 1024
"""What is received at once. Larger pieces gain nothing; where freed memory is not kept, theirs
comes fresh from the system each time (a megabyte: 0.85 instead of 0.17 ms)."""

TLS_PIECE_BYTES = 256 * 1024
"""What is given to TLS at once."""

OnSilence = Callable[[], None]

LARGE_BYTES = 16 * 1024
"""A value from this size on is sent from where it lies; a system call costs less than its copy."""


class BoundedSocket:
    """A socket under a Thrift transport. One time-out bounds a whole request with its answer.

    A socket's own time-out would begin again with every piece that comes in, so that a server
    which sends a byte now and then would be waited for without end. And a length that is off would
    be waited for, with memory set aside, as if so much could come.

    Args:
        connected: an open socket, which belongs to this object from now on.
    """

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._tls = connected if isinstance(connected, ssl.SSLSocket) else None
        self._has_heard = False
        self._socket_s = 0.0
        self.settimeout(0.0)

    def settimeout(
        self, seconds: float, silence_s: float = math.inf, on_silence: OnSilence | None = None
    ) -> None:
        """Begin a request: from now on everything together may take this long, or a tenth more.

        Args:
            seconds: this long.
            silence_s: when nothing has come for this long, `on_silence` is called, and again after
                twice the time.
            on_silence: ends the request by raising an `OSError`.
        """
        self._ends_s = time.monotonic() + seconds
        self._silence_s = silence_s
        self._on_silence = on_silence
        self._left_bytes = ANSWER_BYTES_MAX

    def fileno(self) -> int:
        """The socket's number, to be waited for."""
        return self._socket.fileno()

    def read(self, size: int) -> bytes:
        """What is there, at most `size` bytes.

        Raises:
            RefusedError: the server does not accept this client: it has done nothing.
            OSError: nothing came in time, the other side closed, or the answer is too large.
        """
        if size > ANSWER_BYTES_MAX or self._left_bytes <= 0:
            raise ConnectionError("the answer is larger than an answer may be")
        self._wait_no_longer()
        try:
            data = self._socket.recv(size) if self._on_silence is None else self._receive(size)
        except ssl.SSLError as exc:
            if self._has_heard or is_interruption(exc):
                raise
            refusal = refusal_in(exc)
            if refusal is None:
                raise
            raise refusal from exc
        if not data:
            raise ConnectionError("the server closed the connection")
        if not self._has_heard and self._tls is None:
            refusal = refusal_without_tls(data)
            if refusal is not None:
                raise refusal
        self._has_heard = True
        self._left_bytes -= len(data)
        return data

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send it all.

        Raises:
            RefusedError: the server does not accept this client: it has done nothing.
            OSError: the other side closed, or does not take it in time.
        """
        self._wait_no_longer()
        if self._tls is None:
            self._socket.sendall(data)
            return
        left = memoryview(data)
        try:
            while left:  # Its `sendall` would begin the time-out again with every record.
                left = left[self._tls.send(left[:TLS_PIECE_BYTES]) :]
                self._wait_no_longer()
        except (ConnectionError, ssl.SSLError) as exc:
            if not is_interruption(exc):
                self._raise_refusal(self._tls)
            raise

    def _raise_refusal(self, tls: ssl.SSLSocket) -> None:
        """Say why the server closed the connection, if it did not accept this client."""
        if self._has_heard:
            return
        try:
            tls.recv(1)
        except ssl.SSLError as exc:
            refusal = refusal_in(exc)
            if refusal is not None:
                raise refusal from exc
        except OSError:
            pass  # It did not say why.

    def flush(self) -> None:
        """Nothing is held back here."""

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _receive(self, size: int) -> bytes:
        """What comes; meanwhile see whether anything will."""
        assert self._on_silence is not None
        while True:
            waiting = select.poll()
            waiting.register(self._socket, select.POLLIN)
            left_s = self._ends_s - time.monotonic()
            is_there = self._tls is not None and self._tls.pending() > 0
            if is_there or left_s <= self._silence_s or waiting.poll(1e3 * self._silence_s):
                return self._socket.recv(size)
            self._silence_s *= 2
            self._on_silence()
            self._wait_no_longer()

    def _wait_no_longer(self) -> None:
        left_s = self._ends_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        # Setting it is a system call. For an answer that comes in time none is needed.
        if not left_s <= self._socket_s <= 1.1 * left_s:
            self._socket.settimeout(left_s)
            self._socket_s = left_s


class BulkTransport:
    """A Thrift transport for requests and answers with large values.

    thriftpy2's own put a megabyte together piece by piece: reading it takes 0.4 ms instead of 0.2,
    and 1.5 where freed memory is not kept. They are compiled, and so better for what is small.

    Args:
        connected: the socket.
    """

    def __init__(self, connected: BoundedSocket) -> None:
        self._socket = connected
        self._received = b""
        self._at = 0
        self._small = bytearray()
        self._unsent: list[bytes | bytearray | memoryview] = []
        """What was written before `_small`."""

    def read(self, size: int) -> bytes:
        """Exactly this many bytes.

        Raises:
            OSError: as `BoundedSocket.read`.
        """
        at, end = self._at, self._at + size
        if at <= end <= len(self._received):
            self._at = end
            return self._received[at:end]
        if not 0 <= size <= ANSWER_BYTES_MAX:
            raise ConnectionError("the answer is larger than an answer may be")
        pieces = [self._received[at:]]
        missing = end - len(self._received)
        while missing > 0:
            piece = self._socket.read(PIECE_BYTES)
            pieces.append(piece[:missing])
            self._received, self._at = piece, missing
            missing -= len(piece)
        return b"".join(pieces)

    def write(self, data: bytes | memoryview) -> None:
        """Send it with the next `flush`, until when it must not change."""
        if len(data) < LARGE_BYTES:
            self._small += data
        else:
            self._unsent += (self._small, data)
            self._small = bytearray()

    def flush(self) -> None:
        """Send what was written.

        Raises:
            OSError: it couldn't be sent in time, or the other side closed.
        """
        self._send(self._written())

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _written(self) -> list[bytes | bytearray | memoryview]:
        written = [*self._unsent, self._small]
        self._unsent, self._small = [], bytearray()
        return written

    def _send(self, pieces: list[bytes | bytearray | memoryview]) -> None:
        for piece in pieces:
            self._socket.write(piece)


class FramedBulkTransport(BulkTransport):
    """The same, with the length of what follows before each request and each answer."""

    def __init__(self, connected: BoundedSocket) -> None:
        super().__init__(connected)
        self._frame_left = 0

    def read(self, size: int) -> bytes:
        """Exactly this many bytes, of one frame.

        Raises:
            OSError: as `BoundedSocket.read`, or the frame ends before.
        """
        if self._frame_left == 0:
            (self._frame_left,) = struct.unpack(">I", super().read(4))
            if self._frame_left > ANSWER_BYTES_MAX:
                raise ConnectionError("the answer is larger than an answer may be")
        if size > self._frame_left:
            raise ConnectionError("the answer is cut off")
        data = super().read(size)
        self._frame_left -= size
        return data

    def flush(self) -> None:
        """Send what was written, as one frame.

        Raises:
            OSError: as `BulkTransport.flush`.
        """
        first, *others = self._written()
        length = struct.pack(">I", len(first) + sum(map(len, others)))
        self._send([length + bytes(first), *others])
