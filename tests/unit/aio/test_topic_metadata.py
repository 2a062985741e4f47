"""Topics' metadata in event loops: callbacks, several loops, and what is cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import hqueue
import hqueue.aio
from hqueue.aio.client import blocking_client
from hqueue.aio.loops import AT_ONCE
from hqueue.errors import (
    BadVersionError,
    ClosedError,
    InvalidInputError,
    NoTopicOwnerInfoError,
)
from hqueue.metadata import Address
from hqueue.metadata.managers import AvailableHub, MigrationState, Phase
from hqueue.metadata.managers.migration_state import (
    MigrationStateRecord,
    encode_acknowledgement,
)
from hqueue.metadata.ports import ANY, NEW
from tests.support.backends import MemoryBackend
from tests.support.cancelling import AWAITS_MAX, each_await
from tests.support.metadata_kinds import owner, ranges, subscription

Cut = Callable[..., Any]
ENDS_MAX = 1_000


@pytest.fixture
def client() -> Iterator[hqueue.aio.Client]:
    with MemoryBackend().connect() as blocking:
        blocking.create_queue("q", partitions=1)
        yield hqueue.aio.Client(blocking)


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run it to its end; it leaves no task, and no error that nobody handles."""
    unhandled: list[dict[str, Any]] = []

    async def watched() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: unhandled.append(context))
        await asyncio.wait_for(work, 30)
        await asyncio.wait_for(nothing_goes_on(asyncio.current_task()), 30)

    async def nothing_goes_on(watching: object) -> None:
        while asyncio.all_tasks() - {watching, asyncio.current_task()}:
            await asyncio.sleep(0.005)

    asyncio.run(watched())
    assert unhandled == []


async def until(is_so: Callable[[], Coroutine[Any, Any, bool]]) -> None:
    while not await is_so():
        await asyncio.sleep(0.005)


def test_hubs_are_watched_and_elected_in_the_loop(client: hqueue.aio.Client) -> None:
    async def use() -> None:
        loop = asyncio.get_running_loop()
        seen: asyncio.Queue[set[Address]] = asyncio.Queue()

        def listener(hubs: Mapping[Address, AvailableHub]) -> None:
            assert asyncio.get_running_loop() is loop
            seen.put_nowait(set(hubs))

        async with client.topic_metadata("q") as metadata:
            watch = metadata.hubs.watch(listener)
            registration = await metadata.hubs.register(owner(1), 3)
            while owner(1).address not in await seen.get():
                pass
            await registration.update(4)
            assert await metadata.hubs.list() == {owner(1).address: AvailableHub(owner(1), 4)}
            won = await metadata.election.acquire("t", owner(1))
            assert won.won
            assert await metadata.election.release("t", won)
            assert await metadata.election.is_available(owner(1))
            assert not await metadata.election.is_available(owner(2))
            assert not await metadata.hubs.drop(owner(1).address)
            await registration.close()
            while owner(1).address in await seen.get():
                pass
            watch.close()
            await metadata.hubs.drop_gone()
            assert await metadata.hubs.list() == {}

    run(use())


def test_several_loops_use_one_metadata_at_the_same_time(client: hqueue.aio.Client) -> None:
    metadata = client.topic_metadata("q")
    both = threading.Barrier(2)

    async def write(number: int) -> None:
        both.wait(60)
        await asyncio.gather(
            *(
                metadata.persistence.write_topic_persistence_info(f"{n}/{number}", ranges(n), NEW)
                for n in range(AT_ONCE)
            )
        )

    with ThreadPoolExecutor(2) as pool:
        for ended in [pool.submit(asyncio.run, write(number)) for number in range(2)]:
            ended.result(60)

    async def look() -> None:
        topics = [topic async for topic in metadata.persistence.topics()]
        assert len(set(topics)) == len(topics) == 2 * AT_ONCE
        subjects = [entry.subject for entry in [each async for each in metadata.entries()]]
        assert {subject.topic for subject in subjects if subject} == set(topics)
        await metadata.close()
        with pytest.raises(ClosedError):
            await metadata.persistence.read_topic_persistence_info("t")

    async def look_again() -> None:
        for _ in range(2):
            with pytest.raises(ClosedError):
                await metadata.persistence.read_topic_persistence_info("t")
            await metadata.close()

    run(look())
    run(look_again())


