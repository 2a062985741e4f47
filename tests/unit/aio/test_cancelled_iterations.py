"""Iterations over a scanner in an event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import hqueue
import hqueue.aio
from hqueue import Message
from tests.support.backends import MemoryBackend

COUNT = 3_000


pytestmark = pytest.mark.usefixtures("each_loop")


@pytest.fixture
def client() -> Iterator[hqueue.Client]:
    with MemoryBackend().connect() as client:
        queue = client.create_queue("q", partitions=2)
        for first in range(0, COUNT, 100):
            values = [Message("t", b"%d" % (first + number)) for number in range(100)]
            queue.put(values, partition=first // 100 % 2)
        yield client


def _each(scanner: hqueue.aio.Scanner) -> AsyncIterator[Any]:
    return aiter(scanner)


def _next(scanner: hqueue.aio.Scanner) -> AsyncIterator[Any]:
    return scanner


def _columns(scanner: hqueue.aio.Scanner) -> AsyncIterator[Any]:
    return scanner.arrow_batches()


@pytest.mark.parametrize("options", [{}, {"merge_sorted": True}, {"limit": COUNT - 500}])
@pytest.mark.parametrize("iterate", [_each, _next, _columns])
def test_an_iteration_whose_caller_was_cancelled_goes_on_and_never_seems_to_be_at_the_end(
    client: hqueue.Client,
    iterate: Callable[[hqueue.aio.Scanner], AsyncIterator[Any]],
    options: dict[str, Any],
) -> None:
    async def run() -> int:
        queue = await hqueue.aio.Client(client).queue("q")
        found = turns = 0
        async with queue.scan(**options) as scanner:
            items = iterate(scanner)
            while True:
                asked = asyncio.ensure_future(anext(items, None))
                turns += 1
                for _ in range(turns % 40):
                    await asyncio.sleep(0)
                if not asked.done() and turns % 3:
                    asked.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await asked
                    if asked.cancelled():
                        continue
                item = await asked
                if item is None:
                    return found
                found += getattr(item, "num_rows", 1)

    assert asyncio.run(run()) == options.get("limit", COUNT)


def test_an_iteration_that_is_left_is_continued_by_another(client: hqueue.Client) -> None:
    async def run() -> list[bytes]:
        queue = await hqueue.aio.Client(client).queue("q")
        values: list[bytes] = []
        async with queue.scan(partition=0) as scanner:
            async for message in scanner:
                values.append(message.value)
                if len(values) == 7:
                    break
            values.append((await anext(scanner)).value)
            values += [message.value async for message in scanner]
        return values

    assert asyncio.run(run()) == [message.value for message in client.queue("q").scan(partition=0)]


@pytest.mark.parametrize("options", [{}, {"limit": 40}])
def test_an_iteration_beside_other_calls_gives_each_message_once_and_no_more_than_the_limit(
    client: hqueue.Client, options: dict[str, Any]
) -> None:
    async def run() -> list[bytes]:
        queue = await hqueue.aio.Client(client).queue("q")
        values: list[bytes] = []
        async with queue.scan(partition=0, **options) as scanner:
            async for message in scanner:
                values.append(message.value)
                if len(values) in (3, 21):
                    values.append((await anext(scanner)).value)
                if len(values) == 10:
                    columns = await anext(scanner.arrow_batches())
                    values += columns.column("value").to_pylist()
        return values

    expected = [message.value for message in client.queue("q").scan(partition=0, **options)]
    assert asyncio.run(run()) == expected
