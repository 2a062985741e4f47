"""Callers of a port that no event loop serves: it takes a turn when they send something."""

from __future__ import annotations

import select
import socket

from hqueue.rpc.port import Port

__all__ = ["Stranger"]

PIECE_BYTES = 64 * 1024


class Stranger:
    """One caller."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._sock, other = socket.socketpair()
        for sock in (self._sock, other):
            sock.setblocking(False)
        port.add(other, None)

    def send(self, data: bytes) -> None:
        """Send as much as is taken before it is hung up on."""
        view = memoryview(data)
        try:
            while view and not self.ended:
                view = view[self._sock.send(view[:PIECE_BYTES]) :]
                self._take_turns()
        except OSError:
            pass
        self._take_turns()

    def receive(self) -> bytes:
        """What has come of an answer."""
        try:
            return self._sock.recv(PIECE_BYTES)
        except OSError:
            return b""

    @property
    def ended(self) -> bool:
        """Whether it was hung up on."""
        waiting = select.poll()
        waiting.register(self._sock, select.POLLRDHUP)
        return bool(waiting.poll(0))

    def close(self) -> None:
        self._sock.close()
        self._take_turns()

    def _take_turns(self) -> None:
        waiting = select.poll()
        waiting.register(self._port.fileno(), select.POLLIN)
        while not self._port.turn() or waiting.poll(0):
            pass
