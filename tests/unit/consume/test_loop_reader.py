"""A log is read alike in a thread and in a loop, and who is cancelled there loses nothing."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import threading
from collections.abc import Iterable, Iterator
from typing import Any, cast

import pytest

import hqueue
from hqueue import CorruptLogError, Message, MessageID, Scan, StoreUnavailableError
from hqueue.client import cluster_of
from hqueue.consume.decode import messages_of
from hqueue.consume.fetcher import Fetch, Pace
from hqueue.consume.queue_reader import LoopReader
from hqueue.handle import QueueLog
from hqueue.log import Batch, PartitionCursor, PartitionReader, skipping
from hqueue.log.ports import Row
from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline, drive_in_loop
from hqueue.settings.limits import BATCH_BYTES_MAX, MESSAGE_ID_MAX
from tests.support.backends import MemoryBackend
from tests.support.cut_off import BEFORE, CuttingPort, each_cut
from tests.support.doubles import Rows
from tests.support.gated_rows import reading_context
from tests.support.log_faces import BlockingFace, LoopFace, taken
from tests.support.loop_watch import LoopWatch
from tests.support.looped import LoopThread

Face = BlockingFace | LoopFace


@pytest.fixture
def memory() -> MemoryBackend:
    return MemoryBackend()


@pytest.fixture
def client(memory: MemoryBackend) -> Iterator[hqueue.Client]:
    with memory.connect() as connected:
        connected.create_queue("q", partitions=3)
        yield connected


@pytest.fixture
def queue(client: hqueue.Client) -> hqueue.Queue:
    return client.queue("q")


@pytest.fixture
def log(client: hqueue.Client) -> QueueLog:
    return cluster_of(client).log("q")


@pytest.fixture
def cut(memory: MemoryBackend, log: QueueLog, number: int, moment: str) -> Cut:
    return Cut(memory, log, number, moment)


@pytest.fixture(params=["blocking", "loop"])
def face(request: pytest.FixtureRequest, log: QueueLog) -> Iterator[Face]:
    if request.param == "blocking":
        yield BlockingFace(log)
        return
    loop = LoopThread()
    yield LoopFace(log, loop)
    loop.close()


def values(batches: Iterable[Batch]) -> list[bytes]:
    return [message.value for batch in batches for message in messages_of(batch)]


def put(queue: hqueue.Queue, partition: int, *texts: bytes) -> None:
    for text in texts:
        queue.put(Message("t", text), partition=partition)


NUMBERS = [b"%d" % number for number in range(9)]


def test_a_cursor_gives_all_up_to_the_end_and_what_comes_then(
    queue: hqueue.Queue, face: Face
) -> None:
    put(queue, 0, *NUMBERS)
    cursor = face.cursor(0, Scan(), 300)
    read: list[bytes] = []
    while not cursor.at_tail:
        read += values(face.read(cursor))
    assert (read, cursor.ordinal, cursor.holds) == (NUMBERS, 9, False)
    assert face.read_once(cursor) == []
    put(queue, 0, b"later")
    assert values(face.read(cursor)) == [b"later"]


def test_what_a_cursor_holds_is_released_and_reading_goes_on(
    queue: hqueue.Queue, face: Face
) -> None:
    put(queue, 0, *NUMBERS)
    cursor = face.cursor(0, Scan(), 1)
    read = values(face.read_once(cursor))
    assert cursor.holds
    face.release(cursor)
    assert not cursor.holds
    while not cursor.at_tail:
        read += values(face.read(cursor))
    assert read == NUMBERS


def test_a_poll_asks_for_the_next_of_many_or_for_several_of_one(
    queue: hqueue.Queue, face: Face
) -> None:
    cursors = [face.cursor(partition, Scan(), 1_000) for partition in range(3)]
    for cursor in cursors:
        assert face.read(cursor) == []
    put(queue, 0, b"a", b"b")
    put(queue, 2, b"c")
    assert values(face.poll(cursors, 1_000)) == [b"a", b"c"]
    assert values(face.poll(cursors, 1_000)) == [b"b"]
    put(queue, 1, *NUMBERS)
    assert values(face.poll(cursors[1:2], 1_000, rows_max=5)) == NUMBERS[:5]
    assert not cursors[1].at_tail


def test_a_truncation_is_seen_by_looking_at_the_end(
    memory: MemoryBackend, queue: hqueue.Queue, face: Face
) -> None:
    put(queue, 0, *NUMBERS)
    cursor = face.cursor(0, Scan(), 1_000)
    while not cursor.at_tail:
        face.read(cursor)
    memory.raw.truncate("q")
    face.check_tail(cursor)
    put(queue, 0, b"new")
    assert values(face.read(cursor)) == [b"new"]


def test_followers_have_what_comes_until_it_is_silent(queue: hqueue.Queue, face: Face) -> None:
    put(queue, 0, b"a")
    put(queue, 1, b"b", b"c")
    cursors = [face.cursor(partition, Scan(), 1_000) for partition in range(3)]
    given = values(face.follow(cursors, 1_000, idle_ms_max=50))
    assert sorted(given) == [b"a", b"b", b"c"]


LARGE = [Message("t", b"%d" % number * 1_000) for number in range(1_600)]


@pytest.mark.parametrize("how", ["read", "poll", "several"])
def test_a_loop_goes_on_while_a_large_answer_is_decompressed_and_decoded(
    queue: hqueue.Queue, log: QueueLog, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    plain, decode = LoopWatch(skipping.plain_cell), LoopWatch(messages_of)
    monkeypatch.setattr(skipping, "plain_cell", plain)
    reader = log.loop_reader
    cursor = reader.cursor(0, Scan(), BATCH_BYTES_MAX)

    async def run() -> list[Batch]:
        if how == "read":
            queue.put(LARGE, partition=0)
            return await plain.watched(reader.read(cursor))
        await reader.read(cursor)
        queue.put(LARGE, partition=0)
        rows_max = 1 if how == "poll" else 5
        polled = reader.poll([cursor], BATCH_BYTES_MAX, rows_max=rows_max)
        return await plain.watched(anext(polled))  # type: ignore[arg-type]

    (batch,) = asyncio.run(run())
    assert plain.calls == [True]
    found = asyncio.run(decode.watched(reader.decoded(batch, decode)))
    assert decode.calls == [True]
    assert [message.value for message in found] == [message.value for message in LARGE]
    assert cursor.ordinal == len(LARGE)


def test_a_cursor_that_is_cancelled_while_its_answer_is_decompressed_gives_it_again(
    queue: hqueue.Queue, log: QueueLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, may_end = skipping.plain_cell, threading.Event()
    for _ in range(3):
        queue.put(LARGE, partition=0)
    reader = log.loop_reader
    cursor = reader.cursor(0, Scan(), BATCH_BYTES_MAX)

    async def run() -> int:
        began, loop = asyncio.Event(), asyncio.get_running_loop()

        def read_slowly(*args: Any) -> bytes:
            loop.call_soon_threadsafe(began.set)
            may_end.wait(10)
            return plain(*args)

        monkeypatch.setattr(skipping, "plain_cell", read_slowly)
        read = asyncio.create_task(reader.read(cursor))
        await began.wait()
        read.cancel()
        with pytest.raises(asyncio.CancelledError):
            await read
        assert (cursor.cursor, cursor.at_tail) == (0, False)
        monkeypatch.setattr(skipping, "plain_cell", plain)
        may_end.set()
        found = 0
        while not cursor.at_tail:
            found += sum(batch.header.count for batch in await reader.read(cursor))
        return found

    assert asyncio.run(run()) == 3 * len(LARGE)


def test_offsets_and_lags_are_the_same(queue: hqueue.Queue, face: Face) -> None:
    before = face.ask("offsets")
    put(queue, 1, *NUMBERS)
    (found,) = face.ask("offsets", [1])
    assert found == queue.offsets([1])[0]
    assert (found.beginning_ordinal, found.end_ordinal) == (0, 9)
    assert face.ask("appended_since", before) == [1]
    assert face.ask("count_before", 1, found.end) == 9
    middle = face.ask("id_at", 1, 4)
    assert face.ask("lag", {1: middle})[1].messages == 5
    with pytest.raises(hqueue.InvalidInputError):
        face.ask("count_before", 7, MessageID(0))


class Cut:
    """A reader whose task is cancelled at a request."""

    def __init__(self, memory: MemoryBackend, log: QueueLog, number: int, moment: str) -> None:
        self.port = CuttingPort(memory.store().async_log(log.name), number, moment)
        context = reading_context(log.describe(), log.settings)
        self.reader = LoopReader(context, log.reader.reading, self.port)
        self.got: list[bytes] = []

    async def read_once(self, cursor: PartitionCursor) -> None:
        while not cursor.at_tail:
            self.got += values(await self.reader.read(cursor))

    async def read(self, cursor: PartitionCursor) -> None:
        """Read to the end, again where it is cancelled."""
        cursor.at_tail = False
        try:
            await asyncio.create_task(self.read_once(cursor))
        except asyncio.CancelledError:
            await asyncio.create_task(self.read_once(cursor))

    async def _fetch(self, fetches: list[Fetch[PartitionCursor]]) -> None:
        async for batches in self.reader.fetch(fetches, 1_000):
            self.got += values(batches)

    async def fetch(self, fetches: list[Fetch[PartitionCursor]]) -> None:
        """Ask once for what comes next, again where it is cancelled."""
        try:
            await asyncio.create_task(self._fetch(fetches))
        except asyncio.CancelledError:
            await asyncio.create_task(self._fetch(fetches))


@pytest.mark.parametrize(("number", "moment"), each_cut())
def test_one_that_is_cancelled_at_any_request_reads_each_message_once_nevertheless(
    queue: hqueue.Queue, cut: Cut, number: int
) -> None:
    put(queue, 0, *NUMBERS)
    cursor = cut.reader.cursor(0, Scan(start=queue.offsets([0])[0].beginning), 300)

    async def read() -> None:
        await cut.read(cursor)
        put(queue, 0, b"later")
        await cut.read(cursor)

    asyncio.run(read())
    assert cut.got == [*NUMBERS, b"later"]
    assert cursor.ordinal == 10
    assert not cursor.holds
    assert cut.port.was_cut or number > 5


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize(("number", "moment"), each_cut(first=3))
def test_one_that_is_cancelled_while_it_polls_has_each_message_once_nevertheless(
    queue: hqueue.Queue, cut: Cut, several: bool
) -> None:
    cursors = [cut.reader.cursor(partition, Scan(), 1_000) for partition in range(3)]
    fetches = [Fetch(cursor, Pace(check_every_ms=1e9), 0.0) for cursor in cursors]

    async def poll() -> None:
        for cursor in cursors:
            await cut.read(cursor)
        put(queue, 0, b"a", b"b")
        put(queue, 2, b"c")
        for _ in range(3):
            for each in fetches:
                each.begin(0.0)
                each.several = several
            await cut.fetch(fetches)

    asyncio.run(poll())
    assert sorted(cut.got) == [b"a", b"b", b"c"]


def test_a_batch_that_can_not_be_decoded_is_decoded_by_a_thread_which_may_ask(
    queue: hqueue.Queue, log: QueueLog
) -> None:
    put(queue, 0, b"a")
    reader = log.loop_reader
    decoded: list[bool] = []

    def decode(batch: Batch) -> list[bytes]:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return values([batch])
        decoded.append(True)
        raise CorruptLogError("it is malformed")

    async def read() -> list[bytes]:
        (batch,) = await reader.read(reader.cursor(0, Scan(), 1_000))
        assert await reader.decoded(batch, lambda b: values([b])) == [b"a"]
        return await reader.decoded(batch, decode)

    assert asyncio.run(read()) == [b"a"]
    assert decoded == [True]


def test_one_who_stops_taking_leaves_nothing_open(queue: hqueue.Queue, log: QueueLog) -> None:
    put(queue, 0, *NUMBERS)
    reader = log.loop_reader

    async def read() -> list[Batch]:
        cursor = reader.cursor(0, Scan(), 1)
        following = reader.follow([cursor], 1)
        async for batches in following:
            assert values(batches) == NUMBERS[:1]
            break
        await following.aclose()  # type: ignore[attr-defined]
        await reader.release(cursor)
        assert not cursor.holds
        return await taken(reader.follow([cursor], 1_000, idle_ms_max=0))

    assert values(asyncio.run(read())) == NUMBERS[1:]


def test_a_request_that_was_cut_off_before_it_was_made_was_not_made(
    memory: MemoryBackend, log: QueueLog
) -> None:
    cut = Cut(memory, log, 0, BEFORE)
    cursor = cut.reader.cursor(0, Scan(), 1)

    async def read() -> None:
        with pytest.raises(asyncio.CancelledError):
            await asyncio.create_task(cut.read_once(cursor))

    asyncio.run(read())
    assert cut.port.was_cut
    assert not cursor.holds


class Collected:
    """A log whose third batch was collected, and those before it just after they were read. Its
    scans go on where they are, whichever caller gets the rows.
    """

    def __init__(self) -> None:
        self._rows = Rows()
        for number in range(5):
            self._rows.append(0, b"%d" % number)
        del self._rows.rows[0][2]

    async def newest(self, partition: int, at_or_below: int) -> Row | None:
        await asyncio.sleep(0)
        return None

    async def headers(self, *asked: int) -> list[Row]:
        await asyncio.sleep(0)
        return self._rows.headers(*asked)

    async def open(self, *asked: Any) -> Collected:
        self._stream = self._rows.open(*asked)
        return self

    async def read(self, rows: int) -> list[Row]:
        await asyncio.sleep(0)
        return self._stream.read(rows)

    async def close(self) -> None:
        self._stream = None


@pytest.mark.parametrize(("number", "moment"), each_cut())
def test_one_that_is_cancelled_in_a_batch_of_rows_or_at_a_gap_goes_on_where_it_stood(
    number: int, moment: str
) -> None:
    cursor = PartitionCursor(0, bytes_max=1_000)
    port = CuttingPort(Collected(), number, moment)  # type: ignore[arg-type]
    got: list[bytes] = []

    async def go_on() -> None:
        while not cursor.at_tail:
            deadline = Deadline(SYSTEM_CLOCK, 10_000)
            got.extend(values(await drive_in_loop(cursor.read(deadline), port, deadline)))

    async def read() -> None:
        try:
            await asyncio.create_task(go_on())
        except asyncio.CancelledError:
            await asyncio.create_task(go_on())

    asyncio.run(read())
    assert got == [b"0", b"1", b"3", b"4"]
    assert cursor.expired == 1


class Scanned(Collected):
    """A log without collected headers, whose fourth batch has a header that can't be read."""

    def __init__(self) -> None:
        self._rows = Rows()
        for number in range(5):
            self._rows.append(0, b"%d" % number)
        rows = self._rows.rows[0]
        rows[3] = dataclasses.replace(rows[3], header=b"?")


