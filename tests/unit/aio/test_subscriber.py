"""A subscriber in an event loop: tasks that are cancelled, ends, and those who forget it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import hqueue
import hqueue.aio
from hqueue import InvalidInputError, MessageID, ReceivedMessage, Status, Subscription
from hqueue.metadata import DeliveryOptions
from tests.support.backends import MemoryBackend
from tests.support.delivering import Delivering
from tests.support.waiting import wait_for

MESSAGE = ReceivedMessage("t", b"v", MessageID(1), 0)


@pytest.fixture
def client() -> Iterator[hqueue.Client]:
    with MemoryBackend().connect() as client:
        client.create_queue("q", partitions=2)
        yield client


async def nothing(messages: Sequence[ReceivedMessage]) -> None:
    """A listener."""


async def made(
    client: hqueue.Client, listener: Any = nothing, timeout_ms: int = 5_000, **options: Any
) -> hqueue.aio.Subscriber:
    queue = await hqueue.aio.Client(client).queue("q")
    subscription = Subscription("s", delivery=DeliveryOptions(timeout_ms=timeout_ms))
    return queue.subscriber(subscription, listener, host="127.0.0.1", **options)


def deliver(subscriber: hqueue.aio.Subscriber, message: ReceivedMessage = MESSAGE) -> int:
    with Delivering(subscriber.address) as worker:
        return worker.deliver([message])


def is_present(client: hqueue.Client) -> bool:
    return any(client.coordination.subscriptions.list("q").values())


async def until(is_done: Any) -> None:
    async def look() -> None:
        while not is_done():
            await asyncio.sleep(0.005)

    await asyncio.wait_for(look(), 30)


def test_a_call_is_answered_when_the_coroutine_has_ended(client: hqueue.Client) -> None:
    async def run() -> None:
        go_on = asyncio.Event()

        async def listener(messages: Sequence[ReceivedMessage]) -> Status:
            await go_on.wait()
            return Status.DEAD_LETTER

        async with await made(client, listener) as subscriber:
            call = asyncio.ensure_future(asyncio.to_thread(deliver, subscriber))
            await asyncio.sleep(0.1)
            assert not call.done()
            go_on.set()
            assert await call == Status.DEAD_LETTER

    asyncio.run(run())
    assert not is_present(client)


@pytest.mark.usefixtures("each_loop")
def test_calls_of_a_partition_come_one_after_another_and_others_beside_them(
    client: hqueue.Client,
) -> None:
    async def run() -> None:
        under_way: list[int] = []
        seen: list[list[int]] = []

        async def listener(messages: Sequence[ReceivedMessage]) -> None:
            under_way.append(messages[0].partition)
            seen.append(sorted(under_way))
            await asyncio.sleep(0.05)
            under_way.remove(messages[0].partition)

        other = ReceivedMessage("t", b"v", MessageID(1), 1)
        async with await made(client, listener, calls_max=4) as subscriber:
            calls = [asyncio.to_thread(deliver, subscriber, m) for m in [MESSAGE, other] * 3]
            assert await asyncio.gather(*calls) == [Status.DONE] * 6
        assert [0, 1] in seen
        assert not any(each in ([0, 0], [1, 1]) for each in seen)

    asyncio.run(run())


def test_a_start_that_is_cancelled_leaves_nothing(client: hqueue.Client) -> None:
    async def run() -> None:
        for turns in range(12):
            subscriber = await made(client)
            starting = asyncio.ensure_future(subscriber.start())
            for _ in range(turns):
                await asyncio.sleep(0.0005 * turns)
            starting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await starting
                await subscriber.stop()
            await until(lambda: len(asyncio.all_tasks()) == 2 and not is_present(client))

    asyncio.run(run())
    assert not is_present(client)


def test_a_stop_that_is_cancelled_goes_on_and_can_be_waited_for(client: hqueue.Client) -> None:
    async def run() -> None:
        go_on = asyncio.Event()

        async def listener(messages: Sequence[ReceivedMessage]) -> None:
            await go_on.wait()

        subscriber = await made(client, listener)
        await subscriber.start()
        call = asyncio.ensure_future(asyncio.to_thread(deliver, subscriber))
        await asyncio.sleep(0.05)
        stopping = asyncio.ensure_future(subscriber.stop())
        await asyncio.sleep(0.05)
        stopping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopping
        go_on.set()
        assert await subscriber.stop()
        assert await call == Status.DONE
        await subscriber.wait()

    asyncio.run(run())
    assert not is_present(client)


def test_a_listener_that_takes_too_long_is_cancelled(client: hqueue.Client) -> None:
    async def run() -> None:
        cancelled: list[bool] = []

        async def listener(messages: Sequence[ReceivedMessage]) -> None:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.append(True)
                raise

        async with await made(client, listener, timeout_ms=200) as subscriber:
            assert await asyncio.to_thread(deliver, subscriber) == Status.RETRY
            assert cancelled == [True]

    asyncio.run(run())


def test_a_listener_cannot_stop_its_subscriber_but_ask_for_that(client: hqueue.Client) -> None:
    async def run() -> None:
        refused: list[Exception] = []

        async def listener(messages: Sequence[ReceivedMessage]) -> None:
            try:
                await subscriber.stop()
            except InvalidInputError as exc:
                refused.append(exc)
            subscriber.request_stop()

        subscriber = await made(client, listener)
        with pytest.raises(InvalidInputError, match="not started"):
            await subscriber.wait()
        running = asyncio.ensure_future(subscriber.run())
        await until(lambda: is_present(client))
        assert await asyncio.to_thread(deliver, subscriber) == Status.DONE
        await running
        assert refused

    asyncio.run(run())
    assert not is_present(client)


@pytest.mark.usefixtures("each_loop")
def test_sigterm_ends_a_run_in_order(client: hqueue.Client) -> None:
    async def run() -> None:
        running = asyncio.ensure_future((await made(client)).run())
        await until(lambda: is_present(client))
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(running, 30)

    asyncio.run(run())
    assert not is_present(client)


def test_a_forgotten_subscriber_is_stopped_with_a_warning(client: hqueue.Client) -> None:
    started: list[hqueue.aio.Subscriber] = []

    def forget() -> None:
        started.clear()
        gc.collect()

    async def run(*, ends: bool) -> None:
        started.append(await made(client))
        await started[0].start()
        if not ends:
            with pytest.warns(ResourceWarning, match="a subscriber was never closed"):
                forget()
            await until(lambda: not is_present(client))

    asyncio.run(run(ends=False))
    asyncio.run(run(ends=True))
    with pytest.warns(ResourceWarning, match="a subscriber was never closed"):
        forget()
    wait_for(lambda: not is_present(client), "what was registered is gone")


def test_it_is_made_in_the_loop_that_uses_it_and_used_there_alone(client: hqueue.Client) -> None:
    queue = asyncio.run(hqueue.aio.Client(client).queue("q"))
    with pytest.raises(InvalidInputError, match="no event loop runs"):
        queue.subscriber(Subscription("s"), nothing)
    subscriber = asyncio.run(made(client))
    with pytest.raises(InvalidInputError, match="belongs to the event loop"):
        asyncio.run(subscriber.start())