def test_a_loop_that_ends_in_the_middle_of_changes_holds_up_no_move(
    client: hqueue.aio.Client,
) -> None:
    metadata = client.topic_metadata("q")
    unhandled: list[dict[str, Any]] = []
    left: list[asyncio.Task[Any]] = []

    async def leave() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, what: unhandled.append(what))
        manager = metadata.persistence
        await manager.write_topic_persistence_info("t", ranges(1), NEW)
        for number in range(9):
            writing = manager.write_topic_persistence_info(f"t{number % 3}", ranges(number), ANY)
            left.append(asyncio.create_task(writing))
        await asyncio.sleep(0)

    async def go_on() -> None:
        assert await metadata.store() == "zookeeper"
        assert await client.metadata_migration("q").move("hbase", drain_ms=10_000) == 1
        await until_known(metadata, "hbase")
        await metadata.persistence.write_topic_persistence_info("t", ranges(2), ANY)
        await metadata.close()

    asyncio.run(leave())
    assert all(each.cancelled() for each in left)
    run(go_on())
    assert unhandled == []


def test_changes_of_a_record_keep_their_order_and_what_was_not_sent_is_taken_back(
    client: hqueue.aio.Client,
) -> None:
    async def use() -> None:
        async with client.topic_metadata("q") as metadata:
            manager = metadata.persistence
            for _ in range(20):
                writes = [
                    asyncio.create_task(manager.write_topic_persistence_info("t", info, version))
                    for info, version in [(ranges(1), NEW), *((ranges(n), ANY) for n in range(9))]
                ]
                await asyncio.sleep(0)  # The first one is sent, and the others wait for it.
                for each in writes[5:]:
                    each.cancel()
                versions = await asyncio.gather(*writes, return_exceptions=True)
                assert len(set(versions[:5])) == 5
                found = await manager.read_topic_persistence_info("t")
                assert found is not None
                assert (found.value, found.version) == (ranges(3), versions[4])
                await manager.delete_topic_persistence_info("t", found.version)

    run(use())


async def write_ranges(metadata: hqueue.aio.TopicMetadata, cut: Cut) -> None:
    manager = metadata.persistence
    await cut(manager.write_topic_persistence_info("t", ranges(1), NEW))
    with contextlib.suppress(BadVersionError):  # It was made, by a moment ago.
        await manager.write_topic_persistence_info("t", ranges(1), NEW)
    found = await manager.read_topic_persistence_info("t")
    assert found is not None
    assert found.value == ranges(1)
    await manager.delete_topic_persistence_info("t", ANY)


async def subscribe(metadata: hqueue.aio.TopicMetadata, cut: Cut) -> None:
    manager = metadata.subscriptions
    await manager.create_subscription_data("t", "s", subscription(1))
    await cut(manager.replace_subscription_data("t", "s", subscription(2), ANY))
    await manager.replace_subscription_data("t", "s", subscription(3), ANY)
    assert [*await manager.read_subscriptions("t")] == ["s"]
    await cut(manager.delete_subscription_data("t", "s", ANY))
    if await manager.read_subscription_data("t", "s"):
        with contextlib.suppress(hqueue.errors.NoSubscriptionStateError):
            await manager.delete_subscription_data("t", "s", ANY)


async def register(metadata: hqueue.aio.TopicMetadata, cut: Cut) -> None:
    async def is_gone() -> bool:
        return await metadata.hubs.list() == {}

    registrations: list[hqueue.aio.HubRegistration] = []

    async def begin() -> None:
        registrations.append(await metadata.hubs.register(owner(1)))

    await cut(begin())
    await begin()
    for registration in registrations:
        await cut(registration.close())
        await registration.close()
    await until(is_gone)  # What was cut is closed in the background.


