"""Taking frames off a socket."""

from __future__ import annotations

import select
import socket
import time

from hqueue.hbase.native.framing import Frames

__all__ = ["Receiver"]


class Receiver:
    """The frames of a socket that doesn't block, one after the other. One thread at a time.

    What was read of a frame when a caller's time was over is kept for the next one.

    Args:
        opened: the socket.
    """

    def __init__(self, opened: socket.socket) -> None:
        self._socket = opened
        self._frames = Frames()
        self._poll = select.poll()
        self._poll.register(opened, select.POLLIN)

    def frame(self, ends_s: float) -> bytearray | None:
        """The next frame without its length; None when the time is over.

        Raises:
            OSError: the connection ended.
            ValueError: what comes is not a frame.
        """
        while (frame := self._frames.next()) is None:
            taken = self._receive(self._frames.space(), ends_s)
            if taken is None:
                return None
            self._frames.add(taken)
        return frame

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
