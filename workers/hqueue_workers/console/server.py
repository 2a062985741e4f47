"""Accepts the connections of browsers, within bounds."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl

from uvicorn.server import ServerState

from hqueue import SettingsError
from hqueue.net.guard import PortGuard
from hqueue.net.open_ports import say_open
from hqueue.net.refusals import RefusedError
from hqueue.rpc.accepting import FILE_ROOM, listen
from hqueue.runtime.clock import SYSTEM_CLOCK
from hqueue.runtime.logs import Log
from hqueue.runtime.seldom import SeldomLog
from hqueue_workers.console.protocol import App, ConsoleProtocol, http_config

__all__ = ["ConsoleServer"]

logger = Log(__name__)

WHOSE = "the console"
HANDSHAKE_S_MAX = 10.0
LOOK_S = 1.0
DRAIN_S_MAX = 5.0
PAUSE_S = 0.1


class _Quiet(logging.Handler):
    """Passes on what uvicorn logs, at most one line a second: strangers can cause each line."""

    def __init__(self) -> None:
        super().__init__()
        self._seldom = SeldomLog(logger)

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        reason = f" {type(error).__name__}: {error}" if error is not None else ""
        self._seldom.warning(
            "a browser's request failed: %s%s", record.getMessage().strip(), reason
        )


class ConsoleServer:
    """Serves an application to browsers. Make and use it in one event loop.

    It has a bounded number of connections. If all are open, one without a request ends for a new
    one; if all have requests, the new one waits. A connection that is silent, or does not read,
    ends.

    Args:
        app: the application.
        connections_max: how many connections may be open.
        guard: who may call the port; None if it speaks no TLS.
        tokens: whether callers may prove themselves by tokens of Kerberos in requests, and need no
            certificate.
    """

    def __init__(
        self,
        app: App,
        connections_max: int,
        guard: PortGuard | None = None,
        *,
        tokens: bool = False,
    ) -> None:
        self._config = http_config(app, tokens=tokens)
        self._config.load()
        self._state = ServerState()
        self._connections_max = connections_max
        self._guard = guard
        self._tokens = tokens
        self._listeners: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._accepting: list[asyncio.Task[None]] = []
        self._protocols: set[ConsoleProtocol] = set()
        self._shaking = 0
        self._seldom = SeldomLog(logger)
        self._log = logging.Logger("hqueue_workers.console.http", logging.WARNING)
        self._log.addHandler(_Quiet())

    @property
    def port(self) -> int:
        """The port on which it listens."""
        return int(self._listeners[0].getsockname()[1])

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._state.connections)

    def listen(self, host: str, port: int) -> None:
        """Listen, and accept connections.

        Raises:
            SettingsError: the console can't listen on the address.
        """
        try:
            self._listeners = listen(host, port)
        except (OSError, UnicodeError) as exc:
            raise SettingsError(
                "the console can't listen here; see its host and port",
                host=host,
                port=port,
                reason=str(exc),
            ) from exc
        if self._guard is None and not self._tokens:
            say_open(WHOSE, self._listeners)
        self._connections_max = FILE_ROOM.take(self._connections_max, WHOSE)
        loop = asyncio.get_running_loop()
        for each in self._listeners:
            each.setblocking(False)
            self._accepting.append(loop.create_task(self._accept(each)))
        self._accepting.append(loop.create_task(self._watch()))

    async def close(self) -> None:
        """Accept no more, wait a moment for the answers under way, and end all connections."""
        for task in self._accepting:
            task.cancel()
        await asyncio.gather(*self._accepting, return_exceptions=True)
        for each in self._listeners:
            each.close()
        if self._listeners:
            FILE_ROOM.give_back(self._connections_max)
        for task in self._tasks:
            task.cancel()
        for protocol in list(self._protocols):
            if protocol.transport is not None:
                protocol.shutdown()
        ends_s = SYSTEM_CLOCK.monotonic_ms() / 1e3 + DRAIN_S_MAX
        while self._state.tasks and SYSTEM_CLOCK.monotonic_ms() / 1e3 < ends_s:
            await asyncio.wait(list(self._state.tasks), timeout=LOOK_S)
        for running in list(self._state.tasks):
            running.cancel()
        for protocol in list(self._protocols):
            protocol.abort()
        await asyncio.sleep(0)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if not self._has_room():
                idle = [each for each in self._protocols if each.is_idle]
                ending = min(idle, key=lambda each: each.idle_since_s, default=None)
                if ending is None:
                    self._seldom.warning(
                        "%s has %d connections, all in use", WHOSE, self._connections_max
                    )
                else:
                    ending.abort()
                await asyncio.sleep(0.0 if ending is not None else PAUSE_S)
                continue
            try:
                accepted, peer = await loop.sock_accept(listener)
            except OSError as exc:  # The caller has gone, or no file is left.
                self._seldom.warning("%s can't accept a connection: %s", WHOSE, exc)
                await asyncio.sleep(PAUSE_S)
                continue
            self._shaking += 1  # At once: the next caller may be accepted before the task begins.
            task = loop.create_task(self._begin(accepted, peer))
            self._tasks.add(task)
            task.add_done_callback(self._begun)

    def _begun(self, task: asyncio.Task[None]) -> None:
        self._shaking -= 1
        self._tasks.discard(task)

    def _has_room(self) -> bool:
        """Whether another connection may come."""
        self._protocols = {each for each in self._protocols if each in self._state.connections}
        return len(self._protocols) + self._shaking < self._connections_max

    async def _begin(self, accepted: socket.socket, peer: object) -> None:
        """Make a connection of an accepted socket, after its handshake."""
        loop = asyncio.get_running_loop()
        try:
            accepted.setblocking(False)
            # Else an answer's body waits until its head is acknowledged, for up to 40 ms.
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            context = None if self._guard is None else self._guard.context()
            protocol = ConsoleProtocol(self._config, self._state, self._proven, self._log)
            await loop.connect_accepted_socket(
                lambda: protocol,
                accepted,
                ssl=context,
                ssl_handshake_timeout=None if context is None else HANDSHAKE_S_MAX,
            )
        except (OSError, ssl.SSLError, RefusedError) as exc:
            accepted.close()
            if self._guard is not None:
                self._guard.refuse("handshake", None, peer, str(exc))
        except BaseException:
            accepted.close()
            raise
        else:
            self._protocols.add(protocol)

    def _proven(self, transport: asyncio.BaseTransport) -> str | None:
        """The principal that a caller's certificate proves; None without TLS, or if the caller may
        prove itself by a token. Else the connection of a caller without a principal ends.
        """
        if self._guard is None:
            return None
        peer = transport.get_extra_info("peername")
        try:
            shaken = transport.get_extra_info("ssl_object")
            principal = self._guard.principal_if_any(shaken)
            if principal is None and self._tokens:
                return None
            principal = principal or self._guard.principal_of(shaken)
        except RefusedError as exc:
            self._guard.refuse("handshake", None, peer, exc.text)
            assert isinstance(transport, asyncio.Transport)
            transport.abort()
            return None
        error = self._guard.right_missing(principal)
        if error is not None:
            self._guard.refuse("principal", principal, peer, error.text)
        return principal

    async def _watch(self) -> None:
        """End the connections that are overdue."""
        while True:
            await asyncio.sleep(LOOK_S)
            now_s = SYSTEM_CLOCK.monotonic_ms() / 1e3
            for protocol in list(self._protocols):
                if protocol.is_overdue(now_s):
                    protocol.abort()