async def look(metadata: hqueue.aio.TopicMetadata, cut: Cut) -> None:
    await metadata.settle()
    with contextlib.suppress(BadVersionError):  # It was moved here.
        await metadata.persistence.write_topic_persistence_info("t", ranges(1), NEW)

    async def listed() -> list[str]:
        return [topic async for topic in metadata.persistence.topics()]

    async def all_entries() -> list[object]:
        return [entry async for entry in metadata.entries()]

    for ask in (listed, all_entries, metadata.store, metadata.settle, metadata.hubs.list):
        await cut(ask())
    assert await listed() == ["t"]
    assert len(await all_entries()) == 1


async def elect(metadata: hqueue.aio.TopicMetadata, cut: Cut) -> None:
    for number in range(2):
        await metadata.hubs.register(owner(number))
    await cut(metadata.election.acquire("t", owner(0)))
    verdict = await metadata.election.acquire("t", owner(0))
    assert verdict.owner == owner(0)
    assert not (await metadata.election.acquire("t", owner(1))).won
    await cut(metadata.election.release("t", verdict))
    with contextlib.suppress(NoTopicOwnerInfoError):
        await metadata.ownership.delete_owner_info("t", ANY)
    assert (await metadata.election.acquire("t", owner(1))).won


async def drop(metadata: hqueue.aio.TopicMetadata, cut: Cut) -> None:
    registration = await metadata.hubs.register(owner(1))
    await cut(registration.update(7))
    await registration.update(8)
    assert await metadata.hubs.list() == {owner(1).address: AvailableHub(owner(1), 8)}
    await registration.close()
    await cut(metadata.hubs.drop(owner(1).address))
    await cut(metadata.hubs.drop_gone())
    await metadata.hubs.drop_gone()
    assert await metadata.hubs.list() == {}


@pytest.mark.parametrize("use", [write_ranges, subscribe, register, elect, drop, look])
def test_what_is_cancelled_can_be_repeated_and_holds_up_no_move(use: Callable[..., Any]) -> None:
    async def once(cut: Cut) -> None:
        with MemoryBackend().connect() as blocking:
            blocking.create_queue("q", partitions=1)
            client = hqueue.aio.Client(blocking)
            async with client.topic_metadata("q") as metadata:
                await use(metadata, cut)
                await client.metadata_migration("q").move("hbase", drain_ms=10_000)
                await until_known(metadata, "hbase")
                await use(metadata, lambda work: work)

    async def cut_at_each() -> None:
        assert 1 <= await each_await(once) < AWAITS_MAX

    run(cut_at_each())


def test_a_close_that_is_cancelled_goes_on_and_its_writer_leaves(
    client: hqueue.aio.Client,
) -> None:
    async def once(cut: Cut) -> None:
        metadata = await filled(client)
        changing = asyncio.create_task(metadata.persistence.delete_topic_persistence_info("t", ANY))
        await asyncio.sleep(0)
        await cut(metadata.close())
        await metadata.close()
        assert changing.done()
        await changing
        with pytest.raises(ClosedError):
            await metadata.persistence.read_topic_persistence_info("t")
        assert await writers(client) == {}

    async def cut_at_each() -> None:
        assert 1 <= await each_await(once) < AWAITS_MAX

    run(cut_at_each())


async def writers(client: hqueue.aio.Client) -> dict[str, int]:
    """Those for which a move waits."""
    coordination = blocking_client(client).coordination
    record = MigrationStateRecord(coordination.store, coordination.paths.root, "q", "zookeeper")
    return await record.writers.in_loop()


