"""Topics of hubs in an event loop, over all back ends: tasks side by side, and moves meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence

import pytest

import hqueue
import hqueue.aio
from hqueue import HubUnavailableError, ReceivedMessage
from tests.support.backends import Backend
from tests.support.hubs import HubThread

WAIT_S = 240.0
EACH = 60


@pytest.fixture
def hubs(
    backend: Backend, make_queue: Callable[..., hqueue.Queue]
) -> Iterator[tuple[hqueue.Queue, list[HubThread]]]:
    queue = make_queue(2)
    with contextlib.ExitStack() as stack:
        yield (
            queue,
            [
                stack.enter_context(
                    HubThread(
                        stack.enter_context(backend.connect()),
                        queue.name,
                        balance_ms=3_600_000,
                        api_port=0,
                    )
                )
                for _ in range(2)
            ],
        )


async def numbers_of(messages: hqueue.aio.HubTopic, name: str, count: int) -> list[bytes]:
    """The first messages that an iterator gives, each once."""
    taken: dict[bytes, None] = {}
    async with contextlib.aclosing(messages.messages(name)) as given:
        async for message in given:
            taken[message.value] = None
            if len(taken) == count:
                break
    return list(taken)


def test_tasks_publish_and_subscribe_side_by_side_while_the_topic_moves(
    hubs: tuple[hqueue.Queue, list[HubThread]],
) -> None:
    queue, running = hubs
    heard: dict[bytes, None] = {}

    async def listen(messages: Sequence[ReceivedMessage]) -> None:
        await asyncio.sleep(0.001)
        heard.update(dict.fromkeys(message.value for message in messages))

    async def run() -> tuple[list[list[bytes]], list[bytes]]:
        addresses = [hub.address for hub in running]
        async with hqueue.aio.connect_hubs(addresses, queue=queue.name) as client:
            topic = client.topic("t")
            published: list[list[bytes]] = [[], []]

            async def publish(number: int) -> None:
                for each in range(EACH):
                    value = b"%d-%d" % (number, each)
                    await topic.publish(value)
                    published[number].append(value)

            async def move() -> None:
                for turn in range(6):
                    await topic.move(addresses[turn % 2])
                    await asyncio.sleep(0.05)

            async with await topic.subscribe("heard", listen):
                taking = asyncio.ensure_future(numbers_of(topic, "taken", 2 * EACH))
                while len(client.subscriptions) < 2 or client.subscriptions[1].cursor is None:
                    await asyncio.sleep(0.01)
                await asyncio.gather(publish(0), publish(1), move())
                taken = await asyncio.wait_for(taking, WAIT_S)
                for _ in range(int(WAIT_S / 0.05)):
                    if len(heard) == 2 * EACH:
                        break
                    await asyncio.sleep(0.05)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return published, taken

    published, taken = asyncio.run(run())
    with queue.scan_topic("t") as scanner:
        stored = [message.value for message in scanner]
    assert sorted(stored) == sorted(published[0] + published[1])
    for number in range(2):
        assert [v for v in stored if v.startswith(b"%d-" % number)] == published[number]
    assert taken == list(heard) == stored


def test_publishes_that_are_cancelled_under_load_are_stored_once_at_most(
    hubs: tuple[hqueue.Queue, list[HubThread]],
) -> None:
    queue, running = hubs

    async def run() -> tuple[set[bytes], set[bytes]]:
        done: set[bytes] = set()
        sent: set[bytes] = set()
        addresses = [hub.address for hub in running]
        async with hqueue.aio.connect_hubs(addresses, queue=queue.name) as client:

            async def publish(task: int) -> None:
                for each in range(EACH):
                    value = b"%d-%d" % (task, each)
                    sent.add(value)
                    with contextlib.suppress(asyncio.TimeoutError, HubUnavailableError):
                        call = client.topic(f"t{task % 3}").publish(value)
                        await asyncio.wait_for(call, 0.001 * (each % 12))
                        done.add(value)

            await asyncio.gather(*map(publish, range(8)))
            last = await client.topic("last").publish(b"last")
            assert last
        return done, sent

    done, sent = asyncio.run(run())
    stored = [message.value for message in queue.scan() if message.topic != "last"]
    assert len(stored) == len(set(stored)), "none is stored twice"
    assert done <= set(stored) <= sent
