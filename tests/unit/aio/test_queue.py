"""What operators ask of a queue in an event loop, where the caller is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import hqueue
import hqueue.aio
from hqueue import ClosedError, CorruptLogError, Message
from tests.support.backends import MemoryBackend
from tests.support.cancelling import each_await
from tests.support.unreadable import BAD, put_unreadable

BATCHES = 600
"""More than a verification reads in one request."""


@pytest.fixture
def client() -> Iterator[hqueue.Client]:
    with MemoryBackend().connect() as client:
        queue = client.create_queue("q", partitions=1)
        for number in range(BATCHES):
            queue.put([Message("t", b"%d" % number)] * 2)
        yield client


def cut_everywhere(client: hqueue.Client, use: Callable[[hqueue.aio.Queue, Any], Any]) -> None:
    async def run() -> None:
        queue = await hqueue.aio.Client(client).queue("q")
        assert await each_await(lambda cut: use(queue, cut)) > 0

    asyncio.run(run())


def test_headers_come_once_each_wherever_a_call_for_the_next_one_is_cancelled(
    client: hqueue.Client,
) -> None:
    async def use(queue: hqueue.aio.Queue, cut: Callable[..., Any]) -> None:
        headers, found = queue.headers(0), []

        async def take() -> None:
            async for header in headers:
                found.append(header.ordinal)

        await cut(take())
        await take()
        await take()
        assert found == [2 * number for number in range(BATCHES)]

    cut_everywhere(client, use)


def test_a_verification_that_was_cancelled_does_not_seem_to_have_ended(
    client: hqueue.Client,
) -> None:
    async def use(queue: hqueue.aio.Queue, cut: Callable[..., Any]) -> None:
        results, found = queue.verify(), []

        async def take() -> None:
            async for result in results:
                found.append((result.messages, result.findings))

        if await cut(take()):
            with pytest.raises(ClosedError, match="begin another one"):
                await take()
        else:
            await take()
            assert found[-1] == (2 * BATCHES, [])

    cut_everywhere(client, use)


def test_a_batch_is_added_and_removed_again_wherever_a_call_was_cancelled(
    client: hqueue.Client,
) -> None:
    row = put_unreadable(client.queue("q"), [Message("bad", b"", None, [(BAD, b"")])])

    async def use(queue: hqueue.aio.Queue, cut: Callable[..., Any]) -> None:
        batches = queue.skipped_batches
        await cut(batches.add(row))
        assert await batches.add(row) == 1
        assert await batches.rows() == [row]
        async with queue.scan() as scanner:
            assert len([message async for message in scanner]) == 2 * BATCHES
        await cut(batches.remove(row))
        await batches.remove(row)
        assert await batches.rows() == []
        async with queue.scan() as scanner:
            with pytest.raises(CorruptLogError):
                [message async for message in scanner]

    cut_everywhere(client, use)


def test_a_queue_that_was_closed_refuses_puts_and_scans(client: hqueue.Client) -> None:
    async def run() -> None:
        async with await hqueue.aio.Client(client).queue("q") as queue:
            assert queue.partitions == 1
        with pytest.raises(ClosedError):
            await queue.put(Message("t", b""))
        with pytest.raises(ClosedError):
            queue.scan()

    asyncio.run(run())
