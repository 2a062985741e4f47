"""Taking frames off a socket."""

from __future__ import annotations

import select
import socket
import time

from hqueue.net.framing import Frames
from hqueue.net.layers import Secured
from hqueue.net.refusals import RefusedError

__all__ = ["Receiver", "refusal_in"]


class Receiver:
    """The frames of a socket that doesn't block, one after the other. One thread at a time.

    What was read of a frame when a caller's time was over is kept for the next one.

    Args:
        opened: the socket.
        frames: takes apart what comes.
    """

    def __init__(self, opened: socket.socket, frames: Frames | Secured) -> None:
        self._socket = opened
        self._frames = frames
        self._poll = select.poll()
        self._poll.register(opened, select.POLLIN)

    def frame(self, ends_s: float) -> bytearray | None:
        """The next frame without its length; None when the time is over.

        Raises:
            OSError: the connection ended, or what came was changed on its way.
            ValueError: what comes is not a frame.
        """
        while (frame := self._frames.next()) is None:
            taken = self._receive(self._frames.space(), ends_s)
            if taken is None:
                return None
            self._frames.add(taken)
        return frame

    def refusal(self) -> RefusedError | None:
        """Like `refusal_in`."""
        return refusal_in(self._socket, self._frames)

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


def refusal_in(opened: socket.socket, frames: Frames | Secured) -> RefusedError | None:
    """The refusal that a server sent before it closed a connection on which nothing can be sent any
    more, if it did: in TLS 1.3 it refuses a client's certificate after the handshake. What else it
    said is lost.
    """
    try:
        while taken := opened.recv_into(frames.space()):
            frames.add(taken)
            if frames.next() is not None:
                return None
    except RefusedError as exc:
        return exc
    except (OSError, ValueError):
        return None
    return None
