"""Connections to HBase's servers, in an event loop: one to each, and service."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TypeVar

from hqueue.errors import ClosedError, HQueueError
from hqueue.hbase.native.async_connection import AsyncCall, AsyncConnection
from hqueue.hbase.native.calls import REQUESTS_MAX, NoAnswerError, UnsentError
from hqueue.hbase.native.exchanges import (
    Asking,
    Request,
    answered,
    unanswered,
    unsent,
)
from hqueue.hbase.native.links import Link
from hqueue.hbase.native.opening import AsyncOpen, Opener
from hqueue.hbase.native.wire import Answer
from hqueue.net.refusals import RefusedError
from hqueue.runtime.clock import bounded_ms
from hqueue.runtime.interrupts import is_interruption
from hqueue.runtime.per_loop import PerLoop
from hqueue.runtime.steps import carry_out_in_loop
from hqueue.settings.addresses import Address
from hqueue.settings.connection import Settings

__all__ = ["AsyncServers"]

Result = TypeVar("Result")


class _AsyncServer(Link[AsyncConnection]):
    """The connection to one server's service, opened by one caller."""

    opening: asyncio.Future[None] | None = None
    """While one opens it: done when that has ended, however."""


_Connected = dict[tuple[Address, str], _AsyncServer]
"""What belongs to one event loop."""


class AsyncServers:
    """All servers that were spoken to. Promises what `hqueue.hbase.native.servers.Servers` does, to
    coroutines: no thread waits for a request.

    Each event loop that uses this has connections of its own, until it is closed; in a forked child
    they are opened again. A caller may be cancelled wherever it waits: others notice nothing, and
    what became of a request that it had sent is unknown.

    Args:
        settings: the bounds.
        opener: how connections are opened; in clear if None.
    """

    def __init__(self, settings: Settings, opener: AsyncOpen | None = None) -> None:
        self.settings = settings
        self._opener = opener or Opener().open_in_loop
        self._closed = False
        self._connected: PerLoop[_Connected] = PerLoop(dict, _close, _abandon)

    def check_open(self) -> None:
        """Check that the client was not closed.

        Raises:
            ClosedError: the client was closed.
        """
        if self._closed:
            raise ClosedError("the client is closed")

    async def ask(self, request: Request, table: str, timeout_ms: float | None = None) -> Answer:
        """Make one request and return its answer. Never repeats it. Arguments and errors are those
        of `hqueue.hbase.native.servers.Servers.ask`.
        """
        self.check_open()
        begun = await self._begin(request, table, self._ends_s(timeout_ms))
        answer = begun if isinstance(begun, HQueueError) else await self._finish(table, *begun)
        if isinstance(answer, HQueueError):
            raise answer
        return answer

    async def ask_all(
        self,
        requests: Iterable[Request],
        table: str,
        timeout_ms: float | None = None,
        together_max: int = REQUESTS_MAX,
    ) -> list[Answer | HQueueError]:
        """Make requests of several servers at once: for each its answer, or what `ask` raises.
        Arguments and errors are those of `hqueue.hbase.native.servers.Servers.ask_all`.
        """
        self.check_open()
        ends_s = self._ends_s(timeout_ms)
        under_way: deque[tuple[Request, AsyncConnection, AsyncCall] | HQueueError] = deque()
        answers: list[Answer | HQueueError] = []

        async def finish() -> None:
            begun = under_way.popleft()
            answers.append(
                begun if isinstance(begun, HQueueError) else await self._finish(table, *begun)
            )

        try:
            for request in requests:
                if len(under_way) >= together_max:
                    await finish()
                under_way.append(await self._begin(request, table, ends_s))
            while under_way:
                await finish()
        finally:
            for begun in under_way:  # Its caller was cancelled.
                if not isinstance(begun, HQueueError):
                    begun[1].give_up(begun[2])
        return answers

    def connections(self) -> list[AsyncConnection]:
        """The connections of the running loop."""
        return [*_connections(self._connected.here())]

    async def carry_out(self, work: Asking[Result]) -> Result:
        """Carry out work.

        Raises:
            HQueueError: as the work does.
        """
        return await carry_out_in_loop(work, lambda step: step.do(self))

    def close(self) -> None:
        """Close all connections. Later requests raise `ClosedError`. Called by any thread: what
        belongs to a loop that another one runs is closed there, soon. Never raises.
        """
        self._closed = True
        self._connected.close()

    def _ends_s(self, timeout_ms: float | None) -> float:
        return time.monotonic() + bounded_ms(timeout_ms or self.settings.request_timeout_ms) / 1e3

    async def _begin(
        self, request: Request, table: str, ends_s: float
    ) -> tuple[Request, AsyncConnection, AsyncCall] | HQueueError:
        method, message, cells = request.method, request.message, request.cells
        try:
            connection = await self._connection(request.address, request.service, ends_s)
            call = await connection.begin(method, message, cells, request.cell_bytes, ends_s)
        except OSError as exc:
            if is_interruption(exc):
                raise
            return unsent(request, table, exc)
        return request, connection, call

    async def _finish(
        self, table: str, request: Request, connection: AsyncConnection, call: AsyncCall
    ) -> Answer | HQueueError:
        try:
            said = await connection.finish(call)
        except (RefusedError, UnsentError) as exc:
            return unsent(request, table, exc)
        except NoAnswerError as exc:
            return unanswered(request, table, exc, closed=self._closed)
        return answered(request, table, said)

    async def _connection(self, address: Address, service: str, ends_s: float) -> AsyncConnection:
        """The connection to a server; opened if there is none that can be used.

        Raises:
            OSError: it can't be opened within ``connect_timeout_ms``.
        """
        here = self._connected.here()
        server = here.get((address, service))
        if server is None:
            server = here[address, service] = _AsyncServer(self.settings)
        asked_s = time.monotonic()
        while (connection := server.good()) is None:
            if server.opening is None:
                return await self._open(server, address, service, (asked_s, ends_s))
            await asyncio.wait([server.opening], timeout=max(0.0, ends_s - time.monotonic()))
            if time.monotonic() >= ends_s:
                raise UnsentError("the connection was not opened in time")
        return connection

    async def _open(
        self, server: _AsyncServer, address: Address, service: str, times_s: tuple[float, float]
    ) -> AsyncConnection:
        left_s = server.begin_opening(*times_s)
        server.opening = opening = asyncio.get_running_loop().create_future()
        try:
            opened = await self._opener(address, service, left_s)
            connection = await AsyncConnection.attach(opened)
        except OSError as exc:
            if not is_interruption(exc):
                server.failed(exc)
            raise
        finally:
            server.opening = None
            opening.set_result(None)
        server.opened(connection)
        if self._closed:
            connection.close()
        return connection


def _close(there: _Connected) -> None:
    """Close all connections. Called in their loop, or while it does not run."""
    for connection in _connections(there):
        connection.close()


def _abandon(there: _Connected) -> None:
    """Let go of all connections, of a loop that is not there any more, or does not run."""
    for connection in _connections(there):
        connection.abandon()


def _connections(there: _Connected) -> Iterator[AsyncConnection]:
    for server in there.values():
        if server.connection is not None:
            yield server.connection
