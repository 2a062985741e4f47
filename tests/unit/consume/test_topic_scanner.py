"""A topic's ranges are read one after the other, each to its end before the next."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pytest

import hqueue.aio
from hqueue import Client, HQueueError, InvalidInputError, Message, MessageID, Scan
from hqueue.client import cluster_of
from hqueue.consume.queue_reader import LoopReader
from hqueue.consume.topic_ranges import TopicRanges
from hqueue.consume.topic_reader import TopicReader
from hqueue.consume.topic_scanner import TopicScanner
from hqueue.consume.topic_scans import scans_of
from hqueue.engine import messages_of
from hqueue.format.cells import encode_bodies
from hqueue.format.control import with_owners
from hqueue.log.owned_writer import OwnedBatch, OwnedPartitionWriter, made
from hqueue.log.table_ports import AsyncLogPort
from hqueue.metadata.managers import LogRange
from hqueue.runtime.clock import Deadline, drive
from hqueue.runtime.loop import blocking
from tests.support.backends import MemoryBackend
from tests.support.cancelling import each_await
from tests.support.cut_off import CuttingPort, each_cut
from tests.support.doubles import SteppedClock
from tests.support.gated_rows import reading_context
from tests.support.interrupting import each_interruption
from tests.support.lagging import Lagging
from tests.support.memory.memory_store import MemoryStore

BOUND_MS = 10_000
START_MS = 1_000_000
TTL_MS = 3_600_000


class Scene:
    """A topic in two ranges, of three messages each, and a server that stood still."""

    def __init__(self, client: Client, store: MemoryStore, clock: SteppedClock, face: str) -> None:
        self.face = face
        self.client = client
        self.queue = queue = client.queue("q")
        self.store = store
        self.appender = cluster_of(client).log("q").appender
        self.clock = clock
        self.ids: list[MessageID] = []
        for number in range(6):
            clock.now_ms += 10
            self.ids.append(queue.put(Message("t", b"%d" % number), partition=number // 3))
        self.lagging = Lagging(queue)
        self.reader = self.lagging.reader
        self.ranges = [
            LogRange(0, self.ids[0], self.ids[2], 0),
            LogRange(1, MessageID.from_int(int(self.ids[2]) + 1), None, 1),
        ]
        self.stop = MessageID.from_int(int(self.ids[5]) + 1)

    def values(self, *, whole: bool = False, stop: MessageID | None = None) -> list[bytes]:
        scans = scans_of("t", self.ranges, None, stop)
        if self.face == "asyncio":
            return asyncio.run(self._values_in_loop(scans, whole))
        with TopicScanner(self.reader, scans, whole=whole) as scanner:
            return [message.value for message in scanner]

    def in_loop(
        self, scans: Sequence[tuple[int, Scan]], *, whole: bool, port: AsyncLogPort | None = None
    ) -> hqueue.aio.TopicScanner:
        """A scanner for an event loop, through this port."""
        reader = self.reader.in_loop
        if port is not None:
            queue = self.queue
            context = reading_context(queue.describe(), self.client.settings, self.clock)
            reader = LoopReader(context, self.reader.reading, port)
        ranges = TopicRanges(self.reader.reading, scans, whole=whole)
        return hqueue.aio.TopicScanner(reader, ranges, bytes_max=1)

    async def _values_in_loop(self, scans: Sequence[tuple[int, Scan]], whole: bool) -> list[bytes]:
        async with self.in_loop(scans, whole=whole) as scanner:
            return [message.value async for message in scanner]

    def reader_to(self, stops: Iterator[int]) -> TopicReader:
        """A reader whose stop moves on by `move`."""
        self.stop_now = next(stops)
        return TopicReader(
            self.reader,
            "t",
            lambda _: blocking(lambda: self.ranges),
            start=0,
            stop=lambda: self.stop_now,
            bytes_max=1,
        )

    def read_all(self, reader: TopicReader) -> list[bytes]:
        """What it gives up to its stop."""
        values: list[bytes] = []
        while not reader.at_tail:
            before = reader.cursor
            batches = reader.read(Deadline(self.clock, BOUND_MS))
            values += [message.value for batch in batches for message in messages_of(batch)]
            assert reader.cursor > before
        assert not reader.read(Deadline(self.clock, BOUND_MS))
        assert not reader.holds
        return values


both_faces = pytest.mark.parametrize("scene", ["threads", "asyncio"], indirect=True)
"""Which face `Scene.values` reads by."""


@pytest.fixture
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    clock = SteppedClock(START_MS)
    backend = MemoryBackend(clock)
    with backend.connect(clock, operation_timeout_ms=BOUND_MS) as client:
        client.create_queue("q", partitions=2, ttl=f"{TTL_MS // 1_000}s")
        face = getattr(request, "param", "threads")
        yield Scene(client, backend.store(clock), clock, face)


ALL = [b"0", b"1", b"2", b"3", b"4", b"5"]


@both_faces
def test_all_ranges_come_in_order(scene: Scene) -> None:
    assert scene.values() == scene.values(whole=True, stop=scene.stop) == ALL


def test_a_reader_gives_each_once_in_order_as_its_stop_moves_on(scene: Scene) -> None:
    stops = iter([int(scene.ids[1]), int(scene.ids[4]) + 1])
    reader = scene.reader_to(stops)
    assert scene.read_all(reader) == ALL[:1]
    scene.stop_now = next(stops)
    assert scene.read_all(reader) == ALL[1:5]
    scene.stop_now = int(scene.stop)
    assert scene.read_all(reader) == ALL[5:]
    assert reader.cursor == int(scene.stop)


def test_a_reader_waits_for_a_server_that_lags_and_passes_what_stays_short(scene: Scene) -> None:
    scene.lagging.ends = {0: int(scene.ids[0]) + 1, 1: int(scene.ids[3]) + 1}
    scene.lagging.scans_left = 3
    assert scene.read_all(scene.reader_to(iter([int(scene.stop)]))) == ALL
    scene.lagging.scans_left = 10**9
    before_ms = scene.clock.now_ms
    assert scene.read_all(scene.reader_to(iter([int(scene.stop)]))) == [b"0", b"3"]
    assert scene.clock.now_ms - before_ms >= 2 * BOUND_MS


@both_faces
def test_a_server_that_lags_lets_no_range_be_passed_by(scene: Scene) -> None:
    scene.lagging.ends = {0: int(scene.ids[0]) + 1}
    scene.lagging.scans_left = 3
    assert scene.values() == ALL
    assert scene.clock.now_ms < START_MS + BOUND_MS


@both_faces
def test_of_the_range_that_is_open_less_may_be_given_if_it_need_not_be_whole(scene: Scene) -> None:
    scene.lagging.ends = {1: int(scene.ids[3]) + 1}
    scene.lagging.scans_left = 3
    assert scene.values(stop=scene.stop) == ALL[:4]
    scene.lagging.scans_left = 3
    assert scene.values(whole=True, stop=scene.stop) == ALL


@both_faces
def test_a_log_that_stays_short_was_truncated_and_ends_there(scene: Scene) -> None:
    scene.lagging.ends = {0: int(scene.ids[0]) + 1, 1: int(scene.ids[3]) + 1}
    before_ms = scene.clock.now_ms
    assert scene.values(whole=True, stop=scene.stop) == [b"0", b"3"]
    assert scene.clock.now_ms - before_ms >= 2 * BOUND_MS


def test_of_what_is_to_be_whole_the_end_is_to_be_said(scene: Scene) -> None:
    with pytest.raises(InvalidInputError, match="stop"):
        scene.queue.scan_topic("t", whole=True)


@both_faces
def test_what_was_collected_is_not_waited_for(scene: Scene) -> None:
    queue = scene.queue
    slots = [row.slot for row in scene.lagging.headers(0, 0, 10)]
    scene.clock.now_ms += 10
    queue.put(Message("other", b"later"), partition=0)
    for slot in slots:
        scene.store.log("q").delete_row(0, slot, [b"t"])
    before_ms = scene.clock.now_ms
    assert scene.values(whole=True, stop=scene.stop) == ALL[3:]
    assert scene.clock.now_ms == before_ms


@both_faces
def test_of_a_marked_range_only_what_its_owner_appended_is_read(scene: Scene) -> None:
    queue, port = scene.queue, scene.store.log("q")
    writers = []
    for partition in range(2):
        writer = OwnedPartitionWriter(
            partition,
            on_fence=lambda topic, epoch: None,
            on_settled=lambda batch, appended: None,
            clock=scene.clock,
        )
        deadline = queue.deadline()
        drive(writer.open(deadline), port, deadline)
        writers.append(writer)

    def publish(partition: int, epoch: int, *values: bytes) -> None:
        scene.clock.now_ms += 10
        writers[partition].own("t", epoch)
        batch = OwnedBatch(encode_bodies([Message("t", value) for value in values]))
        deadline = queue.deadline()
        drive(writers[partition].append(partial(made, batch), deadline), port, deadline)

    publish(0, 5, b"a", b"b")
    scene.queue.put(Message("t", b"direct"), partition=0)
    publish(0, 4, b"another epoch's")
    publish(0, 5, b"c")
    scene.queue.put([Message("t", b"direct"), Message("u", b"direct")], partition=0)
    first = MessageID.from_int(int(scene.ids[5]) + 1)
    scene.ranges = [LogRange(0, first, None, 5, marked=True)]
    assert scene.values() == [b"a", b"b", b"c"]
    scanner = TopicScanner(scene.reader, scans_of("t", scene.ranges, None, None))
    found = [batch.column("value").to_pylist() for batch in scanner.arrow_batches()]
    assert list(itertools.chain(*found)) == [b"a", b"b", b"c"]
    scene.ranges = [LogRange(0, first, None, 5)]
    assert len(scene.values()) == 6


def test_of_what_expired_a_marked_range_counts_what_its_owner_appended(scene: Scene) -> None:
    scene.clock.now_ms += 10
    scene.queue.put([Message("t", b"direct")] * 5, partition=0)
    scene.appender.append(with_owners(encode_bodies([Message("t", b"owned")] * 2), {"t": 5}), 0)
    scene.queue.put(Message("t", b"direct"), partition=0)
    scene.clock.now_ms += TTL_MS + 1
    for marked, expired in ((True, 2), (False, 8)):
        range_ = LogRange(0, MessageID.from_int(int(scene.ids[5]) + 1), None, 5, marked)
        with TopicScanner(scene.reader, scans_of("t", [range_], None, None)) as scanner:
            assert list(scanner) == []
            assert scanner.expired == expired


@pytest.mark.parametrize(("number", "moment"), each_cut())
def test_a_cursor_in_a_loop_gives_each_once_wherever_it_is_cancelled(
    scene: Scene, number: int, moment: str
) -> None:
    port = CuttingPort(scene.store.async_log("q"), number, moment)
    queue = scene.queue
    context = reading_context(queue.describe(), scene.client.settings, scene.clock)
    reader = LoopReader(context, scene.reader.reading, port)
    cursor = reader.topic_cursor(
        "t",
        lambda _: blocking(lambda: scene.ranges),
        start=0,
        stop=lambda: int(scene.stop),
        bytes_max=1,
    )
    values: list[bytes] = []

    async def go_on() -> None:
        while not cursor.at_tail:
            for batch in await reader.read(cursor):
                values.extend(message.value for message in messages_of(batch))

    async def read() -> None:
        try:
            await asyncio.create_task(go_on())
        except asyncio.CancelledError:
            await asyncio.create_task(go_on())
        await reader.release(cursor)

    asyncio.run(read())
    assert values == ALL
    assert not cursor.holds
    assert port.was_cut or number > 8


@pytest.mark.parametrize("arrow", [False, True])
@pytest.mark.parametrize("which", range(len(ALL) + 1))
def test_a_scanner_in_a_loop_gives_each_once_wherever_a_call_is_cancelled(
    scene: Scene, which: int, arrow: bool
) -> None:
    async def read(cut: Callable[..., Any]) -> None:
        values: list[bytes] = []
        scans = scans_of("t", scene.ranges, None, scene.stop)
        async with scene.in_loop(scans, whole=True) as scanner:
            items: AsyncIterator[Any] = scanner.arrow_batches() if arrow else aiter(scanner)
            found: list[Any] = []

            async def take() -> None:
                found.append(await anext(items, None))

            for call in itertools.count():
                await (cut(take()) if call == which else take())
                if not found:
                    continue
                if (item := found.pop()) is None:
                    break
                values.extend(item.column("value").to_pylist() if arrow else [item.value])
        assert values == ALL

    asyncio.run(each_await(read))


def by_next(scanner: TopicScanner) -> Iterator[bytes]:
    return (message.value for message in iter(scanner.next, None))


def as_arrow(scanner: TopicScanner) -> Iterator[bytes]:
    for batch in scanner.arrow_batches():
        yield from batch.column("value").to_pylist()


@pytest.mark.parametrize("way", [by_next, as_arrow])
def test_one_that_was_interrupted_anywhere_gives_each_once_in_order_or_an_error(
    scene: Scene, way: Callable[[TopicScanner], Iterator[bytes]]
) -> None:
    scanners: list[TopicScanner] = []
    values: list[bytes] = []

    def begin() -> None:
        scans = scans_of("t", scene.ranges, None, scene.stop)
        scanners.append(TopicScanner(scene.reader, scans, whole=True))
        values.clear()

    def read() -> None:
        values.extend(way(scanners[-1]))

    begin()
    places = 0
    for where in each_interruption(read, every=3):
        places += 1
        try:
            read()
        except HQueueError:
            assert values == ALL[: len(values)], where
        else:
            assert values == ALL, where
        scanners[-1].close()
        begin()
    assert places > 50