def test_the_writer_of_a_loop_that_has_ended_leaves_when_another_loop_comes(
    client: hqueue.aio.Client,
) -> None:
    metadata = client.topic_metadata("q")

    async def write() -> None:
        await metadata.persistence.write_topic_persistence_info("t", ranges(1), NEW)

    async def read() -> None:
        assert len(await writers(client)) == 1
        assert await metadata.persistence.read_topic_persistence_info("t")

        async def is_gone() -> bool:
            return await writers(client) == {}

        await until(is_gone)
        assert await client.metadata_migration("q").move("hbase", drain_ms=0) == 1
        await metadata.close()

    run(write())
    run(read())


async def until_known(metadata: hqueue.aio.TopicMetadata, store: str) -> None:
    async def is_known() -> bool:
        return await metadata.store() == store

    await until(is_known)


async def filled(client: hqueue.aio.Client) -> hqueue.aio.TopicMetadata:
    metadata = client.topic_metadata("q")
    await metadata.persistence.write_topic_persistence_info("t", ranges(1), NEW)
    return metadata


def test_a_move_reports_its_progress_in_the_loop(client: hqueue.aio.Client) -> None:
    async def use() -> None:
        loop = asyncio.get_running_loop()
        phases: list[tuple[str, int]] = []

        def on_progress(phase: str, records: int) -> None:
            assert asyncio.get_running_loop() is loop
            phases.append((phase, records))

        async with await filled(client) as metadata:
            migration = client.metadata_migration("q")
            assert await migration.move("hbase", on_progress=on_progress) == 1
            assert [phase for phase, records in phases if not records] == [
                "copying",
                "draining",
                "comparing",
            ]
            await until_known(metadata, "hbase")
            assert await metadata.subscriptions.is_partial_update_supported()
            assert not await migration.abandon()
            assert await migration.clear(on_progress=on_progress) == 1
            assert phases[-1][0] == "clearing"
            assert (await migration.state()).old_copies == ()

    run(use())


def test_what_a_callback_raises_abandons_the_move(client: hqueue.aio.Client) -> None:
    def fail(phase: str, records: int) -> None:
        if phase == "comparing":
            raise InvalidInputError("enough")

    async def use() -> None:
        async with await filled(client) as metadata:
            migration = client.metadata_migration("q")
            with pytest.raises(InvalidInputError, match="enough"):
                await migration.move("hbase", on_progress=fail)
            assert (await migration.state()).phase is Phase.STABLE
            assert await metadata.store() == "zookeeper"

    run(use())


@pytest.mark.parametrize("phase", ["copying", "draining", "comparing"])
def test_a_move_that_is_cancelled_abandons_itself(client: hqueue.aio.Client, phase: str) -> None:
    async def use() -> None:
        async with await filled(client) as metadata:
            migration = client.metadata_migration("q")
            called: list[str] = []

            def cut(at: str, records: int) -> None:
                called.append(at)
                if at == phase:
                    moving.cancel()

            moving = asyncio.create_task(migration.move("hbase", on_progress=cut))
            with pytest.raises(asyncio.CancelledError):
                await moving

            state: MigrationState = await migration.state()
            assert state.phase is Phase.STABLE
            assert called.count(phase) == 1, "it is not called for a caller that has left"
            assert state.location.store == "zookeeper"
            assert await migration.move("hbase") == 1
            await until_known(metadata, "hbase")

    run(use())


@pytest.mark.parametrize("again", [False, True], ids=["once", "twice"])
def test_a_move_that_is_cancelled_at_any_await_is_abandoned_or_done(
    client: hqueue.aio.Client, again: bool
) -> None:
    places = itertools.cycle(("hbase", "zookeeper"))

    async def once(cut: Cut) -> None:
        async with client.topic_metadata("q") as metadata:
            await metadata.persistence.write_topic_persistence_info("t", ranges(1), ANY)
            migration, to = client.metadata_migration("q"), next(places)
            await cut(migration.move(to, drain_ms=10_000))

            assert (await migration.state()).phase is Phase.STABLE
            await migration.move(to, drain_ms=10_000)
            await migration.clear()
            await until_known(metadata, to)
            await metadata.persistence.write_topic_persistence_info("t", ranges(2), ANY)

    async def cut_at_each() -> None:
        async with await filled(client):
            pass
        assert 15 < await each_await(once, again=again) < AWAITS_MAX

    run(cut_at_each())