@pytest.mark.parametrize("stop", [3_000, MESSAGE_ID_MAX])
@pytest.mark.parametrize(("number", "moment"), each_cut())
def test_one_that_is_cancelled_while_it_lets_go_of_a_scan_is_given_what_that_gave(
    number: int, moment: str, stop: int
) -> None:
    cursor = PartitionCursor(0, stop=stop, bytes_max=4 * BATCH_BYTES_MAX)
    port = CuttingPort(Scanned(), number, moment)  # type: ignore[arg-type]
    got: list[bytes] = []

    async def go_on() -> None:
        while not cursor.at_tail:
            deadline = Deadline(SYSTEM_CLOCK, 10_000)
            got.extend(values(await drive_in_loop(cursor.read(deadline), port, deadline)))

    async def read() -> None:
        for _ in range(2):
            with contextlib.suppress(CorruptLogError, asyncio.CancelledError):
                await asyncio.create_task(go_on())

    asyncio.run(read())
    assert got == [b"0", b"1", b"2"]


def test_what_was_collected_before_the_first_read_is_counted_also_where_a_request_fails() -> None:
    rows = Rows()
    for number in range(5):
        rows.append(0, b"%d" % number)
    del rows.rows[0][:3]
    failing = iter([None, StoreUnavailableError("no answer")])
    rows.failure = lambda method: next(failing, None) if method == "newest" else None
    reader = PartitionReader(0, cast(Any, rows), start=1_000, ordinal=1)
    assert values(reader.read(Deadline(SYSTEM_CLOCK, 10_000))) == [b"3"]
    assert reader.expired == 2
