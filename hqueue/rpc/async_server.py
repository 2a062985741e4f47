"""A port that is served within an event loop, by the same rules as those with threads."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable

from hqueue.rpc.accepting import BACKLOG, FILE_ROOM, Acceptor
from hqueue.rpc.callers import Bounds, Caller, Callers
from hqueue.rpc.calls import NoCallError
from hqueue.rpc.gathering import Gatherer, Request
from hqueue.rpc.served_connection import drop_unread
from hqueue.runtime.clock import SYSTEM_CLOCK
from hqueue.runtime.seldom import SeldomLog

__all__ = ["AsyncConnection", "AsyncServer"]

logger = logging.getLogger(__name__)

LOOK_S = 1.0
"""How often it is looked who has had their time."""
PAUSE_S = 0.1
"""Until the next look for room."""
ACCEPTS_MAX = 4
"""In a turn of the event loop. What a caller sends is received two turns after it was accepted: by
then no more may have come than there is room for."""
TURN_MS = 2.0
"""In each turn, the requests of a caller are taken for about so long."""


class AsyncConnection(asyncio.Protocol, Caller):
    """A caller's connection. Requests are taken one after another; after one that is answered
    later, no more are before that.
    """

    def __init__(self, server: AsyncServer, peer: object) -> None:
        Caller.__init__(self, server.make_gatherer())
        self._server = server
        self._peer = peer
        """Where it came from, as it was when it was accepted: one that is gone does not say."""
        self._transport: asyncio.Transport | None = None
        self._busy = False
        self._ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._server.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True
        self._server.callers.drop(self)

    def data_received(self, data: bytes) -> None:
        if self._ended:
            return
        self.passed_bytes += len(data)
        self.gatherer.add(data)
        self._take()

    def answer(self, answer: bytes) -> None:
        """Answer the request that was `wait`ed for, and hang up when that is read."""
        if self._transport is None or self._ended:
            return
        self.passed_bytes = 0
        self._server.callers.begin(self, len(answer), SYSTEM_CLOCK.monotonic_ms())
        self._transport.write(answer)
        self._transport.close()
        self._server.end_surplus()

    def wait(self) -> None:
        """The request is answered later: nothing more is received."""
        self._busy = True
        if self._transport is not None:
            self._transport.pause_reading()
        self._server.callers.serve(self)

    def hang_up(self, reason: str) -> None:
        """End the connection; why is logged, if there is a reason."""
        if self._ended:
            return
        self._ended = True
        self._server.callers.drop(self)
        if self._transport is not None:
            if reason:
                sock = self._transport.get_extra_info("socket")
                if sock is not None:
                    drop_unread(sock)
                self._server.log.warning("hung up on %s: %s", self._peer, reason)
            self._transport.abort()

    def _take(self) -> None:
        """Take the requests that have come as a whole, for as long as a turn is."""
        callers, now_ms = self._server.callers, SYSTEM_CLOCK.monotonic_ms()
        ends_ms = now_ms + TURN_MS
        try:
            while not (self._busy or self._ended):
                request = self.gatherer.next()
                if request is None:
                    break
                self.passed_bytes = self.gatherer.held
                self.proven = True
                callers.rest(self, now_ms)
                self._server.handle(self, request)
                if SYSTEM_CLOCK.monotonic_ms() > ends_ms and self._transport is not None:
                    self._transport.pause_reading()
                    asyncio.get_running_loop().call_soon(self._resume)
                    break
        except NoCallError as exc:
            self.hang_up(str(exc))
        except Exception as exc:  # A fault of ours ends no more than this.
            self.hang_up(f"{type(exc).__name__}: {exc}")
        if self._busy or self._ended:
            return
        held = self.gatherer.held
        if not held:
            callers.rest(self, now_ms)
        elif self.held:
            callers.move(self, held, now_ms)
        else:
            callers.begin(self, held, now_ms)
        self._server.end_surplus()

    def _resume(self) -> None:
        if not self._ended and self._transport is not None:
            self._transport.resume_reading()
            self._take()


class AsyncServer:
    """Serves a port within an event loop: gathers requests, and hands them on. What strangers may
    hold is bounded as `hqueue.rpc.callers` has it. To be used within the event loop.

    Args:
        bounds: of the port. The process's limit on open files may allow fewer connections.
        make_gatherer: of each connection.
        handle: called with each request. It returns at once, after `AsyncConnection.wait` if the
            request is answered later. A `NoCallError` that it raises ends the connection.
        whose: what the log calls it.
    """

    def __init__(
        self,
        bounds: Bounds,
        make_gatherer: Callable[[], Gatherer],
        handle: Callable[[AsyncConnection, Request], object],
        whose: str,
    ) -> None:
        self.make_gatherer = make_gatherer
        self.handle = handle
        self.log = SeldomLog(logger)
        self.callers: Callers[AsyncConnection] = Callers(bounds)
        self._whose = whose
        self._acceptors: list[Acceptor] = []
        self._made: set[asyncio.Task[object]] = set()
        self._timers: dict[object, asyncio.TimerHandle] = {}

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._acceptors[0].listener.getsockname()[1])

    def listen(self, host: str, port: int) -> None:
        """Serve connections that are made there.

        Raises:
            OSError: nothing can listen there.
        """
        bounds = self.callers.bounds
        given = FILE_ROOM.take(bounds.connections_max, self._whose)
        self.callers.bounds = bounds._replace(connections_max=given)
        self.callers.grow()
        flags = socket.AI_PASSIVE
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=flags)
        try:
            for family, address in sorted({(each[0], str(each[4][0])) for each in found}):
                listener = socket.create_server((address, port), family=family, backlog=BACKLOG)
                port = listener.getsockname()[1]
                self._acceptors.append(Acceptor(listener, self._whose))
        except OSError:
            self.close()
            raise
        for acceptor in self._acceptors:
            self._accept(acceptor)
        self._look()

    def close(self) -> None:
        """Hang up on all, and listen no more."""
        for timer in self._timers.values():
            timer.cancel()
        for acceptor in self._acceptors:
            asyncio.get_running_loop().remove_reader(acceptor.listener)
            acceptor.close()
        if self._acceptors:
            FILE_ROOM.give_back(self.callers.bounds.connections_max)
            self._acceptors = []
        for connection in self.callers:
            connection.hang_up("")

    def add(self, connection: AsyncConnection) -> None:
        """A connection was made. If there is no room for it one goes, which may be itself."""
        now_ms = SYSTEM_CLOCK.monotonic_ms()
        if not self._make_room(now_ms):
            connection.hang_up("")
            return
        self.callers.rest(connection, now_ms)

    def end_surplus(self) -> None:
        """Hang up on those that go so that the others are within the bound on memory."""
        for connection in self.callers.surplus():
            connection.hang_up("all callers together hold as much memory as they may")

    def _accept(self, acceptor: Acceptor) -> None:
        loop = asyncio.get_running_loop()
        room = True
        for _ in range(ACCEPTS_MAX):
            room = not acceptor.is_knocked() or self._make_room(SYSTEM_CLOCK.monotonic_ms())
            accepted = acceptor.accept() if room else None
            if accepted is not None:
                made = loop.create_task(self._connect(*accepted))
                self._made.add(made)
                made.add_done_callback(self._made.discard)
            if acceptor.full and len(self.callers):
                self.callers.shrink()
            elif accepted is None:
                room = room and not acceptor.full
                break
        if room:
            loop.add_reader(acceptor.listener, self._accept, acceptor)
        else:
            loop.remove_reader(acceptor.listener)
            self._timers[acceptor] = loop.call_later(PAUSE_S, self._accept, acceptor)

    async def _connect(self, sock: socket.socket, peer: object) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            await loop.connect_accepted_socket(lambda: AsyncConnection(self, peer), sock)

    def _make_room(self, now_ms: float) -> bool:
        if self.callers.has_room:
            return True
        caller = self.callers.to_make_room(now_ms)
        if caller is None:
            connections_max = self.callers.bounds.connections_max
            self.log.warning("%s has %d connections, all in use", self._whose, connections_max)
            return False
        caller.hang_up("")
        return True

    def _look(self) -> None:
        for connection, reason in self.callers.overdue(SYSTEM_CLOCK.monotonic_ms()):
            connection.hang_up(reason)
        self.callers.grow()
        loop = asyncio.get_running_loop()
        self._timers["look"] = loop.call_later(LOOK_S, self._look)
