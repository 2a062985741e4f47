"""A session by its face for event loops: many requests at once, cancelled ones, and lost loops."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator

import pytest

from hqueue import Settings
from hqueue.errors import ClosedError, Outcome, StoreUnavailableError
from hqueue.metadata.ports import ANY, NEW, Change
from hqueue.metadata.steps import Claim, Confirm, Create, Read, Release, Write
from hqueue.runtime.alarm import needed_loop
from hqueue.runtime.loop import in_thread
from hqueue.zookeeper import ZooKeeperStore
from tests.support.memory.zookeeper import MemoryZooKeeper
from tests.support.proxy import Fate, Proxy
from tests.support.waiting import wait_for
from tests.support.zookeeper_faults import zookeeper_proxy

PATHS = [f"/top/{number}" for number in range(100)]


@pytest.fixture
def keeper() -> Iterator[MemoryZooKeeper]:
    with MemoryZooKeeper() as found:
        yield found


@pytest.fixture
def proxy(keeper: MemoryZooKeeper) -> Iterator[Proxy]:
    with zookeeper_proxy(f"127.0.0.1:{keeper.port}") as found:
        yield found


@contextlib.contextmanager
def opened(proxy: Proxy, **bounds: float) -> Iterator[ZooKeeperStore]:
    settings = Settings(
        zookeeper=f"127.0.0.1:{proxy.port}",
        zookeeper_session_timeout_ms=20_000,
        **bounds,  # type: ignore[arg-type]
    )
    with contextlib.closing(ZooKeeperStore(settings)) as store:
        yield store


@pytest.fixture
def store(proxy: Proxy) -> Iterator[ZooKeeperStore]:
    with opened(proxy) as found:
        yield found


@pytest.fixture
def hasty_store(proxy: Proxy) -> Iterator[ZooKeeperStore]:
    with opened(proxy, request_timeout_ms=500, operation_timeout_ms=2_000) as found:
        yield found


def test_requests_of_many_tasks_are_under_way_together_and_need_no_thread(
    store: ZooKeeperStore,
) -> None:
    async def play() -> int:
        await store.answer(Create(dict.fromkeys(PATHS, b"0")))
        before = threading.active_count()
        most = 0

        async def write(path: str) -> None:
            nonlocal most
            await store.answer(Write({path: Change(b"1", ANY)}))
            most = max(most, threading.active_count())

        await asyncio.gather(*map(write, PATHS))
        found = await store.answer(Read(PATHS))
        assert {record.value for record in found.values()} == {b"1"}
        return most - before

    assert asyncio.run(play()) <= 0


def test_the_loop_goes_on_while_a_server_answers_nothing_and_the_wait_is_bounded(
    hasty_store: ZooKeeperStore, proxy: Proxy
) -> None:
    async def play() -> None:
        await hasty_store.answer(Create({"/top": b""}))
        turns = 0

        async def turn() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0.01)

        other = asyncio.ensure_future(turn())
        proxy.fate = lambda _: Fate.LOSE_REQUEST
        began_s = time.monotonic()
        with pytest.raises(StoreUnavailableError) as caught:
            await hasty_store.answer(Write({"/top": Change(b"1", ANY)}))
        assert time.monotonic() - began_s < 10
        assert caught.value.outcome is Outcome.UNKNOWN
        assert turns > 20
        other.cancel()

    asyncio.run(play())


@pytest.mark.parametrize("turns", [*range(12), 20])
def test_a_cancelled_write_was_done_as_a_whole_or_not_at_all_and_is_nobody_else_s_matter(
    store: ZooKeeperStore, turns: int
) -> None:
    async def play() -> None:
        await store.answer(Create(dict.fromkeys(PATHS, b"0")))
        changes = dict.fromkeys(PATHS, Change(b"1", ANY))
        task = asyncio.ensure_future(store.answer(Write(changes)))
        for _ in range(turns):
            await asyncio.sleep(0.0005)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await store.answer(Claim({"/claims/a": b"me"}))
        await store.answer(Release(["/claims/a"]))
        assert await store.answer(Confirm()) > 0
        found = await store.answer(Read(PATHS))
        assert {record.value for record in found.values()} <= {b"0", b"1"}

    asyncio.run(play())
    assert not store.session.members._waiters, "nobody waits"
    assert store.records.write({PATHS[0]: Change(b"2", ANY)})


def test_a_loop_that_ends_while_answers_are_under_way_harms_no_other(
    store: ZooKeeperStore, proxy: Proxy
) -> None:
    store.records.create({"/top": b""})

    async def leave() -> None:
        held = asyncio.ensure_future(store.answer(Read(["/top"])))
        await asyncio.sleep(0)
        held.cancel()

    for _ in range(20):
        asyncio.run(leave())
        assert store.records.read(["/top"])
    wait_for(lambda: store.records.write({"/top": Change(b"1", ANY)})["/top"], "it goes on")


def test_views_that_get_no_answer_keep_no_thread_from_others(
    store: ZooKeeperStore, proxy: Proxy
) -> None:
    store.records.create({"/top": b""})
    proxy.fate = lambda _: Fate.LOSE_REQUEST
    watches = [store.watch(f"/top/{number}", 1, lambda _: None) for number in range(20)]
    loop = needed_loop()
    for _ in range(20):
        assert loop.start(in_thread, time.monotonic).result(1) > 0
    for watch in watches:
        watch.close()


def test_after_the_session_was_closed_it_is_closed_in_a_loop_too(store: ZooKeeperStore) -> None:
    store.records.write({"/top": Change(b"", NEW)})
    store.close()
    with pytest.raises(ClosedError):
        asyncio.run(store.answer(Read(["/top"])))  # type: ignore[arg-type]


def test_one_that_waits_for_a_connection_waits_no_longer_than_its_bound_and_may_be_cancelled(
    hasty_store: ZooKeeperStore, proxy: Proxy
) -> None:
    proxy.close()

    async def play() -> None:
        began_s = time.monotonic()
        with pytest.raises(StoreUnavailableError):
            await hasty_store.answer(Read(["/top"]))
        assert 1.5 < time.monotonic() - began_s < 10
        task = asyncio.ensure_future(hasty_store.answer(Read(["/top"])))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(play())
    with pytest.raises(StoreUnavailableError):
        hasty_store.records.read(["/top"])
    assert not hasty_store.session.members._waiters, "nobody waits"
