"""Old headers are deleted in passing, in stepped time: when their bodies expired, and how often."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from hqueue import Client, Message, Queue, StoreUnavailableError
from hqueue.format.header import decode_header
from hqueue.log import PartitionWriter
from hqueue.produce.header_reaper import EVERY_MS, HeaderReaper
from hqueue.runtime.loop import background, in_thread
from hqueue.runtime.steps import Wait, Work
from hqueue.settings.attributes import QueueDescription
from hqueue.settings.limits import HEADER_GRACE_MS
from tests.support.backends import MemoryBackend
from tests.support.doubles import SteppedClock
from tests.support.looped import settled
from tests.support.memory.memory_store import MemoryLog

START_MS = 1_700_000_000_000.0
TTL_S = 3_600
OLD_MS = TTL_S * 1_000 + HEADER_GRACE_MS


class SetClock:
    """A machine's clock, which may be set."""

    def __init__(self, true: SteppedClock) -> None:
        self._true = true
        self.ahead_ms = 0

    def wall_ms(self) -> int:
        return self._true.wall_ms() + self.ahead_ms

    def monotonic_ms(self) -> float:
        return self._true.monotonic_ms()

    def sleep_ms(self, duration_ms: float) -> None:
        self._true.sleep_ms(duration_ms)


class Scene:
    """A queue on a cluster in memory; all clocks are one, until this machine's is set."""

    def __init__(self, client: Client, backend: MemoryBackend, clock: SteppedClock) -> None:
        self.clock = clock
        self.client = client
        self.queue: Queue = client.create_queue("q", partitions=1, ttl=TTL_S)
        self.log = backend.store(clock).async_log("q")
        self.raw = backend.raw

    def put(self) -> None:
        """Put a message, and wait until what it began is done."""
        with settled():
            self.queue.put(Message("t", b"x"))

    def ordinals(self) -> list[int]:
        """Those of the headers that are there."""
        rows = self.raw.rows("q").items()
        return [decode_header(k, c[b"log:batch"]).ordinal for k, c in rows if b"log:batch" in c]


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock(START_MS)


@pytest.fixture
def machine(clock: SteppedClock) -> SetClock:
    return SetClock(clock)


@pytest.fixture
def scene(clock: SteppedClock, machine: SetClock) -> Iterator[Scene]:
    backend = MemoryBackend(clock)
    with backend.connect(machine) as client:
        yield Scene(client, backend, clock)


def test_headers_go_an_hour_after_their_bodies_and_the_newest_stays(scene: Scene) -> None:
    scene.put()
    scene.clock.now_ms += 10_000
    scene.put()
    assert [m.value for m in scene.queue.scan()] == [b"x", b"x"]
    scene.clock.now_ms += TTL_S * 1_000 + 1
    assert list(scene.queue.scan()) == []
    scene.put()
    assert scene.ordinals() == [0, 1, 2], "the bodies have only just expired"
    scene.clock.now_ms += HEADER_GRACE_MS
    scene.put()
    assert scene.ordinals() == [2, 3]
    assert len(list(scene.queue.scan())) == 2
    assert scene.queue.offsets()[0].count == 4


def test_a_partition_is_looked_at_once_a_minute_and_what_fails_is_left(scene: Scene) -> None:
    asked: list[int] = []

    def expired_ms() -> Work[Any, int]:
        asked.append(1)
        raise StoreUnavailableError("away")
        yield

    reaper = HeaderReaper(scene.log, expired_ms, scene.clock)
    writers = [PartitionWriter(partition, scene.clock) for partition in (0, 1)]

    def look() -> int:
        for writer in writers:
            with settled():
                reaper.collect_if_due(writer)
        return len(asked)

    look()  # When it is due first is left to chance, within the first minute.
    asked.clear()
    for looks in (2, 4, 6):
        scene.clock.now_ms += EVERY_MS
        assert look() == looks
        scene.clock.now_ms += EVERY_MS - 1
        assert look() == looks
        scene.clock.now_ms -= EVERY_MS - 1


def test_what_is_kept_for_ever_keeps_its_headers(scene: Scene) -> None:
    scene.client.alter_queue("q", ttl=None)
    for _ in range(3):
        scene.clock.now_ms += 10 * OLD_MS
        scene.put()
    assert scene.ordinals() == [0, 1, 2]
    assert len(list(scene.queue.scan())) == 3


def test_a_clock_that_is_set_ahead_meanwhile_deletes_nothing(
    scene: Scene, machine: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    describe = scene.raw.describe

    def set_ahead(name: str) -> QueueDescription:
        machine.ahead_ms = 10 * OLD_MS
        return describe(name)

    scene.put()
    scene.clock.now_ms += EVERY_MS
    monkeypatch.setattr(scene.raw, "describe", set_ahead)
    scene.put()
    assert machine.ahead_ms, "it was time to collect"
    assert scene.ordinals() == [0, 1]


def test_a_deletion_that_comes_after_a_truncation_spares_the_new_log(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete_headers = MemoryLog.delete_headers
    deleted: list[int] = []

    def delete_late(log: MemoryLog, partition: int, slots: Sequence[int], until_ms: int) -> None:
        scene.client.truncate_queue("q")
        scene.queue.put(Message("t", b"new"))
        delete_headers(log, partition, slots, until_ms)
        deleted.extend(slots)

    scene.put()
    scene.clock.now_ms += OLD_MS + 1
    monkeypatch.setattr(MemoryLog, "delete_headers", delete_late)
    scene.put()
    assert deleted == [0]
    assert [m.value for m in scene.queue.scan()] == [b"new"]


def test_collectors_that_wait_for_a_store_that_is_away_keep_nothing_else_waiting(
    scene: Scene,
) -> None:
    away, begun = threading.Event(), threading.Event()

    async def wait() -> None:
        begun.set()
        while not away.is_set():
            await asyncio.sleep(0.01)

    def expired_ms() -> Work[Any, None]:
        yield Wait(away.wait, wait)

    loop = background()
    assert loop is not None
    reapers = [HeaderReaper(scene.log, expired_ms, scene.clock) for _ in range(20)]
    with settled(), contextlib.ExitStack() as stack:
        stack.callback(away.set)
        for reaper in reapers:
            reaper.collect_if_due(PartitionWriter(0, scene.clock))
        scene.clock.now_ms += EVERY_MS
        for reaper in reapers:
            reaper.collect_if_due(PartitionWriter(0, scene.clock))
        assert begun.wait(10)
        assert loop.start(in_thread, lambda: 7).result(10) == 7


def test_what_a_loop_of_the_program_appends_it_collects_itself_and_after_it_another_one(
    scene: Scene,
) -> None:
    there: list[asyncio.AbstractEventLoop] = []

    async def note() -> None:
        there.append(asyncio.get_running_loop())
        await asyncio.sleep(60)

    def expired_ms() -> Work[Any, None]:
        yield Wait(lambda: None, note)

    reaper = HeaderReaper(scene.log, expired_ms, scene.clock)

    async def append() -> None:
        reaper.collect_if_due(PartitionWriter(0, scene.clock))  # It may not be due yet.
        scene.clock.now_ms += EVERY_MS
        reaper.collect_if_due(PartitionWriter(0, scene.clock))
        await asyncio.sleep(0.01)

    loops = [asyncio.new_event_loop(), asyncio.new_event_loop()]
    for loop in loops:  # It ends in the middle.
        loop.run_until_complete(append())
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
    assert there == loops
