"""A producer in an event loop: failures, ends and those who forget it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
from collections.abc import Iterator

import pytest

import hqueue
import hqueue.aio
from hqueue import (
    ClosedError,
    InvalidInputError,
    Message,
    MessageID,
    Outcome,
    StoreUnavailableError,
)
from hqueue.typing import DeliveryCallback
from tests.support.backends import MemoryBackend
from tests.support.looped import LoopThread
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


@pytest.mark.usefixtures("each_loop")
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


def test_what_a_callback_raises_is_logged_and_an_interruption_ends_the_program(
    client: hqueue.Client, caplog: pytest.LogCaptureFixture
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    def failing(*_: object) -> None:
        raise ValueError("of the program")

    async def run(callback: DeliveryCallback) -> None:
        async with (await opened(client)).producer(linger_ms=0) as producer:
            await (await producer.send(Message("t", b"a"), callback=callback))
            await asyncio.sleep(0.01)

    asyncio.run(run(failing))
    assert "a delivery callback failed" in caplog.text
    loop = asyncio.new_event_loop()
    running = loop.create_task(run(interrupted))
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(running)
    loop.run_until_complete(running)
    loop.close()
    assert values_of(client) == [b"a", b"a"]


def test_another_loop_is_refused_and_a_delivery_may_be_awaited_in_any(
    client: hqueue.Client,
) -> None:
    async def send() -> tuple[hqueue.aio.Producer, hqueue.aio.Delivery[MessageID]]:
        producer = (await opened(client)).producer(linger_ms=100)
        return producer, await producer.send(Message("t", b"a"))

    async def use(producer: hqueue.aio.Producer, sent: hqueue.aio.Delivery[MessageID]) -> None:
        for call in (producer.send(Message("t", b"b")), producer.flush(), producer.close()):
            with pytest.raises(InvalidInputError, match="belongs to the event loop"):
                await call
        await sent

    with contextlib.closing(LoopThread()) as thread:
        producer, sent = thread.run(send())
        asyncio.run(use(producer, sent))
        thread.run(producer.close())
    assert values_of(client) == [b"a"]


def test_senders_and_iterators_let_other_tasks_have_turns(client: hqueue.Client) -> None:
    async def run() -> int:
        queue, turns = await opened(client), 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        beside = asyncio.ensure_future(other())
        async with queue.producer(linger_ms=60_000, buffer_bytes_max=2**30) as producer:
            for _ in range(5_000):
                await producer.send(Message("t", b"a"))
            assert turns >= 5
            await queue.put(Message("t", b"b") for _ in range(5_000))
            beside.cancel()
        return turns

    assert asyncio.run(run()) >= 10
