"""Serves health and metrics over HTTP."""

from __future__ import annotations

import asyncio
import http
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from hqueue.errors import HQueueError, NotAllowedError, SettingsError
from hqueue.net.guard import PortGuard
from hqueue.rpc.accepting import listen
from hqueue.rpc.callers import Bounds
from hqueue.rpc.gathering import HeadGatherer
from hqueue.rpc.port import Port
from hqueue.rpc.served_connection import ServedConnection
from hqueue.runtime.logs import Log
from hqueue.runtime.seldom import SeldomLog

__all__ = ["PROMETHEUS_TEXT", "Answer", "HealthServer", "Page"]

logger = Log(__name__)

PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8"
"""The type of a page of metrics."""
HEAD_BYTES_MAX = 8 * 1024
CONNECTIONS_MAX = 128
"""At a time. For a further one the oldest goes that has asked for nothing yet."""
HELD_BYTES_MAX = 16 * 1024 * 1024
"""Of all heads that have begun, and all pages that are being read."""
STILL_MS_MAX = IDLE_MS_MAX = 10_000.0


class Answer(NamedTuple):
    """A page."""

    status: int
    content_type: str
    body: bytes


Page = Callable[[], Awaitable[Answer]]


class HealthServer:
    """Serves pages by their paths. Requests that come while a page is being made share it.

    Args:
        pages: the pages by path.
    """

    def __init__(self, pages: Mapping[str, Page]) -> None:
        self._pages = pages
        self._made: dict[str, asyncio.Task[Answer]] = {}
        self._log = SeldomLog(logger)
        self._port: Port | None = None

    @property
    def port(self) -> int:
        """The port on which it listens."""
        assert self._port is not None
        return self._port.port

    def listen(self, host: str, port: int, guard: PortGuard | None = None) -> None:
        """Start serving.

        Args:
            host, port: the address to listen on.
            guard: as for `Port`.

        Raises:
            SettingsError: this process can't listen on the address.
        """
        try:
            listeners = listen(host, port)
        except (OSError, UnicodeError) as exc:
            raise SettingsError(
                "metrics can't be served here; see metrics_host and metrics_port",
                metrics_host=host,
                metrics_port=port,
                reason=str(exc),
            ) from exc
        self._port = Port(
            listeners,
            Bounds(CONNECTIONS_MAX, HELD_BYTES_MAX, STILL_MS_MAX, IDLE_MS_MAX),
            "the port for health and metrics",
            make_gatherer=lambda: HeadGatherer(HEAD_BYTES_MAX),
            serve=self._asked,
            refuse=_forbidden,
            guard=guard,
        )
        self._port.start_here()

    def close(self) -> None:
        """Stop serving."""
        if self._port is not None:
            self._port.close()
        for made in self._made.values():
            made.cancel()

    def _asked(self, connection: ServedConnection) -> None:
        request, connection.request = connection.request, None
        assert request is not None
        method, _, rest = bytes(request.data).partition(b" ")
        path = rest.split(b" ", 1)[0].split(b"?", 1)[0].decode(errors="replace")
        if method not in (b"GET", b"HEAD") or path not in self._pages:
            missing = Answer(404, "text/plain", b"there are: %a\n" % sorted(self._pages))
            self._answer(connection, missing, method)
            return
        made = self._made.get(path)
        if made is None:
            made = self._made[path] = asyncio.ensure_future(self._pages[path]())
            made.add_done_callback(lambda _: self._made.pop(path))
        made.add_done_callback(lambda done: self._answer(connection, self._outcome(done), method))

    def _outcome(self, made: asyncio.Task[Answer]) -> Answer | None:
        """The page that was made; None if this was abandoned."""
        if made.cancelled():
            return None
        error = made.exception()
        if error is None:
            return made.result()
        self._log.warning(
            "can't make a page of metrics or health: %s: %s", type(error).__name__, error
        )
        return Answer(500, "text/plain", b"it can't be made\n")

    def _answer(self, connection: ServedConnection, answer: Answer | None, method: bytes) -> None:
        """Answer, and close the connection when the answer is read."""
        assert self._port is not None
        if answer is None:
            connection.reason = ""
        else:
            connection.passed_bytes, connection.last = 0, True
            connection.send(_encoded(answer, method))
        self._port.give_back(connection)


def _forbidden(begun: bytes, error: HQueueError) -> bytes:
    """The page for a caller that may not read it."""
    if not isinstance(error, NotAllowedError):
        return b""
    return _encoded(Answer(403, "text/plain", f"{error}\n".encode()), begun.partition(b" ")[0])


def _encoded(answer: Answer, method: bytes) -> bytes:
    head = (
        f"HTTP/1.1 {answer.status} {http.HTTPStatus(answer.status).phrase}\r\n"
        f"Content-Type: {answer.content_type}\r\nContent-Length: {len(answer.body)}\r\n"
        "Connection: close\r\n\r\n"
    ).encode()
    return head if method == b"HEAD" else head + answer.body
