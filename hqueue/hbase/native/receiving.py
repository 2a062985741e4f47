"""Taking frames off a socket."""

from __future__ import annotations

import select
import socket
import time

from hqueue.hbase.native.greeting import SPEAKS_TLS
from hqueue.net.framing import Frames
from hqueue.net.layers import Secured
from hqueue.net.refusals import RefusedError

__all__ = ["Receiver", "closed_by_server", "refusal_in"]


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
        self._has_heard = False
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
                raise closed_by_server(self._frames, has_heard=self._has_heard)
            self._has_heard = True
            return taken


def closed_by_server(frames: Frames | Secured, *, has_heard: bool) -> ConnectionError:
    """Make the error of a connection that the server closed.

    Args:
        frames: what took apart what the server said.
        has_heard: whether it said anything.
    """
    text = "the server closed the connection"
    is_clear = isinstance(frames, Frames)
    return ConnectionError(f"{text}: {SPEAKS_TLS}" if is_clear and not has_heard else text)


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
