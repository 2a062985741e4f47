"""Conducts the talk before the first request as work without I/O, which a thread that waits or an
event loop carries out.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeVar

from hqueue.errors import HQueueError
from hqueue.net.framing import Beginning
from hqueue.net.layers import Layer, Stacked
from hqueue.net.refusals import RefusedError
from hqueue.net.tls import Tls
from hqueue.runtime.interrupts import is_interruption, is_own
from hqueue.runtime.steps import Wait, carry_out, carry_out_in_loop

__all__ = ["RECEIVED_BYTES", "Receive", "Send", "Talk", "Talking", "talk_in_loop", "talk_in_thread"]

Result = TypeVar("Result")

RECEIVED_BYTES = 64 * 1024


class Send(NamedTuple):
    """Asks for bytes to be sent."""

    data: bytes


class Receive(NamedTuple):
    """Asks for bytes that come; the answer has at least one."""


Talking = Generator[Send | Receive | Wait, Any, Result]
"""Work that talks to the other side."""


class Talk:
    """Talks with the other side, in clear, or through layers from some point on."""

    def __init__(self) -> None:
        self.layer: Layer | None = None
        """What the connection goes on through; None if it is in clear."""
        self.beginning: Beginning | None = None
        """Looks at what the other side says first when the talk is over, if anything does."""
        self.has_heard = False
        """Whether the other side has said anything, after a handshake of TLS if there is one."""
        self._heard = bytearray()
        """In clear, and not used yet."""
        self._to_send = bytearray()

    def start_tls(self, tls: Tls) -> Talking[None]:
        """Have the rest of the talk go through TLS.

        Raises:
            RefusedError: one side does not accept the other.
            OSError: what came is not TLS, or the other side ended the connection.
        """
        is_over = False

        def go_on(received: bytes) -> None:
            nonlocal is_over
            tls.feed(memoryview(received))
            said, is_over = tls.shake()
            self._to_send += said

        go_on(b"")
        while not is_over:
            yield from self._send(go_on)
            go_on((yield Receive()))
        yield from self._send(go_on)
        self.add(tls)

    def add(self, layer: Layer) -> None:
        """Have the rest of the talk go through one more layer.

        Raises:
            ConnectionError: the other side has said more already than it was asked for. Nothing
                proves that this is its own.
        """
        if self._heard:
            raise ConnectionError("the other side sent data before its protection began")
        self.layer = layer if self.layer is None else Stacked(self.layer, layer)

    def say(self, data: bytes) -> None:
        """Queue bytes, which are sent before the next wait for an answer, or by `flush`."""
        self._to_send += data if self.layer is None else self.layer.seal(data)

    def flush(self) -> Talking[None]:
        """Send the queued bytes.

        Raises:
            RefusedError: the other side closed the connection, and said why.
        """

        def take_in(received: bytes) -> None:
            self._take_in(received)
            while self._take_out():
                pass

        yield from self._send(take_in)

    def _send(self, take_in: Callable[[bytes], None]) -> Talking[None]:
        if not self._to_send:
            return
        said, self._to_send = bytes(self._to_send), bytearray()
        try:
            yield Send(said)
        except ConnectionError as exc:
            if is_interruption(exc):
                raise
            refusal = yield from _refusal(take_in)
            if refusal is None:
                raise
            raise refusal from exc

    def hear(self, count: int) -> Talking[bytes]:
        """Return this many of the other side's next bytes.

        Raises:
            OSError: the other side ended the connection.
            ValueError: what came is not what a layer has.
        """
        yield from self.flush()
        while len(self._heard) < count:
            if not self._take_out():
                self._take_in((yield Receive()))
        heard = bytes(self._heard[:count])
        del self._heard[:count]
        return heard

    def unused(self) -> bytes:
        """Return received bytes that nothing has read yet, in clear."""
        return bytes(self._heard)

    def _take_in(self, received: bytes) -> None:
        self.has_heard = True
        if self.layer is None:
            self._heard += received
        else:
            self.layer.feed(memoryview(received))

    def _take_out(self) -> bool:
        """Read what came through the layers. Return whether there was anything."""
        if self.layer is None:
            return False
        space = memoryview(bytearray(RECEIVED_BYTES))
        taken = self.layer.read_into(space)
        self._heard += space[:taken]
        return taken > 0


def _refusal(take_in: Callable[[bytes], None]) -> Talking[RefusedError | None]:
    """The refusal that the other side sent before it closed the connection, if it did."""
    try:
        while True:
            take_in((yield Receive()))
    except RefusedError as exc:
        return exc
    except (OSError, ValueError):
        return None


def talk_in_thread(work: Talking[Result], opened: socket.socket, ends_s: float) -> Result:
    """Carry out work over a socket, in the caller's thread.

    Args:
        work: the work.
        opened: the socket. Its time-out is changed.
        ends_s: when to give up, by `time.monotonic`.

    Raises:
        TimeoutError: the time is over.
        OSError: as the work, or the socket.
    """

    def do(step: Send | Receive) -> bytes | None:
        left_s = ends_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        opened.settimeout(left_s)
        if isinstance(step, Send):
            opened.sendall(step.data)
            return None
        return _checked(opened.recv(RECEIVED_BYTES))

    try:
        return carry_out(work, do)
    except HQueueError as exc:
        if not is_own(exc):
            raise
        raise ConnectionError(str(exc)) from exc  # There is no thread for a step.


async def talk_in_loop(work: Talking[Result], opened: socket.socket) -> Result:
    """Like `talk_in_thread`, in an event loop, whose caller bounds it.

    Args:
        work: the work.
        opened: the socket, which doesn't block.
    """
    loop = asyncio.get_running_loop()

    async def do(step: Send | Receive) -> bytes | None:
        if isinstance(step, Send):
            await loop.sock_sendall(opened, step.data)
            return None
        return _checked(await loop.sock_recv(opened, RECEIVED_BYTES))

    try:
        return await carry_out_in_loop(work, do)
    except HQueueError as exc:
        if not is_own(exc):
            raise
        raise ConnectionError(str(exc)) from exc  # There is no thread for a step.


def _checked(received: bytes) -> bytes:
    if not received:
        raise ConnectionError("the server closed the connection")
    return received
