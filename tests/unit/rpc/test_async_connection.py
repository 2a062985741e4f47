"""Calls of a Thrift server from an event loop: what a reply says, and that nothing is believed."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from hqueue.rpc.async_connection import AsyncConnection, UncallableError
from hqueue.rpc.calls import NoCallError
from hqueue.rpc.messages import Processor
from hqueue.rpc.services import load
from hqueue.settings.addresses import Address

IDL = load("hub")
BYTES_MAX = 64 * 1024


class Hub:
    """Answers `detached` with what comes next."""

    def __init__(self, *answers: Any) -> None:
        self.answers: Iterator[Any] = iter(answers)
        self.got: list[tuple[object, ...]] = []
        self.connections = 0

    def detached(self, *given: object) -> Any:
        self.got.append(given)
        answer = next(self.answers)
        if isinstance(answer, Exception):
            raise answer
        return answer


@contextlib.asynccontextmanager
async def connection(
    handler: Hub, babble: bytes | None = None, **options: Any
) -> AsyncIterator[AsyncConnection]:
    """One to a server that answers so, in pieces; or says nothing but this."""

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handler.connections += 1
        while call := await reader.read(BYTES_MAX):
            reply = babble or Processor(IDL.HQueueHubService, handler).answer(call)
            for at in range(0, len(reply), 7):
                writer.write(reply[at : at + 7])
                await writer.drain()
                await asyncio.sleep(0)
        writer.close()

    server = await asyncio.start_server(accepted, "127.0.0.1", 0)
    made = AsyncConnection(
        Address(*server.sockets[0].getsockname()[:2]), BYTES_MAX, 1_000, **options
    )
    try:
        yield made
    finally:
        made.close()
        server.close()


async def told(by: AsyncConnection, timeout_s: float = 10) -> Any:
    return await by.call_method(
        IDL.HQueueHubService, "detached", "q", "session", 5, timeout_s=timeout_s
    )


def test_answers_and_declared_errors_come_back_one_after_another_on_one_connection() -> None:
    async def scene() -> None:
        gone = IDL.TDetached("täglich".encode(), b"s", IDL.TDetachedReason.REPLACED)
        hub = Hub([], [gone] * 100, IDL.TIllegalArgument("no such session"), [])
        async with connection(hub) as by:
            assert await told(by) == []
            assert await told(by) == [gone] * 100
            assert by.is_open
            with pytest.raises(IDL.TIllegalArgument):
                await told(by)
            assert await told(by) == []
        assert hub.connections == 1
        assert hub.got == [(b"q", b"session", 5)] * 4

    asyncio.run(scene())


def test_what_is_no_reply_is_not_believed() -> None:
    async def scene() -> None:
        head = struct.pack(">Ii", 0x80010002, 8) + b"detached" + bytes(4)
        empty_structs = b"\x0f\0\0\x0c" + struct.pack(">i", 2_000) + bytes(2_000)
        large = b"\x0b\0\0" + struct.pack(">i", BYTES_MAX) + bytes(BYTES_MAX)
        for babble in (b"HTTP/1.1 400\r\n\r\n", head + empty_structs + b"\0", head + large):
            async with connection(Hub(), babble) as by:
                with pytest.raises(NoCallError):
                    await told(by)
                assert not by.is_open

    asyncio.run(scene())


def test_one_that_is_cancelled_or_late_leaves_no_answer_for_the_next() -> None:
    async def scene() -> None:
        called = asyncio.Event()

        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(BYTES_MAX)
            called.set()
            await reader.read()
            writer.close()

        server = await asyncio.start_server(accepted, "127.0.0.1", 0)
        by = AsyncConnection(Address(*server.sockets[0].getsockname()[:2]), BYTES_MAX, 10)
        calling = asyncio.ensure_future(told(by))
        await called.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert not by.is_open
        with pytest.raises(TimeoutError, match=r"no answer in 0\.1 s"):
            await told(by, timeout_s=0.1)
        assert not by.is_open
        server.close()

    asyncio.run(scene())


def test_an_address_that_may_not_be_called_is_not() -> None:
    async def scene() -> None:
        hub = Hub()
        async with connection(hub, may_reach=lambda ip: ip != "127.0.0.1") as by:
            with pytest.raises(UncallableError):
                await told(by)
        assert not hub.got

    asyncio.run(scene())
