"""A scanner in an event loop that a program forgets."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Iterator

import pytest

import hqueue
import hqueue.aio
from hqueue import Message
from tests.support.backends import MemoryBackend


@pytest.fixture
def client() -> Iterator[hqueue.Client]:
    with MemoryBackend().connect() as client:
        for _ in range(20):
            client.create_queue("q", partitions=2, exist_ok=True).put(
                [Message("t", b"a" * 100)] * 100
            )
        yield client


async def nothing_goes_on() -> None:
    while len(asyncio.all_tasks()) > 2:  # This one, and the one that waits for it.
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("how", [{}, {"merge_sorted": True}, {"follow": True}], ids=str)
def test_a_forgotten_scanner_is_closed_with_a_warning(
    client: hqueue.Client, how: dict[str, bool]
) -> None:
    async def run() -> None:
        queue = await hqueue.aio.Client(client).queue("q")
        scanner = queue.scan(bytes_max=10_000, **how)  # type: ignore[arg-type]
        assert await anext(scanner) is not None
        assert len(asyncio.all_tasks()) > 1 or "follow" not in how
        with pytest.warns(ResourceWarning, match="asynchronous scanner"):
            del scanner
        await asyncio.wait_for(nothing_goes_on(), 10)

    asyncio.run(run())


def test_nothing_is_said_of_a_scanner_that_ended_or_was_closed_or_never_used(
    client: hqueue.Client,
) -> None:
    async def run() -> None:
        queue = await hqueue.aio.Client(client).queue("q")
        scanners = [queue.scan(), queue.scan(bytes_max=10_000), queue.scan()]
        assert len([message async for message in scanners[0]]) == 2_000
        await anext(scanners[1])
        await scanners[1].close()
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*scanner")
            scanners.clear()
            gc.collect()

    asyncio.run(run())
