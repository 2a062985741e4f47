"""Taking frames off a socket."""

from __future__ import annotations

import select
import socket
import time

from hqueue.hbase.native.wire import FRAME_BYTES_MAX, LENGTH

__all__ = ["Receiver"]

INBOX_BYTES = 64 * 1024
"""What is read at once where small answers come."""


class Receiver:
    """The frames of a socket that doesn't block, one after the other. One thread at a time.

    What was read of a frame when a caller's time was over is kept for the next one. Memory grows as
    bytes arrive: a length that is promised allocates no more than a frame that came has had.

    Args:
        opened: the socket.
    """

    def __init__(self, opened: socket.socket) -> None:
        self._socket = opened
        self._inbox = bytearray(INBOX_BYTES)
        self._view = memoryview(self._inbox)
        self._low = self._high = 0
        self._frame: bytearray | None = None
        self._filled = 0
        self._length = 0
        self._largest = INBOX_BYTES
        """The longest frame that has come: room for as much need not grow, which costs copies."""
        self._poll = select.poll()
        self._poll.register(opened, select.POLLIN)

    def frame(self, ends_s: float) -> bytearray | None:
        """The next frame without its length; None when the time is over.

        Raises:
            OSError: the connection ended.
            ValueError: what comes is no frame.
        """
        while True:
            if self._frame is None and not self._begin(ends_s):
                return None
            if self._frame is not None and not self._fill(self._frame, ends_s):
                return None
            if self._frame is not None and self._filled == self._length:
                frame, self._frame = self._frame, None
                self._largest = max(self._largest, self._length)
                return frame

    def _begin(self, ends_s: float) -> bool:
        """Take in a frame's length; False when the time is over."""
        while self._high - self._low < LENGTH.size:
            left = self._high - self._low
            self._view[:left] = self._view[self._low : self._high]
            self._low, self._high = 0, left
            taken = self._receive(self._view[left:], ends_s)
            if taken is None:
                return False
            self._high += taken
        (self._length,) = LENGTH.unpack_from(self._inbox, self._low)
        if not 0 < self._length <= FRAME_BYTES_MAX:
            raise ValueError("a frame's length is out of range")
        self._low += LENGTH.size
        self._frame = bytearray(min(self._length, self._largest))
        self._filled = 0
        return True

    def _fill(self, frame: bytearray, ends_s: float) -> bool:
        """Take in the rest of a frame; False when the time is over."""
        there = min(self._high - self._low, self._length)
        if there:
            frame[:there] = self._view[self._low : self._low + there]
            self._low += there
            self._filled = there
        while self._filled < self._length:
            if self._filled == len(frame):
                frame += bytes(min(len(frame), self._length - len(frame)))
            with memoryview(frame) as whole, whole[self._filled :] as rest:
                taken = self._receive(rest, ends_s)
            if taken is None:
                return False
            self._filled += taken
        return True

    def _receive(self, into: memoryview, ends_s: float) -> int | None:
        while True:
            try:
                taken = self._socket.recv_into(into)
            except BlockingIOError:
                left_s = ends_s - time.monotonic()
                if left_s <= 0 or not self._poll.poll(left_s * 1e3):
                    return None
                continue
            if not taken:
                raise ConnectionError("the server closed the connection")
            return taken
