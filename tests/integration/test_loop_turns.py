"""How long the library keeps an event loop from other tasks while it writes and reads the largest
batches.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pytest

import hqueue
import hqueue.aio
import hqueue.consume.arrow  # To import it takes longer than any turn, once.
from hqueue import Message, ReceivedMessage, local
from tests.support.backends import MemoryBackend
from tests.support.loop_watch import longest_turn_ms
from tests.support.waiting import wait_for

from .hub_processes import HubProcess, hub_environment

TURN_MS_MAX = 10
TRIES = 20
"""Another process that uses the memory makes a turn longer, but not each time. A test that passes
tries once or twice."""

MESSAGES: dict[str, Callable[[], list[Message]]] = {
    "many small": lambda: [Message("t", b"%06d" % n * 18) for n in range(65_536)],
    "many topics": lambda: [
        Message(f"t{n % 50}", b"%06d" % n * 12, key=b"%d" % n) for n in range(65_536)
    ],
    "many headers": lambda: [
        Message("t", b"%d" % n, headers=tuple((f"h{i}", b"%d" % n) for i in range(8)))
        for n in range(32_768)
    ],
    "few large": lambda: [Message("t", b"%07d," % n * 125_000) for n in range(8)],
    "noise": lambda: [Message("t", random.Random(n).randbytes(1_000_000)) for n in range(8)],
}

MANY_BATCHES = 2_000


async def check_turns(name: str, step: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """Do something until the loop is not kept from other tasks for long, once."""
    turns_ms = [await longest_turn_ms(step)]
    while turns_ms[-1] > TURN_MS_MAX and len(turns_ms) < TRIES:
        turns_ms.append(await longest_turn_ms(step))
    assert turns_ms[-1] <= TURN_MS_MAX, (name, turns_ms)


@pytest.fixture(params=["memory", pytest.param("native", marks=pytest.mark.servers)])
def connect(request: pytest.FixtureRequest) -> Callable[..., hqueue.Client]:
    """Connects to a store that has calls for event loops."""
    if request.param == "memory":
        return MemoryBackend().connect
    server: local.LocalServer = request.getfixturevalue("server")
    return lambda **settings: hqueue.connect(
        server.settings(hbase="native", gateways=(), **settings)
    )


@pytest.fixture
def watch(
    connect: Callable[..., hqueue.Client], queue_name: str, request: pytest.FixtureRequest
) -> Iterator[Callable[..., None]]:
    """Runs steps on a queue of an event loop, one after the other, and watches each."""
    compression_type = getattr(request, "param", "none")
    with connect(compression_type=compression_type) as client:
        blocking = client.create_queue(queue_name, partitions=2)

        async def watched(steps: dict[str, Step]) -> None:
            queue = await hqueue.aio.Client(client).queue(queue_name)
            for name, step in steps.items():
                await check_turns(name, partial(step, queue))

        yield lambda steps: asyncio.run(watched(steps))
        client.disable_queue(blocking.name)
        client.delete_queue(blocking.name)


Step = Callable[[hqueue.aio.Queue], Coroutine[Any, Any, None]]


async def scan(queue: hqueue.aio.Queue, **how: Any) -> None:
    async with queue.scan(**how) as scanner:
        async for _ in scanner:
            pass


async def scan_columns(queue: hqueue.aio.Queue, **how: Any) -> None:
    async with queue.scan(**how) as scanner:
        async for _ in scanner.arrow_batches():
            pass


READ: dict[str, Step] = {
    "a scan": scan,
    "a scan that is left": lambda queue: scan(queue, limit=1_000),
    "a sorted scan": lambda queue: scan(queue, merge_sorted=True),
    "a follower": lambda queue: scan(queue, follow=True, idle_ms_max=50),
    "record batches": scan_columns,
    "sorted record batches": lambda queue: scan_columns(queue, merge_sorted=True),
}


@pytest.mark.parametrize(
    ("kind", "watch"),
    [
        ("many small", "none"),
        ("many small", "zstd"),
        ("many topics", "none"),
        ("many headers", "none"),
        ("few large", "none"),
        ("few large", "zstd"),
        ("noise", "zstd"),
    ],
    indirect=["watch"],
)
def test_a_loop_goes_on_while_large_batches_are_written_and_read(
    watch: Callable[[dict[str, Step]], None], kind: str
) -> None:
    messages = MESSAGES[kind]()

    async def put(queue: hqueue.aio.Queue) -> None:
        await queue.put(messages, partition=0)

    async def put_iterator(queue: hqueue.aio.Queue) -> None:
        await queue.put(iter(messages), partition=1)

    async def send(queue: hqueue.aio.Queue) -> None:
        async with queue.producer() as producer:
            for message in messages:
                await producer.send(message, partition=0)

    async def send_batch(queue: hqueue.aio.Queue) -> None:
        async with queue.producer() as producer:
            await producer.send_batch(messages, partition=1)

    async def put_columns(queue: hqueue.aio.Queue) -> None:
        async with queue.scan(partition=0, limit=len(messages)) as scanner:
            columns = await anext(scanner.arrow_batches())
        await queue.put(columns, partition=1)

    watch(
        {
            "a put": put,
            "a put of an iterator": put_iterator,
            "a producer": send,
            "a batch of a producer": send_batch,
            "a put of a record batch": put_columns,
            **READ,
        }
    )


def test_a_loop_goes_on_while_many_small_batches_are_read(
    watch: Callable[[dict[str, Step]], None],
) -> None:
    async def put(queue: hqueue.aio.Queue) -> None:
        for _ in range(0, MANY_BATCHES, 100):
            await asyncio.gather(*(queue.put(Message("t", b"a")) for _ in range(100)))

    watch({"puts": put, **READ})


async def poll(consumer: hqueue.aio.Consumer, count: int) -> None:
    while count > 0:
        count -= len(await consumer.poll(1_000))


async def iterate(consumer: hqueue.aio.Consumer, count: int) -> None:
    async for _ in consumer:
        count -= 1
        if not count:
            return


async def take_columns(consumer: hqueue.aio.Consumer, count: int) -> None:
    async for columns in consumer.arrow_batches():
        count -= columns.num_rows
        if not count:
            return


CONSUMED: dict[str, Callable[[hqueue.aio.Consumer, int], Awaitable[None]]] = {
    "polls": poll,
    "an iteration": iterate,
    "record batches": take_columns,
}


@pytest.mark.parametrize("kind", ["many topics", "many headers", "few large"])
def test_a_loop_goes_on_while_a_member_of_a_group_reads_large_batches(
    connect: Callable[..., hqueue.Client], queue_name: str, kind: str
) -> None:
    messages = MESSAGES[kind]()
    groups = itertools.count()
    with connect() as client:
        queue = client.create_queue(queue_name, partitions=2)
        for partition in range(2):
            queue.put(messages, partition=partition)

        async def consume(take: Callable[[hqueue.aio.Consumer, int], Awaitable[None]]) -> None:
            group, asynchronous = f"{queue_name}-{next(groups)}", hqueue.aio.Client(client)
            async with hqueue.aio.Consumer(
                queue_name, group=group, client=asynchronous, auto_commit=False
            ) as consumer:
                await take(consumer, 2 * len(messages))
                await consumer.commit()

        async def run() -> None:
            for name, take in CONSUMED.items():
                await check_turns(name, partial(consume, take))

        asyncio.run(run())
        client.delete_queue(queue_name, force=True)


@pytest.fixture
def hub(
    server: local.LocalServer, server_environment: Mapping[str, str], queue_name: str
) -> Iterator[str]:
    """The address of a hub of a queue, in a process of its own: the test's process does nothing
    else.
    """
    with hqueue.connect(server.settings()) as client:
        client.create_queue(queue_name, partitions=2)
        environment = hub_environment(server, server_environment, "zookeeper")
        with HubProcess(queue_name, environment) as process:
            wait_for(lambda: process.page("/health"), "the hub is ready")
            yield process.address
        client.delete_queue(queue_name, force=True)


@pytest.mark.parametrize("kind", ["many small", "many headers", "few large"])
def test_a_loop_goes_on_while_many_and_large_messages_are_published_and_heard(
    hub: str, queue_name: str, kind: str
) -> None:
    messages = MESSAGES[kind]()
    half = messages[: len(messages) // 2]
    heard = 0

    async def hear(given: Sequence[ReceivedMessage]) -> None:
        nonlocal heard
        heard += len(given)

    async def run() -> None:
        async with hqueue.aio.connect_hubs(hub, queue=queue_name) as client:
            topic = client.topic("t")

            async def publish() -> None:
                await topic.publish_many(half)
                await topic.publish_many(messages[len(half) :])

            async def listen() -> None:
                nonlocal heard
                heard = 0
                async with await topic.subscribe("s", hear):
                    await topic.publish_many(half)
                    while heard < len(half):
                        await asyncio.sleep(0.01)

            async def iterate() -> None:
                left = len(half)
                async with contextlib.aclosing(topic.messages("s")) as given:
                    publishing = asyncio.ensure_future(topic.publish_many(half))
                    async for _ in given:
                        left -= 1
                        if not left:
                            break
                    await publishing

            await topic.publish(b"the first one, which the hub begins with")
            await check_turns("publishing", publish)
            async with await topic.subscribe("s", hear):  # From here on.
                pass
            await check_turns("listening", listen)
            await check_turns("iterating", iterate)

    asyncio.run(run())
