"""An exactly-once processor in an event loop: tasks that are cancelled, and functions that are not
awaited.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import hqueue
import hqueue.aio
from hqueue import InvalidInputError, Message, ReceivedMessage
from tests.support.backends import MemoryBackend
from tests.support.cancelling import each_await

IDLE_MS = 100


@pytest.fixture
def client() -> Iterator[hqueue.Client]:
    with MemoryBackend().connect() as client:
        for name in ("source", "target"):
            client.create_queue(name, partitions=1)
        yield client


def values_of(client: hqueue.Client, name: str) -> list[bytes]:
    return [message.value for message in client.queue(name).scan()]


def plain(message: ReceivedMessage) -> list[Message]:
    return [Message("r", message.value)]


async def awaited(message: ReceivedMessage) -> list[Message]:
    await asyncio.sleep(0)
    return plain(message)


def processor_of(
    client: hqueue.Client, process: hqueue.typing.ProcessInLoop = plain
) -> hqueue.aio.ExactlyOnceProcessor:
    return hqueue.aio.ExactlyOnceProcessor(
        "source", "target", "g", process, client=hqueue.aio.Client(client), messages_max=3
    )


@pytest.mark.parametrize("process", [plain, awaited])
def test_results_come_of_a_function_or_of_a_coroutine_function(
    client: hqueue.Client, process: hqueue.typing.ProcessInLoop
) -> None:
    async def run() -> int:
        async with processor_of(client, process) as processor:
            return await processor.run(idle_ms_max=IDLE_MS)

    for number in range(10):
        client.queue("source").put(Message("t", b"%d" % number))
    assert asyncio.run(run()) == 10
    assert values_of(client, "target") == values_of(client, "source")


def test_wherever_its_task_is_cancelled_each_result_is_in_the_target_once(
    client: hqueue.Client,
) -> None:
    source = client.queue("source")

    async def use(cut: Callable[..., Any]) -> None:
        for value in (b"0", b"1"):
            source.put(Message("t", value))
        async with processor_of(client, awaited) as processor:
            await cut(processor.run(idle_ms_max=0))

    async def run() -> None:
        assert await each_await(use) > 10
        async with processor_of(client) as processor:
            await processor.run(idle_ms_max=IDLE_MS)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert not others

    asyncio.run(run())
    assert values_of(client, "target") == values_of(client, "source")


def test_it_runs_once_at_a_time_and_is_not_closed_meanwhile(client: hqueue.Client) -> None:
    async def run() -> None:
        async with processor_of(client) as processor:
            running = asyncio.ensure_future(processor.run())
            await asyncio.sleep(0.01)
            for call in (processor.run(), processor.close()):
                with pytest.raises(InvalidInputError, match="is running"):
                    await call
            processor.request_stop()
            assert await running == 0
        with pytest.raises(hqueue.ClosedError):
            await processor.run()

    asyncio.run(run())


def test_a_queue_that_is_missing_is_an_error_of_the_run(client: hqueue.Client) -> None:
    async def run() -> None:
        given = hqueue.aio.Client(client)
        async with hqueue.aio.ExactlyOnceProcessor(
            "source", "none", "g", plain, client=given
        ) as processor:
            with pytest.raises(hqueue.QueueNotFoundError):
                await processor.run(idle_ms_max=0)

    asyncio.run(run())
