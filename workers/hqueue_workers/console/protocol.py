"""One connection of a browser: HTTP by uvicorn, and the bounds that uvicorn does not have."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from hqueue.runtime.clock import SYSTEM_CLOCK
from hqueue_workers.console.rights import Caller

__all__ = ["CALLER", "HEAD_BYTES_MAX", "TOKEN_LENGTH_MAX", "ConsoleProtocol", "http_config"]

HEAD_BYTES_MAX = 16 * 1024
"""What a request's headers may have. A connection holds no more of an unfinished head; the gate
refuses a head that came in as a whole."""
TOKEN_LENGTH_MAX = 64 * 1024 + 64
"""What the header with a token of Kerberos may have beside that: a token in base64, and its scheme.
A ticket that names many groups, as Active Directory's do, is so large."""
IDLE_S_MAX = 15.0
"""A connection may have no request for so long, from its beginning or the last answer's end until
the whole head of the next request has come."""
UNREAD_S_MAX = 30.0
"""A browser must read all that was sent to it within this time."""

CALLER = "hqueue.caller"
"""The key of a request's scope that has its `Caller`."""

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


def http_config(app: App, *, tokens: bool) -> Config:
    """The configuration of uvicorn's HTTP, without its own server.

    Args:
        app: the application.
        tokens: whether requests may have tokens of Kerberos.
    """
    return Config(
        app,
        http="h11",
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=int(IDLE_S_MAX),
        h11_max_incomplete_event_size=HEAD_BYTES_MAX + (TOKEN_LENGTH_MAX if tokens else 0),
    )


class ConsoleProtocol(H11Protocol):
    """A connection. The server ends it when `is_overdue`.

    Args:
        config: from `http_config`.
        state: what the server's connections share.
        proven: returns the principal that a caller has proven, by the transport.
        log: gets what uvicorn logs.
    """

    def __init__(
        self,
        config: Config,
        state: ServerState,
        proven: Callable[[asyncio.BaseTransport], str | None],
        log: logging.Logger,
    ) -> None:
        super().__init__(config, state, {})
        self.logger = log
        self._proven = proven
        self._asked_app = self.app
        self.app = self._run
        self.idle_since_s: float = SYSTEM_CLOCK.monotonic_ms() / 1e3
        """When the connection began, or the last answer ended."""
        self._unread_since_s: float | None = None
        self._caller = Caller("")

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        host = self.client[0] if self.client else ""
        self._caller = Caller(host, self._proven(transport))

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def is_overdue(self, now_s: float) -> bool:
        """Whether the browser has sent no request, or not read its answer, for too long."""
        if self.transport is None:
            return False  # The handshake has a bound of its own.
        if not self.transport.get_write_buffer_size():
            self._unread_since_s = None
        elif self._unread_since_s is None:
            self._unread_since_s = now_s
        elif now_s - self._unread_since_s > UNREAD_S_MAX:
            return True
        return self.is_idle and now_s - self.idle_since_s > IDLE_S_MAX

    def abort(self) -> None:
        """End the connection at once, and drop what was not read."""
        if self.transport is not None:
            self.transport.abort()

    def on_response_complete(self) -> None:
        self.idle_since_s = SYSTEM_CLOCK.monotonic_ms() / 1e3
        super().on_response_complete()

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[CALLER] = self._caller
        await self._asked_app(scope, receive, send)