@pytest.mark.parametrize("turns", range(3))
def test_a_move_that_is_cancelled_as_its_loop_ends_is_abandoned_or_done(turns: int) -> None:
    """Wherever it is: the loop's end cancels it again, and each task that works for it."""
    with MemoryBackend().connect() as blocking:
        blocking.create_queue("q", partitions=1)
        client, own = hqueue.aio.Client(blocking), blocking.metadata_migration("q")
        with blocking.topic_metadata("q") as metadata:
            metadata.persistence.write_topic_persistence_info("t", ranges(1), NEW).result()
        places = itertools.cycle(("hbase", "zookeeper"))

        async def leave(number: int, to: str, phase: str | None = None) -> bool:
            reached = asyncio.Event()
            moving = asyncio.create_task(
                client.metadata_migration("q").move(
                    to, on_progress=lambda now, _: reached.set() if now == phase else None
                )
            )
            for _ in range(number):
                await asyncio.sleep(0)
            if phase is not None:
                await reached.wait()
            is_done = moving.done()
            moving.cancel()
            for _ in range(turns):
                await asyncio.sleep(0)
            return is_done

        for number in range(ENDS_MAX):
            to = next(places)
            is_done = asyncio.run(leave(number, to))
            state = own.state()
            assert state.phase is Phase.STABLE, number
            if is_done:
                assert state.location.store == to
                break
            own.move(to)
            own.clear()
        else:
            pytest.fail("it was never done")
        for phase in ("copying", "draining", "comparing"):
            to = "hbase" if own.state().location.store == "zookeeper" else "zookeeper"
            asyncio.run(leave(0, to, phase))
            assert own.state().phase is Phase.STABLE, phase
            own.move(to)
            own.clear()


def stuck_writer(client: hqueue.Client) -> None:
    """For this one a move waits."""
    coordination = client.coordination
    record = MigrationStateRecord(coordination.store, coordination.paths.root, "q", "zookeeper")
    said = {record.writer("stuck"): encode_acknowledgement(0)}
    coordination.store.ephemerals.put([said], is_own=lambda _: True, parents=True)


def test_a_loop_that_is_dropped_with_a_move_leaves_that_to_a_thread() -> None:
    backend = MemoryBackend()
    with backend.connect() as other, backend.connect() as blocking:
        other.create_queue("q", partitions=1)
        stuck_writer(other)
        loop = asyncio.new_event_loop()

        async def begin() -> asyncio.Task[int]:
            draining = asyncio.Event()
            migration = hqueue.aio.Client(blocking).metadata_migration("q")
            moving = asyncio.create_task(
                migration.move(
                    "hbase", on_progress=lambda phase, _: phase == "draining" and draining.set()
                )
            )
            moving._log_destroy_pending = False  # type: ignore[attr-defined]
            await draining.wait()
            return moving

        moving = loop.run_until_complete(begin())
        loop.close()
        assert other.metadata_migration("q").state().phase is Phase.DRAINING
        with contextlib.suppress(RuntimeError):  # A wait that is let go of needs the loop.
            moving.get_coro().close()  # As when the task is collected.
        blocking.close()  # It waits for that.
        assert other.metadata_migration("q").state().phase is Phase.STABLE


