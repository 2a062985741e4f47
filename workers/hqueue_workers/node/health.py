"""Health and metrics, over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import http
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from hqueue import SettingsError

__all__ = ["Answer", "Page", "serve_health"]

HEAD_BYTES_MAX = 8 * 1024
CONNECTIONS_MAX = 64
"""At a time. Further ones are hung up on."""
TIMEOUT_S = 10.0


class Answer(NamedTuple):
    """A page."""

    status: int
    content_type: str
    body: bytes


Page = Callable[[], Awaitable[Answer]]


async def serve_health(host: str, port: int, pages: Mapping[str, Page]) -> asyncio.Server:
    """Serve these pages by their paths, until the server is closed.

    A page is made for one caller at a time, and what a stranger sends is bounded: its head, how
    long it may take, and how many connections there are.

    Raises:
        SettingsError: nothing can listen there.
    """
    connections = 0
    making = asyncio.Lock()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        try:
            if connections <= CONNECTIONS_MAX:
                await converse(reader, writer)
        finally:
            connections -= 1
            writer.close()

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(
            OSError, asyncio.TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError
        ):
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), TIMEOUT_S)
            method, _, rest = head.partition(b" ")
            page = pages.get(rest.split(b" ", 1)[0].split(b"?", 1)[0].decode(errors="replace"))
            if method not in (b"GET", b"HEAD") or page is None:
                answer = Answer(404, "text/plain", b"there are: %a\n" % sorted(pages))
            else:
                async with making:
                    answer = await page()
            writer.write(
                f"HTTP/1.1 {answer.status} {http.HTTPStatus(answer.status).phrase}\r\n"
                f"Content-Type: {answer.content_type}\r\nContent-Length: {len(answer.body)}\r\n"
                "Connection: close\r\n\r\n".encode()
            )
            if method != b"HEAD":
                writer.write(answer.body)
            await asyncio.wait_for(writer.drain(), TIMEOUT_S)

    try:
        return await asyncio.start_server(connected, host, port, limit=HEAD_BYTES_MAX)
    except OSError as exc:
        raise SettingsError(
            "metrics can't be served here; see metrics_host and metrics_port",
            metrics_host=host,
            metrics_port=port,
            reason=str(exc),
        ) from exc
