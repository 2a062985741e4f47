"""A producer in an event loop: failures, ends and those who forget it."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator

import pytest

import hqueue
import hqueue.aio
from hqueue import ClosedError, Message, Outcome, StoreUnavailableError
from tests.support.backends import MemoryBackend
from tests.support.proxy import Fate


@pytest.fixture
def client() -> Iterator[hqueue.Client]:
    with MemoryBackend().connect() as client:
        client.create_queue("q", partitions=1)
        yield client


def values_of(client: hqueue.Client) -> list[bytes]:
    return [message.value for message in client.queue("q").scan()]


async def opened(client: hqueue.Client) -> hqueue.aio.Queue:
    return await hqueue.aio.Client(client).queue("q")


def test_a_batch_that_fails_fails_its_messages_and_later_ones_are_written() -> None:
    backend = MemoryBackend()
    backend.connect().create_queue("q", partitions=1)
    with backend.lossy() as way, way.connect(operation_timeout_ms=300) as client:

        async def run() -> None:
            queue = await opened(client)
            async with queue.producer(linger_ms=0) as producer:
                way.set_fate(lambda _: Fate.LOSE_REQUEST)
                lost = [await producer.send(Message("t", b"lost")) for _ in range(2)]
                for each in lost:
                    with pytest.raises(StoreUnavailableError):
                        await each
                assert isinstance(lost[0].exception(), StoreUnavailableError)
                way.set_fate(lambda _: Fate.PASS)
                await (await producer.send(Message("t", b"later")))

        asyncio.run(run())
        assert b"later" in values_of(client)


def test_a_delivery_that_is_not_settled_says_so(client: hqueue.Client) -> None:
    async def run() -> None:
        producer = (await opened(client)).producer(linger_ms=60_000)
        sent = await producer.send(Message("t", b"a"))
        for ask in (sent.result, sent.exception):
            with pytest.raises(hqueue.HQueueError) as raised:
                ask()
            assert raised.value.outcome is Outcome.UNKNOWN
        waiting = asyncio.ensure_future(asyncio.wait_for(sent, 0.01))
        with pytest.raises(asyncio.TimeoutError):
            await waiting
        await producer.close()
        await sent

    asyncio.run(run())
    assert values_of(client) == [b"a"]


def test_a_close_that_is_cancelled_is_called_again(client: hqueue.Client) -> None:
    async def run() -> None:
        producer = (await opened(client)).producer()
        sent = await producer.send(Message("t", b"a"))
        closing = asyncio.ensure_future(producer.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        with pytest.raises(ClosedError):
            await producer.send(Message("t", b"b"))
        await producer.close()
        assert sent.done()

    asyncio.run(run())
    assert values_of(client) == [b"a"]


def test_what_a_forgotten_producer_holds_is_written(client: hqueue.Client) -> None:
    async def run() -> None:
        producer = (await opened(client)).producer(linger_ms=60_000)
        sent = await producer.send(Message("t", b"a"))
        del producer
        gc.collect()
        await sent

    with pytest.warns(ResourceWarning, match="asynchronous producer"):
        asyncio.run(run())
    assert values_of(client) == [b"a"]


def test_a_loop_that_ends_while_a_batch_is_written_leaves_its_outcome_unknown() -> None:
    backend = MemoryBackend()
    backend.connect().create_queue("q", partitions=1)
    with backend.lossy() as way, way.connect(operation_timeout_ms=60_000) as client:

        async def run() -> hqueue.aio.Delivery[hqueue.MessageID]:
            producer = (await opened(client)).producer(linger_ms=0)
            way.set_fate(lambda _: Fate.LOSE_REQUEST)
            sent = await producer.send(Message("t", b"a"))
            await asyncio.sleep(0.05)
            return sent

        sent = asyncio.run(run())
        error = sent.exception()
        assert isinstance(error, hqueue.HQueueError)
        assert error.outcome is Outcome.UNKNOWN


def test_loops_follow_one_another_and_run_beside_one_another(client: hqueue.Client) -> None:
    async def run(value: bytes) -> None:
        queue = await opened(client)
        async with queue.producer() as producer:
            for _ in range(20):
                await (await producer.send(Message("t", value)))
        async with queue.scan() as messages:
            assert value in [message.value async for message in messages]

    for number in range(3):
        asyncio.run(run(b"%d" % number))
    beside = [
        threading.Thread(target=lambda n=n: asyncio.run(run(b"%d" % n)))  # type: ignore[misc]
        for n in range(3, 6)
    ]
    for each in beside:
        each.start()
    for each in beside:
        each.join()
    assert len(values_of(client)) == 6 * 20