def test_a_client_that_is_closed_in_the_loop_ends_its_moves_first() -> None:
    backend = MemoryBackend()

    async def use() -> None:
        draining = asyncio.Event()
        async with hqueue.aio.Client(backend.connect()) as client:
            moving = asyncio.create_task(
                client.metadata_migration("q").move(
                    "hbase", on_progress=lambda phase, _: phase == "draining" and draining.set()
                )
            )
            await draining.wait()
        assert other.metadata_migration("q").state().phase is Phase.STABLE
        with pytest.raises(ClosedError, match="the move is abandoned"):
            await moving
        with pytest.raises(ClosedError):
            await client.metadata_migration("q").move("hbase")

    with backend.connect() as other:
        other.create_queue("q", partitions=1)
        stuck_writer(other)
        run(use())
        assert other.metadata_migration("q").state().phase is Phase.STABLE


@pytest.mark.parametrize("mover", ["thread", "loop", "hanging thread", "own callback"])
def test_a_client_that_is_closed_by_a_thread_ends_its_moves_first(mover: str) -> None:
    backend = MemoryBackend()
    draining, is_closed = threading.Event(), threading.Event()

    with backend.connect() as other, ThreadPoolExecutor(1) as pool:
        other.create_queue("q", partitions=1)
        stuck_writer(other)
        client = backend.connect(operation_timeout_ms=300 if "hanging" in mover else 30_000)

        def on_progress(phase: str, records: int) -> None:
            if phase == "draining":
                if mover == "own callback":
                    client.close()
                draining.set()
                if mover == "hanging thread":
                    is_closed.wait(60)

        def move() -> None:
            if mover == "loop":
                migration = hqueue.aio.Client(client).metadata_migration("q")
                asyncio.run(migration.move("hbase", on_progress=on_progress))
            else:
                client.metadata_migration("q").move("hbase", on_progress=on_progress)

        moving = pool.submit(move)
        assert draining.wait(60)
        client.close()
        assert other.metadata_migration("q").state().phase is Phase.STABLE
        is_closed.set()
        with pytest.raises(ClosedError):
            moving.result(60)
        assert other.metadata_migration("q").state().phase is Phase.STABLE


def test_the_client_that_moves_sees_at_once_where_its_metadata_is(
    client: hqueue.aio.Client,
) -> None:
    async def use() -> None:
        blocking = blocking_client(client)
        with blocking.topic_metadata("q") as of_threads:
            async with await filled(client) as metadata:
                for to in ("hbase", "zookeeper") * 5:
                    assert of_threads.store != to
                    await client.metadata_migration("q").move(to)
                    assert (await metadata.store(), of_threads.store) == (to, to)

    run(use())


def test_the_writer_of_an_ended_loop_leaves_though_the_next_loop_is_short(
    client: hqueue.aio.Client,
) -> None:
    metadata = client.topic_metadata("q")

    async def write() -> None:
        await metadata.persistence.write_topic_persistence_info("t", ranges(1), NEW)

    async def call() -> None:
        metadata.entries()  # It ends before anything else has a turn.

    asyncio.run(write())
    asyncio.run(call())
    assert blocking_client(client).metadata_migration("q").move("hbase", drain_ms=10_000) == 1


def test_arguments_that_cannot_be_used_are_refused(client: hqueue.aio.Client) -> None:
    async def called(*_: object) -> None:
        raise AssertionError

    async def use() -> None:
        migration = client.metadata_migration("q")
        async with await filled(client) as metadata:
            wrong: Any
            for wrong in (called, None, 3):
                for call in (
                    migration.move("hbase", on_progress=wrong),
                    migration.clear(on_progress=wrong),
                ):
                    with pytest.raises(InvalidInputError):
                        await call
                with pytest.raises(InvalidInputError):
                    metadata.hubs.watch(wrong)
                with pytest.raises(InvalidInputError):
                    await metadata.hubs.register(owner(1), on_failure=wrong)
            for wrong in (-1, float("nan"), "1"):
                with pytest.raises(InvalidInputError):
                    await migration.move("hbase", drain_ms=wrong)
            with pytest.raises(InvalidInputError):
                await metadata.hubs.register("127.0.0.1:7777")  # type: ignore[arg-type]
            assert (await migration.state()).phase is Phase.STABLE

    run(use())
