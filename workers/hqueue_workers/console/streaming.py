"""Sends server-sent events to a page, within bounds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

from markupsafe import escape
from starlette.responses import Response

from hqueue import HQueueError
from hqueue.doctor.findings import said
from hqueue.errors import BufferFullError
from hqueue.runtime.clock import SYSTEM_CLOCK
from hqueue_workers.console.protocol import Receive, Scope, Send
from hqueue_workers.console.rights import Caller

__all__ = ["EndedStream", "EventStream", "Streams", "event"]

BEAT_S = 10.0
"""A stream without events sends a comment so often: so a browser that has gone is noticed."""
LOOK_S = 1.0
"""A stream without events looks so often for what the browser must learn."""
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


def event(name: str | None, html: str, id: str | None = None) -> bytes:
    """An event, with HTML as its data.

    Args:
        name: the event's name. Without one the browser only learns the ID.
        html: the data.
        id: what a browser that connects again sends as ``Last-Event-ID``.
    """
    lines = "" if id is None else f"id: {id}\n"
    if name is not None:
        data = "".join(f"data: {line}\n" for line in html.splitlines() or [""])
        lines += f"event: {name}\n{data}"
    return f"{lines}\n".encode()


class EndedStream(Response):
    """A stream that ends at once. The browser does not connect again.

    Args:
        reason: the sentence that the page shows.
    """

    media_type = "text/event-stream"

    def __init__(self, reason: str) -> None:
        super().__init__(_ended(f"{reason}."))


class EventStream(Response):
    """An answer with the events of a generator, until the browser leaves.

    A browser that does not read holds up the generator, and the connection ends by its own bound.

    Args:
        events: makes a generator of events.
        pending: returns what the browser must learn although no event came for a while, with
            ``ending=True`` before the stream's end; empty if nothing.
        stopping: ends the stream when it is set.
        ended: called at the end.
    """

    status_code = 200

    def __init__(
        self,
        events: Callable[[], AsyncGenerator[bytes, None]],
        pending: Callable[..., bytes],
        stopping: asyncio.Event,
        ended: Callable[[], object],
    ) -> None:
        self._events = events
        self._pending = pending
        self._stopping = stopping
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        begun_s = sent_s = _now_s()
        left = asyncio.ensure_future(_left(receive))
        stopping = asyncio.ensure_future(self._stopping.wait())
        source = self._events()
        following: asyncio.Future[bytes] = asyncio.ensure_future(_next(source))
        try:
            headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            ended = ""
            while not ended:
                waited: set[asyncio.Future[Any]] = {following, left, stopping}
                await asyncio.wait(waited, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
                if left.done() or stopping.done():
                    break
                data = b""
                if _now_s() - begun_s > STREAM_S_MAX:
                    ended = "The page has followed for ten minutes."
                elif not following.done():
                    data = self._pending() or _beat(_now_s() - sent_s)
                else:
                    try:
                        data = following.result()
                    except HQueueError as exc:
                        ended = f"{said(exc)}."
                    else:
                        following = asyncio.ensure_future(_next(source))
                if ended:
                    data = self._pending(ending=True) + _ended(ended)
                if data:
                    await _send(send, data)
                    sent_s = _now_s()
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


def _beat(quiet_s: float) -> bytes:
    return b": beat\n\n" if quiet_s > BEAT_S else b""


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send(send: Send, data: bytes) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": True})


def _ended(reason: str) -> bytes:
    """The last event of a stream: the page shows it, and does not connect again."""
    return event("ended", f"{escape(reason)} Press Follow to begin again.")


def _now_s() -> float:
    return SYSTEM_CLOCK.monotonic_ms() / 1e3
