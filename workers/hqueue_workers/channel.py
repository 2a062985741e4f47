"""The connections to one subscriber, and the calls that go through them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
from collections.abc import AsyncIterator, Callable

from hqueue.coordination import Address
from hqueue_workers.feed import Call
from hqueue_workers.wire import ReplyError, call_head, call_tail, read_reply

__all__ = ["Channel", "Line", "NoAnswerError"]

CONNECT_TIMEOUT_S = 3.0
SEND_BYTES = 64 * 1024


class NoAnswerError(Exception):
    """A subscriber did not answer a call; it may have got it, or not. The text says why."""


class Channel:
    """The way to one subscriber: a few lines, which its partitions take turns to use.

    Args:
        address: where it listens.
        may_send: asked right before each piece of a call is sent.
        lines: calls under way at a time.
    """

    def __init__(self, address: Address, may_send: Callable[[], bool], lines: int) -> None:
        self.address = address
        self._may_send = may_send
        self._free = asyncio.Semaphore(lines)
        self._idle: list[Line] = []
        self._closed = False

    @contextlib.asynccontextmanager
    async def line(self) -> AsyncIterator[Line]:
        """A line for the caller alone. Those that wait get theirs in turn."""
        async with self._free:
            line = self._idle.pop() if self._idle else Line(self.address, self._may_send)
            try:
                yield line
            except BaseException:
                line.close()  # There may be half a call in it, or an answer under way.
                raise
            finally:
                if self._closed:
                    line.close()
                self._idle.append(line)

    def close(self) -> None:
        """Close the lines that are free now, and the others when they get free."""
        self._closed = True
        for line in self._idle:
            line.close()


class Line:
    """One connection, opened when it is needed. One call at a time."""

    def __init__(self, address: Address, may_send: Callable[[], bool]) -> None:
        self._address = address
        self._may_send = may_send
        self._socket: socket.socket | None = None
        self._seqids = itertools.cycle(range(1, 2**31))

    async def call(self, call: Call, timeout_s: float) -> int:
        """Call the subscriber; its status.

        Nothing is sent from the moment on at which it may not be: a call that is cut off in its
        middle is none.

        Raises:
            NoAnswerError: there was no answer in time, or none that could be understood.
        """
        try:
            return await asyncio.wait_for(self._call(call), timeout_s)
        except asyncio.TimeoutError as exc:
            raise NoAnswerError(f"no answer in {timeout_s:g} s") from exc
        except (OSError, EOFError, ReplyError) as exc:
            raise NoAnswerError(str(exc) or type(exc).__name__) from exc

    def close(self) -> None:
        """Close the connection. The next call opens another."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    async def _call(self, call: Call) -> int:
        seqid = next(self._seqids)
        data = b"".join((call_head(seqid, call.count), *call.parts, call_tail))
        sent = False
        if self._socket is not None:
            # One that was closed meanwhile, as by a restart, shows that now or at the answer.
            with contextlib.suppress(OSError):
                await self._send(self._socket, data)
                sent = True
        if not sent:
            self.close()
            self._socket = await self._open()
            await self._send(self._socket, data)
        return await read_reply(self._read, seqid)

    async def _open(self) -> socket.socket:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(*self._address, type=socket.SOCK_STREAM)
        error: OSError | None = None
        for family, kind, protocol, _, place in found:
            opened = socket.socket(family, kind, protocol)
            try:
                opened.setblocking(False)
                opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                await asyncio.wait_for(loop.sock_connect(opened, place), CONNECT_TIMEOUT_S)
            except asyncio.TimeoutError:
                opened.close()
                error = TimeoutError("it can't be reached")
            except OSError as exc:
                opened.close()
                error = exc
            except BaseException:
                opened.close()
                raise
            else:
                return opened
        raise error or OSError("its host has no address")

    async def _send(self, to: socket.socket, data: bytes) -> None:
        """Send piece by piece, and none that may not be sent: a process may stand still anywhere.

        So this can't be left to a transport's buffer.
        """
        view = memoryview(data)
        while view:
            if not self._may_send():
                raise OSError("the session is not confirmed")
            try:
                view = view[to.send(view[:SEND_BYTES]) :]
            except BlockingIOError:
                await _writable(to)

    async def _read(self, count: int) -> bytes:
        loop = asyncio.get_running_loop()
        data = b""
        while len(data) < count:
            assert self._socket is not None
            piece = await loop.sock_recv(self._socket, count - len(data))
            if not piece:
                raise EOFError("the subscriber closed the connection")
            data += piece
        return data


async def _writable(of: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    number = of.fileno()
    loop.add_writer(number, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_writer(number)
