"""Sends server-sent events to a page, within bounds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

from markupsafe import escape
from starlette.responses import Response

from hqueue import HQueueError
from hqueue.errors import BufferFullError
from hqueue.runtime.clock import SYSTEM_CLOCK
from hqueue_workers.console.protocol import Receive, Scope, Send
from hqueue_workers.console.rights import Caller

__all__ = ["EventStream", "Streams", "event"]

BEAT_S = 10.0
"""A stream without events sends a comment so often: so a browser that has gone is noticed."""
STREAM_S_MAX = 600.0
"""A stream ends after this time. The page says so, and can begin another one."""


class Streams:
    """Counts the streams of each caller.

    Args:
        streams_max: how many streams there may be. One caller may have a quarter of them.
    """

    def __init__(self, streams_max: int) -> None:
        self._streams_max = streams_max
        self._each_max = max(1, streams_max // 4)
        self._open: dict[str, int] = {}
        self.stopping = asyncio.Event()
        """Set when the console ends: all streams end."""

    def begin(self, caller: Caller) -> str:
        """Count a stream of a caller. Give what this returns to `end`.

        Raises:
            BufferFullError: the caller, or all callers together, have too many.
        """
        whose = caller.principal or caller.host
        if self.open >= self._streams_max:
            raise BufferFullError("too many pages follow messages now: try again later")
        if self._open.get(whose, 0) >= self._each_max:
            raise BufferFullError("you follow messages on too many pages: close one of them")
        self._open[whose] = self._open.get(whose, 0) + 1
        return whose

    @property
    def open(self) -> int:
        """How many streams there are."""
        return sum(self._open.values())

    def end(self, whose: str) -> None:
        """A stream has ended."""
        self._open[whose] -= 1
        if not self._open[whose]:
            del self._open[whose]


def event(name: str, html: str) -> bytes:
    """An event, with HTML as its data."""
    lines = "".join(f"data: {line}\n" for line in html.splitlines() or [""])
    return f"event: {name}\n{lines}\n".encode()


class EventStream(Response):
    """An answer with the events of a generator, until the browser leaves.

    A browser that does not read holds up the generator, and the connection ends by its own bound.

    Args:
        events: makes a generator of events.
        stopping: ends the stream when it is set.
        ended: called at the end.
    """

    status_code = 200

    def __init__(
        self,
        events: Callable[[], AsyncGenerator[bytes, None]],
        stopping: asyncio.Event,
        ended: Callable[[], object],
    ) -> None:
        self._events = events
        self._stopping = stopping
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        begun_s = SYSTEM_CLOCK.monotonic_ms() / 1e3
        left = asyncio.ensure_future(_left(receive))
        stopping = asyncio.ensure_future(self._stopping.wait())
        source = self._events()
        following: asyncio.Future[bytes] = asyncio.ensure_future(_next(source))
        try:
            headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await _send(send, event("begun", ""))
            while True:
                waited: set[asyncio.Future[Any]] = {following, left, stopping}
                await asyncio.wait(waited, timeout=BEAT_S, return_when=asyncio.FIRST_COMPLETED)
                if left.done() or stopping.done():
                    break
                if SYSTEM_CLOCK.monotonic_ms() / 1e3 - begun_s > STREAM_S_MAX:
                    await _send(send, event("ended", "The page has followed for ten minutes."))
                    break
                if not following.done():
                    await _send(send, b": beat\n\n")
                    continue
                try:
                    data = following.result()
                except (HQueueError, StopAsyncIteration) as exc:
                    await _send(send, event("ended", _escaped(exc)))
                    break
                following = asyncio.ensure_future(_next(source))
                await _send(send, data)
            if not left.done():
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            ending: set[asyncio.Future[Any]] = {left, stopping, following}
            for each in ending:
                each.cancel()
            await asyncio.wait(ending)
            await source.aclose()
            self._ended()


async def _next(source: AsyncGenerator[bytes, None]) -> bytes:
    try:
        return await source.__anext__()
    except StopAsyncIteration:
        raise BufferFullError("the stream has ended") from None


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send(send: Send, data: bytes) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": True})


def _escaped(error: BaseException) -> str:
    text = error.text if isinstance(error, HQueueError) else str(error)
    return str(escape(text))
