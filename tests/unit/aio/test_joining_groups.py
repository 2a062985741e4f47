"""Consumers that join and leave a group, and subscribers that start and stop, in an event loop, by
sessions with a ZooKeeper: tasks that are cancelled, and loops that end.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

import hqueue
import hqueue.aio
from hqueue import ReceivedMessage, Settings, Subscription
from hqueue.client import Client
from hqueue.groups.assignors import assign_sticky
from hqueue.groups.member import GroupMember
from hqueue.groups.paths import GroupPaths
from hqueue.push.subscriber import reception_of
from hqueue.runtime.clock import SYSTEM_CLOCK
from hqueue.runtime.program_loop import ProgramLoop
from hqueue.zookeeper import ZooKeeperCoordination, ZooKeeperStore
from tests.support.cancelling import Cut, each_await
from tests.support.memory.cluster import MemoryCluster
from tests.support.memory.memory_store import MemoryStore
from tests.support.memory.zookeeper import MemoryZooKeeper
from tests.support.waiting import wait_for

PARTITIONS = 2
MEMBERS = "/hqueue/consumers/g/ids"
OWNERS = "/hqueue/consumers/g/owners/q"

CutOff = Callable[..., Any]


@pytest.fixture
def keeper() -> Iterator[MemoryZooKeeper]:
    with MemoryZooKeeper() as found:
        yield found


@pytest.fixture
def settings(keeper: MemoryZooKeeper) -> Settings:
    return Settings(zookeeper=f"127.0.0.1:{keeper.port}", notify_workers=False)


@pytest.fixture
def client(settings: Settings) -> Iterator[hqueue.Client]:
    store = MemoryStore(MemoryCluster(SYSTEM_CLOCK), settings, SYSTEM_CLOCK)
    with Client(settings, store, lambda loop: ZooKeeperCoordination(settings, loop=loop)) as client:
        client.create_queue("q", partitions=PARTITIONS)
        yield client


@pytest.fixture
def seen(settings: Settings) -> Iterator[Callable[[], list[str]]]:
    """The members and claims that there are now."""
    store = ZooKeeperStore(settings)
    yield lambda: [each for above in (MEMBERS, OWNERS) for each in store.records.keys(above, 1)]
    store.close()


def consumer_of(client: hqueue.Client, **options: Any) -> hqueue.aio.Consumer:
    return hqueue.aio.Consumer(group="g", client=hqueue.aio.Client(client), **options)


async def joined(client: hqueue.Client) -> hqueue.aio.Consumer:
    consumer = consumer_of(client)
    await consumer.subscribe("q")
    while len(consumer.assignment()) != PARTITIONS:
        await consumer.poll(5)
    return consumer


def test_a_join_and_a_leave_that_are_cancelled_at_any_await_leave_nothing(
    client: hqueue.Client, keeper: MemoryZooKeeper, seen: Callable[[], list[str]]
) -> None:
    assert not seen()
    sessions, watches = keeper.sessions, keeper.watches

    async def consume() -> None:
        async def subscribe(cut: CutOff) -> None:
            consumer = consumer_of(client)
            await cut(consumer.subscribe("q"))
            await consumer.close()

        async def unsubscribe(cut: CutOff) -> None:
            consumer = await joined(client)
            await cut(consumer.unsubscribe())
            await consumer.unsubscribe()
            await consumer.subscribe("q")
            await consumer.close()

        async def close(cut: CutOff) -> None:
            consumer = await joined(client)
            await cut(consumer.close())
            await consumer.close()

        for use in (subscribe, unsubscribe, close):
            assert await each_await(use)
            assert keeper.sessions == sessions, "the sessions have ended"
            assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(consume())
    assert not seen()
    assert keeper.watches == watches


@pytest.mark.parametrize(
    "call",
    [
        lambda consumer: consumer.close(),
        lambda consumer: consumer.close(commit=False),
        lambda consumer: consumer.unsubscribe(),
    ],
    ids=["close", "close without commit", "unsubscribe"],
)
def test_a_caller_that_is_cancelled_does_not_wait_for_a_zookeeper_that_is_silent(
    client: hqueue.Client,
    keeper: MemoryZooKeeper,
    seen: Callable[[], list[str]],
    call: Callable[[hqueue.aio.Consumer], Any],
) -> None:
    assert not seen()
    sessions = keeper.sessions

    async def consume() -> None:
        consumer = await joined(client)
        with keeper.silent():
            task = asyncio.create_task(call(consumer))
            await asyncio.wait([task], timeout=0.2)
            assert not task.done()
            task.cancel()
            await asyncio.wait([task], timeout=5)
            assert task.done()
        await consumer.close()

    asyncio.run(consume())
    assert not seen()
    wait_for(lambda: keeper.sessions == sessions, "its session has ended")


@pytest.mark.filterwarnings("ignore:an asynchronous consumer was never closed:ResourceWarning")
def test_a_loop_that_ends_while_a_consumer_joins_or_leaves_leaves_no_member(
    client: hqueue.Client, keeper: MemoryZooKeeper, seen: Callable[[], list[str]]
) -> None:
    assert not seen()
    sessions = keeper.sessions

    async def end(method: str, number: int) -> bool:
        """Begin, and let the loop end at an await; whether it came to that."""
        consumer = consumer_of(client) if method == "subscribe" else await joined(client)
        call = getattr(consumer, method)
        cut = Cut(call("q") if method == "subscribe" else call(), number)
        try:
            await asyncio.wait_for(cut, None)
        except asyncio.CancelledError:
            pass
        return cut.was_cut

    for method in ("subscribe", "close"):
        number = 0
        while asyncio.run(end(method, number)):
            number += 1
        assert number >= 2
        gc.collect()
        wait_for(lambda: keeper.sessions == sessions, "its sessions have ended")
        assert not seen()


def test_the_work_of_a_join_and_a_leave_cleans_up_wherever_it_is_cancelled(
    settings: Settings, keeper: MemoryZooKeeper, seen: Callable[[], list[str]]
) -> None:
    assert not seen()
    paths = GroupPaths("/hqueue", "g")

    async def run() -> None:
        loop = ProgramLoop()
        store = ZooKeeperStore(settings, loop=loop)
        watches = 0

        def member() -> GroupMember:
            return GroupMember(store, paths, "a", {"q": 1}, assignor=assign_sticky)

        async def join(cut: CutOff) -> None:
            joining = member()
            if await cut(joining.join.in_loop()):
                assert not await asyncio.to_thread(seen)
            await joining.close.in_loop()

        async def leave(cut: CutOff) -> None:
            leaving = member()
            await leaving.join.in_loop()
            await cut(leaving.close.in_loop())
            await leaving.close.in_loop()
            assert not await asyncio.to_thread(seen)

        for use in (join, leave):
            assert await each_await(use) > 2
            watches = watches or keeper.watches
            assert keeper.watches <= watches, "those that stay are of the nodes above"
        await loop.close()
        await store.session.close.in_loop()

    asyncio.run(run())


def test_a_member_whose_task_is_cancelled_with_all_others_says_so(client: hqueue.Client) -> None:
    async def consume() -> None:
        consumer = await joined(client)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0)
        with pytest.raises(hqueue.HQueueError, match="was cancelled with other tasks"):
            await consumer.poll()
        await consumer.close()

    asyncio.run(consume())


async def nothing(messages: Sequence[ReceivedMessage]) -> None:
    """A listener."""


async def subscriber_of(client: hqueue.Client, *, shared: bool) -> hqueue.aio.Subscriber:
    queue = await hqueue.aio.Client(client).queue("q")
    return queue.subscriber(Subscription("s"), nothing, host="127.0.0.1", shared=shared)


@pytest.mark.parametrize("shared", [False, True], ids=["alone", "shared"])
def test_a_start_and_a_stop_that_are_cancelled_at_any_await_leave_nothing(
    client: hqueue.Client, keeper: MemoryZooKeeper, shared: bool
) -> None:
    subscriptions = client.coordination.subscriptions
    assert not subscriptions.list("q")
    sessions, watches = keeper.sessions, keeper.watches

    async def receive() -> None:
        async def start(cut: CutOff) -> None:
            subscriber = await subscriber_of(client, shared=shared)
            await cut(subscriber.start())
            await subscriber.stop()

        async def stop(cut: CutOff) -> None:
            subscriber = await subscriber_of(client, shared=shared)
            await subscriber.start()
            await cut(subscriber.stop())
            assert await subscriber.stop()
            await subscriber.wait()

        for use in (start, stop):
            assert await each_await(use)
            assert keeper.sessions == sessions, "the sessions have ended"
            while asyncio.all_tasks() != {asyncio.current_task()}:
                await asyncio.sleep(0.005)

    asyncio.run(receive())
    assert not any(subscriptions.list("q").values())
    assert keeper.watches == watches


@pytest.mark.parametrize("shared", [False, True], ids=["alone", "shared"])
@pytest.mark.filterwarnings("ignore:a subscriber was never closed:ResourceWarning")
def test_the_work_of_a_start_and_a_stop_cleans_up_wherever_the_loop_ends(
    client: hqueue.Client, keeper: MemoryZooKeeper, shared: bool
) -> None:
    subscriptions = client.coordination.subscriptions
    assert not subscriptions.list("q")
    sessions = keeper.sessions

    async def end(method: str, number: int) -> bool:
        subscriber = await subscriber_of(client, shared=shared)
        if method == "stop":
            await subscriber.start()
        work = getattr(reception_of(subscriber), method)
        cut = Cut(work.in_loop(*([""] if method == "stop" else [])), number)
        try:
            await asyncio.wait_for(cut, None)
        except (asyncio.CancelledError, hqueue.HQueueError):
            pass
        return cut.was_cut

    for method in ("start", "stop"):
        number = 0
        while asyncio.run(end(method, number)):
            number += 1
        assert number > 2
        gc.collect()
        wait_for(lambda: keeper.sessions == sessions, "its sessions have ended")
        assert not any(subscriptions.list("q").values())


@pytest.mark.filterwarnings("ignore:an asynchronous consumer was never closed:ResourceWarning")
def test_a_consumer_whose_loop_ends_while_it_joins_has_left_when_it_is_collected(
    client: hqueue.Client, keeper: MemoryZooKeeper, seen: Callable[[], list[str]]
) -> None:
    assert not seen()
    sessions = keeper.sessions

    async def join() -> None:
        consumer = hqueue.aio.Consumer("q", group="g", client=hqueue.aio.Client(client))
        while True:
            await consumer.poll(1_000)

    async def end(turns: int) -> None:
        task = asyncio.ensure_future(join())
        for _ in range(turns):
            await asyncio.sleep(0.0005)
        assert not task.done()

    for turns in (0, 1, 2, 4, 8, 16, 32, 64):
        asyncio.run(end(turns))
    gc.collect()
    wait_for(lambda: keeper.sessions == sessions, "its sessions have ended")
    assert not seen()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_what_an_interrupted_loop_leaves_open_is_collected_though_its_errors_know_its_frames(
    client: hqueue.Client, keeper: MemoryZooKeeper, seen: Callable[[], list[str]]
) -> None:
    """All that is raised while a loop ends by an error has that error for its context."""
    assert not seen()
    sessions, left = keeper.sessions, list[weakref.ref[object]]()

    async def interrupt() -> None:
        asynchronous = hqueue.aio.Client(client)
        queue = await asynchronous.queue("q")
        consumer = hqueue.aio.Consumer("q", group="g", client=asynchronous)
        scanner = queue.scan(follow=True)
        left.extend(map(weakref.ref, (consumer, scanner)))
        waiting = [asyncio.ensure_future(anext(each)) for each in (consumer.messages(), scanner)]
        while not seen():
            await asyncio.sleep(0.005)
        assert not any(each.done() for each in waiting)
        raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(interrupt())
    gc.collect()
    assert [each() for each in left] == [None, None]
    wait_for(lambda: keeper.sessions == sessions, "its session has ended")


def test_a_static_consumer_that_was_closed_is_there_until_its_session_ends_without_a_loop(
    keeper: MemoryZooKeeper, seen: Callable[[], list[str]]
) -> None:
    settings = Settings(
        zookeeper=f"127.0.0.1:{keeper.port}",
        zookeeper_session_timeout_ms=4_000,
        notify_workers=False,
    )

    async def join(client: hqueue.aio.Client) -> None:
        await client.create_queue("q", partitions=PARTITIONS)
        async with hqueue.aio.Consumer("q", group="g", client=client, instance_id="one") as one:
            while not one.assignment():
                await one.poll(10)

    before = {thread.ident for thread in threading.enumerate()}
    store = MemoryStore(MemoryCluster(SYSTEM_CLOCK), settings, SYSTEM_CLOCK)
    with Client(settings, store, lambda loop: ZooKeeperCoordination(settings, loop=loop)) as client:
        asyncio.run(join(hqueue.aio.Client(client)))
        assert seen(), "its successor may come"
        begun = [each for each in threading.enumerate() if each.ident not in before]
        named = {each.name for each in begun if each.name.startswith("hqueue-")}
        assert named <= {"hqueue-session", "hqueue-loop-call"}, "the store in memory has threads"
        wait_for(lambda: not seen(), "its session has ended")
