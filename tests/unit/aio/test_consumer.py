"""A consumer in an event loop: tasks that are cancelled, several tasks, callbacks and ends."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import hqueue
import hqueue.aio
from hqueue import ClosedError, ConsumedMessage, InvalidInputError, Message, PartitionKey
from hqueue.groups.member import GroupMember
from hqueue.runtime.loop import background
from tests.support.backends import MemoryBackend
from tests.support.cancelling import each_await
from tests.support.consuming import take, values
from tests.support.looped import LoopThread
from tests.support.memory.metadata import MemoryServer
from tests.support.waiting import wait_for

PARTITIONS = 2
WAIT_MS = 60_000

Cut = Callable[..., Any]


@pytest.fixture
def server() -> MemoryServer:
    return MemoryServer()


@pytest.fixture
def client(server: MemoryServer) -> Iterator[hqueue.Client]:
    with MemoryBackend(coordination=server).connect() as client:
        client.create_queue("q", partitions=PARTITIONS)
        yield client


def put(client: hqueue.Client, count: int, *, first: int = 0, partition: int | None = None) -> None:
    queue = client.queue("q")
    for number in range(first, first + count):
        at = number % PARTITIONS if partition is None else partition
        queue.put(Message("t", b"%d" % number), partition=at)


def consumer_of(client: hqueue.Client, *queues: str, **options: Any) -> hqueue.aio.Consumer:
    given: dict[str, Any] = {"group": "g", **options}
    return hqueue.aio.Consumer(queues or None, client=hqueue.aio.Client(client), **given)


def numbers(messages: list[ConsumedMessage]) -> list[int]:
    return [int(message.value) for message in messages]


async def taken(consumer: hqueue.aio.Consumer, count: int) -> list[ConsumedMessage]:
    messages: list[ConsumedMessage] = []
    while len(messages) < count:
        messages += await consumer.poll(WAIT_MS, messages_max=count - len(messages))
    return messages


async def owns(consumer: hqueue.aio.Consumer, count: int) -> None:
    """Poll until it has so many partitions; nothing is there to be handed out."""
    while len(consumer.assignment()) != count:
        assert not await consumer.poll(10)


def run(work: Callable[[], Any]) -> Any:
    """Run a coroutine; its errors, and those that nobody learned, fail the test."""
    unseen: list[dict[str, Any]] = []

    async def watched() -> Any:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: unseen.append(context))
        result = await work()
        for _ in range(3):
            await asyncio.sleep(0)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, "a task is left behind"
        return result

    try:
        return asyncio.run(watched(), debug=False)
    finally:
        gc.collect()
        assert not unseen


# Cancelled tasks.


@pytest.mark.usefixtures("each_loop")
@pytest.mark.parametrize("way", ["poll", "messages", "arrow_batches", "arrow_batches and poll"])
def test_a_task_that_is_cancelled_at_any_await_loses_no_message(
    client: hqueue.Client, way: str
) -> None:
    client.queue("q").put([Message("t", b"%d" % number) for number in range(500)], partition=0)
    put(client, 40, first=500)
    got: list[int] = []

    ways = itertools.cycle(way.split(" and "))

    async def take(consumer: hqueue.aio.Consumer) -> None:
        way = next(ways)
        if way == "poll":
            got.extend(numbers(await consumer.poll(20, messages_max=7)))
        elif way == "messages":
            async for message in consumer.messages(idle_ms_max=20):
                got.extend(numbers([message]))
                return
        else:
            async for columns in consumer.arrow_batches(idle_ms_max=20):
                got.extend(int(value) for value in columns["value"].to_pylist())
                return

    async def consume() -> None:
        async with consumer_of(client, "q", auto_commit_interval_ms=1) as consumer:

            async def use(cut: Cut) -> None:
                await cut(take(consumer))

            cuts = 0
            while len(got) < 540:
                cuts += await each_await(use)
            assert cuts > 3

    run(consume)
    assert sorted(got) == list(range(540))


def test_a_commit_that_is_cancelled_at_any_await_does_not_come_after_a_later_one(
    client: hqueue.Client,
) -> None:
    put(client, 200, partition=0)

    async def consume() -> None:
        async with consumer_of(client, "q", auto_commit=False) as consumer:

            async def use(cut: Cut) -> None:
                first, second = await taken(consumer, 2)
                await cut(consumer.commit(second))
                await consumer.commit(first)
                assert await consumer.committed() == {PartitionKey("q", 0): first.id.next()}

            assert await each_await(use)

    run(consume)


def test_what_is_cancelled_while_it_subscribes_or_closes_leaves_no_member_behind(
    client: hqueue.Client, server: MemoryServer
) -> None:
    sessions = len(server.sessions)

    async def consume() -> None:
        async def subscribe(cut: Cut) -> None:
            consumer = consumer_of(client)
            await cut(consumer.subscribe("q"))
            await consumer.close()

        async def close(cut: Cut) -> None:
            consumer = consumer_of(client, "q")
            await owns(consumer, PARTITIONS)
            await cut(consumer.close())
            await consumer.close()
            with pytest.raises(ClosedError):
                await consumer.poll()

        for use in (subscribe, close):
            assert await each_await(use) > 1
            assert len(server.sessions) == sessions

    run(consume)
    assert not client.describe_group("g").members


def test_what_a_cancelled_close_has_not_committed_comes_again(client: hqueue.Client) -> None:
    put(client, 1_000, partition=0)

    async def consume() -> None:
        async def use(cut: Cut) -> None:
            consumer = consumer_of(client, "q")
            (first,) = await taken(consumer, 1)
            await cut(consumer.close())
            await consumer.close()
            async with consumer_of(client, "q", auto_commit=False) as other:
                (following,) = await taken(other, 1)
                assert int(following.value) - int(first.value) in (0, 1)

        assert await each_await(use) > 1

    run(consume)


@pytest.mark.parametrize("cut_off", ["poll", "close"])
def test_a_rebalance_that_is_cancelled_at_any_await_is_done_by_the_next_call(
    client: hqueue.Client, cut_off: str
) -> None:
    put(client, 400)
    events: list[tuple[str, PartitionKey]] = []

    def noted(what: str) -> Callable[[list[PartitionKey]], Any]:
        async def note(keys: list[PartitionKey]) -> None:
            events.extend((what, key) for key in keys)
            await asyncio.sleep(0)

        return note

    async def consume() -> None:
        async def use(cut: Cut) -> None:
            first = consumer_of(client)
            names = "on_assigned", "on_revoked", "on_lost"
            await first.subscribe("q", **{name: noted(name) for name in names})  # type: ignore[arg-type]
            while len(first.assignment()) != PARTITIONS:
                await first.poll(10, messages_max=1)
            async with consumer_of(client, "q") as second:
                holder = first._consumption.membership.holder
                assert isinstance(holder, GroupMember)
                await second.poll(1, messages_max=1)
                while not holder.pending.revoked:
                    await asyncio.sleep(0.001)
                await cut(first.poll(5, 1) if cut_off == "poll" else first.close())
                if cut_off == "close":
                    await first.close()
                while len(second.assignment()) != (2 if cut_off == "close" else 1):
                    if cut_off == "poll":
                        await first.poll(5, messages_max=1)
                    await second.poll(5, messages_max=1)
                await first.close(commit=False)

        assert await each_await(use) >= 2

    run(consume)
    assigned = sorted(key for what, key in events if what == "on_assigned")
    ended = sorted(key for what, key in events if what != "on_assigned")
    if cut_off == "poll":
        assert ended == assigned, "the callback was called for each that was given up"
    else:
        assert 0 < len(ended) < len(assigned), "a close that is cancelled gives up nevertheless"


# Several tasks.


def test_a_second_task_is_refused_while_another_one_polls_but_it_may_commit(
    client: hqueue.Client,
) -> None:
    put(client, 4, partition=0)

    async def consume() -> None:
        async with consumer_of(client, "q", auto_commit=False) as consumer:
            messages = await taken(consumer, 4)
            polling = asyncio.ensure_future(consumer.poll(WAIT_MS))
            await asyncio.sleep(0.01)
            refused = [
                consumer.poll(), consumer.close(), consumer.lag(), consumer.seek_to_end(),
                consumer.subscribe("q"), anext(aiter(consumer)),
            ]  # fmt: skip
            for call in refused:
                with pytest.raises(InvalidInputError, match="another task"):
                    await call
            for method in (consumer.pause, consumer.resume):
                with pytest.raises(InvalidInputError, match="another task"):
                    method()
            await asyncio.gather(*(consumer.commit(message) for message in messages))
            consumer.request_stop()
            assert await polling == []
            assert await consumer.committed() == {PartitionKey("q", 0): messages[-1].id.next()}

    run(consume)


def test_a_consumer_of_another_loop_is_refused(client: hqueue.Client) -> None:
    async def use(consumer: hqueue.aio.Consumer) -> None:
        for call in (consumer.poll(), consumer.commit(), consumer.close()):
            with pytest.raises(InvalidInputError, match="belongs to the event loop"):
                await call

    async def make() -> hqueue.aio.Consumer:
        return await consumer_of(client, "q").__aenter__()

    with contextlib.closing(LoopThread()) as thread:
        consumer = thread.run(make())
        asyncio.run(use(consumer))
        thread.run(consumer.close())
    with pytest.raises(InvalidInputError, match="no event loop runs"):
        consumer_of(client)


def test_a_loop_over_messages_and_one_that_polls_let_other_tasks_have_turns(
    client: hqueue.Client,
) -> None:
    client.queue("q").put([Message("t", b"0")] * 5_000, partition=0)

    async def consume() -> None:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async with consumer_of(client, "q") as consumer:
            await taken(consumer, 1)
            beside = asyncio.ensure_future(other())
            count = 0
            async for _ in consumer:
                count += 1
                if count == 2_999:
                    break
            assert turns >= 2
            turns = 0
            for _ in range(4):
                assert len(await consumer.poll(WAIT_MS, messages_max=400)) == 400
            assert turns >= 1
            await taken(consumer, 400)
            for _ in range(3):
                turns = 0
                assert await consumer.poll() == []
                assert turns
            beside.cancel()
            await asyncio.sleep(0)

    run(consume)


# Callbacks.


def test_callbacks_may_be_coroutine_functions_that_call_the_consumer(client: hqueue.Client) -> None:
    put(client, 10, partition=0)
    key = PartitionKey("q", 0)
    called: list[str] = []

    async def consume() -> None:
        consumer = consumer_of(client, auto_commit=False)

        async def assigned(keys: list[PartitionKey]) -> None:
            called.append("assigned")
            await consumer.seek_to_beginning(key)
            # A task of its own, as `wait_for` makes one in older Pythons.
            position = await asyncio.ensure_future(consumer.position(key))
            await consumer.seek(key, position)
            consumer.pause(PartitionKey("q", 1))
            with pytest.raises(InvalidInputError, match="can't close its consumer, poll it"):
                await consumer.poll()

        async def revoked(keys: list[PartitionKey]) -> None:
            called.append("revoked")
            await consumer.commit()
            with pytest.raises(InvalidInputError, match="can't close its consumer"):
                await consumer.close()

        await consumer.subscribe("q", on_assigned=assigned, on_revoked=revoked)
        await taken(consumer, 10)
        assert consumer.paused() == {PartitionKey("q", 1)}
        with pytest.raises(InvalidInputError, match="must be a function"):
            await consumer.subscribe("q", on_lost=5)  # type: ignore[arg-type]
        await consumer.close()

    run(consume)
    assert called == ["assigned", "revoked"]
    with hqueue.Consumer(group="g", client=client) as other:
        assert other.committed([key])[key] == client.queue("q").offsets([0])[0].end


def test_an_error_of_a_callback_comes_out_of_the_poll_and_nothing_is_lost(
    client: hqueue.Client,
) -> None:
    put(client, 10)

    async def consume() -> None:
        async def fail(keys: list[PartitionKey]) -> None:
            raise ValueError("of the program")

        async with consumer_of(client, auto_commit=False) as consumer:
            await consumer.subscribe("q", on_assigned=fail)
            with pytest.raises(ValueError, match="of the program"):
                await taken(consumer, 1)
            assert sorted(numbers(await taken(consumer, 10))) == list(range(10))

    run(consume)


# Ends.


def test_a_block_that_ended_with_an_error_or_was_cancelled_commits_nothing(
    client: hqueue.Client,
) -> None:
    put(client, 2, partition=0)

    async def fail(error: BaseException) -> None:
        async with consumer_of(client, "q") as consumer:
            await taken(consumer, 1)
            raise error

    for error in (ValueError("of the program"), asyncio.CancelledError()):
        with pytest.raises(type(error)):
            run(lambda error=error: fail(error))
    with hqueue.Consumer("q", group="g", client=client) as other:
        assert values(take(2, other)) == [0, 1]


def test_a_queue_that_is_missing_is_an_error_of_the_first_call_and_nothing_stays(
    client: hqueue.Client, server: MemoryServer
) -> None:
    sessions = len(server.sessions)

    async def consume() -> None:
        with pytest.raises(hqueue.QueueNotFoundError):
            async with consumer_of(client, "none"):
                pass
        consumer = consumer_of(client, "none")
        with pytest.raises(hqueue.QueueNotFoundError):
            await consumer.poll()
        await consumer.close()
        await consumer.close()

    run(consume)
    assert len(server.sessions) == sessions


def test_one_that_is_forgotten_leaves_its_group(
    client: hqueue.Client, server: MemoryServer
) -> None:
    sessions = len(server.sessions)

    async def consume() -> None:
        consumer = consumer_of(client, "q")
        await owns(consumer, PARTITIONS)
        del consumer
        gc.collect()

    with pytest.warns(ResourceWarning, match="an asynchronous consumer was never closed"):
        asyncio.run(consume())
    wait_for(lambda: len(server.sessions) == sessions, "its session has ended")
    wait_for(lambda: not client.describe_group("g").members, "it has left")


def test_one_whose_loop_has_ended_is_closed_in_another(
    client: hqueue.Client, server: MemoryServer
) -> None:
    sessions = len(server.sessions)

    async def consume() -> hqueue.aio.Consumer:
        consumer = consumer_of(client, "q")
        await owns(consumer, PARTITIONS)
        return consumer

    consumer = asyncio.run(consume())

    async def close() -> None:
        await consumer.close()

    run(close)
    assert len(server.sessions) == sessions
    assert not client.describe_group("g").members


@pytest.mark.usefixtures("each_loop")
def test_loops_follow_one_another_and_run_beside_one_another(client: hqueue.Client) -> None:
    put(client, 40)
    got: list[int] = []

    async def consume() -> None:
        async with consumer_of(client, "q") as consumer:
            got.extend(numbers(await taken(consumer, 10)))

    for _ in range(2):
        run(consume)
    beside = [threading.Thread(target=run, args=(consume,)) for _ in range(2)]
    for each in beside:
        each.start()
    for each in beside:
        each.join()
    assert set(got) == set(range(40)) or len(got) == 40
    assert background() is not None
