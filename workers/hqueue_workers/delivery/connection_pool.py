"""The connections to one subscriber, and the calls that go through them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
from collections.abc import AsyncIterator, Callable

from hqueue.metadata import Address
from hqueue.rpc.pool import KeptConnections
from hqueue_workers.delivery.wire import Call, Reply, ReplyError, call_head, call_tail, read_reply

__all__ = ["Connection", "ConnectionPool", "NoAnswerError", "NotCalledError"]

CONNECT_TIMEOUT_S = 3.0
SEND_BYTES = 64 * 1024
RECEIVE_BYTES = 4_096
RECEIVED_BYTES_MAX = 128 * 1024
"""Of a reply, until it is read. No part of one is longer."""


class NoAnswerError(Exception):
    """A subscriber did not answer a call; it may have got it, or not. The text says why."""


class NotCalledError(NoAnswerError):
    """A subscriber was not called: nobody knows its host's name, or it may not be called."""


class _UncallableError(OSError):
    """No address is there that may be called."""


class ConnectionPool:
    """The connections to one subscriber: a few, which its partitions take turns to use.

    Args:
        address: where it listens.
        may_send: asked right before each piece of a call is sent.
        connections: calls under way at a time.
        may_reach: whether an IP address of it may be connected to.
    """

    def __init__(
        self,
        address: Address,
        may_send: Callable[[], bool],
        connections: int,
        may_reach: Callable[[str], bool] = lambda ip: True,
    ) -> None:
        self.address = address
        self._may_reach = may_reach
        self._may_send = may_send
        self._free = asyncio.Semaphore(connections)
        self._kept: KeptConnections[Connection] = KeptConnections()

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection for the caller alone. Those that wait get theirs in turn."""
        async with self._free:
            found = self._kept.take()
            connection = (
                Connection(self.address, self._may_send, self._may_reach)
                if found is None
                else found[0]
            )
            try:
                yield connection
            except BaseException:
                connection.close()  # There may be half a call in it, or an answer under way.
                raise
            finally:
                self._kept.keep(connection)

    def close(self) -> None:
        """Close the connections that are free now, and the others when they get free."""
        self._kept.close()


class Connection:
    """One connection, opened when it is needed. One call at a time."""

    def __init__(
        self, address: Address, may_send: Callable[[], bool], may_reach: Callable[[str], bool]
    ) -> None:
        self._address = address
        self._may_reach = may_reach
        self._may_send = may_send
        self._loop = asyncio.get_running_loop()
        self._socket: socket.socket | None = None
        self._seqids = itertools.cycle(range(1, 2**31))
        self._calling = False
        self._received = bytearray()
        self._failure: Exception | None = None
        self._changed: asyncio.Future[None] | None = None

    async def call(self, call: Call, timeout_s: float) -> Reply:
        """Call the subscriber; its answer.

        Nothing is sent from the moment on at which it may not be: a call that is cut off in its
        middle is none.

        Args:
            call: the messages.
            timeout_s: the bound on the call, once there is a connection.

        Raises:
            NotCalledError: its host's name is not known, or its addresses may not be called.
            NoAnswerError: there was no answer in time, or none that could be understood.
        """
        try:
            return await self._call(call, timeout_s)
        except (_UncallableError, socket.gaierror) as exc:
            raise NotCalledError(str(exc)) from exc
        except (OSError, EOFError, ReplyError) as exc:
            raise NoAnswerError(str(exc) or type(exc).__name__) from exc
        finally:
            self._calling = False
            if self._failure is not None or self._received:
                self.close()

    def close(self) -> None:
        """Close the connection. The next call opens another."""
        if self._socket is not None:
            self._loop.remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    async def _call(self, call: Call, timeout_s: float) -> Reply:
        seqid = next(self._seqids)
        data = b"".join((call_head(seqid, call.count), *call.parts, call_tail))
        if self._socket is None:
            await self._open()
        self._calling = True
        late = TimeoutError(f"no answer in {timeout_s:g} s")
        ends = self._loop.call_later(timeout_s, self._fail, late)
        try:
            assert self._socket is not None
            await self._send(self._socket, data)
            return await read_reply(self._read, seqid)
        finally:
            ends.cancel()

    async def _open(self) -> None:
        try:
            found = await asyncio.wait_for(
                self._loop.getaddrinfo(*self._address, type=socket.SOCK_STREAM), CONNECT_TIMEOUT_S
            )
        except asyncio.TimeoutError as exc:
            raise _UncallableError("its host's name is not resolved") from exc
        error: OSError | None = None
        for family, kind, protocol, _, sockaddr in found:
            if not self._may_reach(str(sockaddr[0])):
                error = error or _UncallableError(
                    "its address may not be called: see callback_networks"
                )
                continue
            opened = socket.socket(family, kind, protocol)
            try:
                opened.setblocking(False)
                opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                await asyncio.wait_for(self._loop.sock_connect(opened, sockaddr), CONNECT_TIMEOUT_S)
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
                self._socket, self._failure = opened, None
                self._received.clear()
                self._loop.add_reader(opened, self._on_readable, opened)
                return
        raise error or _UncallableError("its host has no address")

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
                self._loop.add_writer(to, self._wake)
                try:
                    await self._change()
                finally:
                    self._loop.remove_writer(to)

    async def _read(self, count: int) -> bytes:
        while len(self._received) < count:
            await self._change()
        data = bytes(self._received[:count])
        del self._received[:count]
        return data

    async def _change(self) -> None:
        """Wait until something was received, or can be sent.

        Raises:
            OSError, EOFError: neither will be.
        """
        if self._failure is None:
            self._changed = self._loop.create_future()
            try:
                await self._changed
            finally:
                self._changed = None
        if self._failure is not None:
            raise self._failure

    def _on_readable(self, of: socket.socket) -> None:
        try:
            data = of.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError as exc:
            self._fail(exc)
            return
        if not data:
            self._fail(EOFError("the subscriber closed the connection"))
        elif not self._calling:
            self._fail(EOFError("the subscriber spoke without being called"))
        elif len(self._received) + len(data) > RECEIVED_BYTES_MAX:
            self._fail(EOFError("the subscriber speaks without end"))
        else:
            self._received += data
            self._wake()

    def _fail(self, error: Exception) -> None:
        """Nothing more comes of this connection."""
        self._failure = error
        if not self._calling:
            self.close()
        elif self._socket is not None:
            self._loop.remove_reader(self._socket)
            self._wake()

    def _wake(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)
