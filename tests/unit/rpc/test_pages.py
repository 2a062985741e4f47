"""What a worker shows of itself over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from hqueue.rpc.pages import HEAD_BYTES_MAX, Answer, HealthServer


async def ready() -> Answer:
    return Answer(200, "text/plain", b"ready\n")


async def broken() -> Answer:
    return Answer(503, "application/json", b"{}")


PAGES = {"/ready": ready, "/broken": broken}


def served(talk: Callable[[int], Awaitable[None]], pages: dict[str, object] = PAGES) -> None:
    """Serve the pages while a client talks to the port."""

    async def run() -> None:
        server = HealthServer(pages)  # type: ignore[arg-type]
        server.listen("127.0.0.1", 0)
        try:
            await talk(server.port)
        finally:
            server.close()

    asyncio.run(asyncio.wait_for(run(), 30))


async def asked(port: int, head: bytes) -> bytes:
    """Everything that comes as an answer, up to the connection's end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head)
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("request_line", "status", "body"),
    [
        (b"GET /ready HTTP/1.1", b"200 OK", b"ready\n"),
        (b"GET /ready?since=1 HTTP/1.1", b"200 OK", b"ready\n"),
        (b"HEAD /ready HTTP/1.1", b"200 OK", b""),
        (b"GET /broken HTTP/1.0", b"503 Service Unavailable", b"{}"),
        (b"GET /nosuch HTTP/1.1", b"404 Not Found", b"there are: ['/broken', '/ready']\n"),
        (b"POST /ready HTTP/1.1", b"404 Not Found", b"there are: ['/broken', '/ready']\n"),
        (b"\xff \xff", b"404 Not Found", b"there are: ['/broken', '/ready']\n"),
    ],
)
def test_a_page_is_answered_whole(request_line: bytes, status: bytes, body: bytes) -> None:
    async def talk(port: int) -> None:
        head, _, given = (await asked(port, request_line + b"\r\n\r\n")).partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        assert lines[0] == b"HTTP/1.1 " + status
        assert given == body
        length = len(body) or len(b"ready\n")
        assert b"Content-Length: %d" % length in lines
        assert b"Connection: close" in lines

    served(talk)


def test_a_head_that_is_too_long_gets_no_answer_and_harms_nobody() -> None:
    async def talk(port: int) -> None:
        assert await asked(port, b"GET /ready HTTP/1.1\r\n" + b"x" * 2 * HEAD_BYTES_MAX) == b""
        assert (await asked(port, b"GET /ready HTTP/1.1\r\n\r\n")).endswith(b"ready\n")

    served(talk)


def test_a_page_is_made_for_one_caller_at_a_time() -> None:
    making = most = 0

    async def slow() -> Answer:
        nonlocal making, most
        making += 1
        most = max(most, making)
        await asyncio.sleep(0)
        making -= 1
        return await ready()

    async def talk(port: int) -> None:
        answers = await asyncio.gather(*(asked(port, b"GET / HTTP/1.1\r\n\r\n") for _ in range(5)))
        assert all(answer.endswith(b"ready\n") for answer in answers)
        assert most == 1

    served(talk, {"/": slow})


def test_half_heads_and_silence_on_more_connections_than_there_may_be_stop_nobody() -> None:
    async def talk(port: int) -> None:
        strangers = [await asyncio.open_connection("127.0.0.1", port) for _ in range(200)]
        for _, writer in strangers[::2]:
            writer.write(b"GET /rea")
        for _ in range(5):
            assert (await asked(port, b"GET /ready HTTP/1.1\r\n\r\n")).endswith(b"ready\n")
        for _, writer in strangers:
            writer.close()

    served(talk)


def test_a_page_that_can_t_be_made_is_an_answer_and_harms_no_other() -> None:
    async def failing() -> Answer:
        raise ValueError("a bug")

    async def talk(port: int) -> None:
        assert b"500 Internal Server Error" in await asked(port, b"GET /bad HTTP/1.1\r\n\r\n")
        assert (await asked(port, b"GET /ready HTTP/1.1\r\n\r\n")).endswith(b"ready\n")

    served(talk, {"/ready": ready, "/bad": failing})
