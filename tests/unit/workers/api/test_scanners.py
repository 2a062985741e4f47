"""Scanners of the Thrift API: where they stand through faults, and what bounds them together."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import hqueue
from hqueue import Message, MessageID, Scan, StoreUnavailableError
from hqueue.engine import Engine, OpenLog
from hqueue_workers.api.failures import ScannerBusyError, ScannerNotFoundError
from hqueue_workers.api.scanner import ANSWER_MESSAGES_MAX, END_CHECK_MS, ApiScanner
from hqueue_workers.api.scanners import UNUSED_SCAN_MS_MAX, ScannerTable
from tests.support.awaited import Awaited
from tests.support.backends import LossyWay, MemoryBackend
from tests.support.doubles import SteppedClock
from tests.support.looped import LoopThread
from tests.support.proxy import Fate

IDLE_MS = 60_000
KIB = 1_024


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock(1_000.0)


@pytest.fixture
def cluster() -> MemoryBackend:
    return MemoryBackend()


@pytest.fixture
def queue(cluster: MemoryBackend) -> Iterator[OpenLog]:
    with cluster.connect() as client:
        client.create_queue("q", partitions=2)
        yield Engine(client).open("q")


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    made = LoopThread()
    yield made
    made.close()


Make = Callable[..., Any]


@pytest.fixture
def scanner_of(queue: OpenLog, clock: SteppedClock, thread: LoopThread) -> Make:
    def make(scan: Scan | None = None, partition: int = 0, bytes_max: int = KIB) -> Any:
        reader = queue.in_loop().reader
        return Awaited(
            ApiScanner(reader, partition, scan or Scan(), bytes_max, clock, queue="q"), thread
        )

    return make


class Table(Awaited):
    """A table, for threads that wait."""

    def add(self, scanner: Awaited) -> str:
        return str(self.of.add(scanner.of))

    def take(self, scanner_id: str, count: int = 1) -> list[bytes]:
        async def take() -> list[bytes]:
            async with self.of.used(scanner_id) as scanner:
                return [message.value for message in await scanner.take(count)]

        return self.thread.run(take())

    @contextlib.contextmanager
    def used(self, scanner_id: str) -> Iterator[Any]:
        used = self.of.used(scanner_id)
        yield Awaited(self.thread.run(used.__aenter__()), self.thread)
        self.thread.run(used.__aexit__(None, None, None))

    def __len__(self) -> int:
        return len(self.of)


@pytest.fixture
def table_of(clock: SteppedClock, thread: LoopThread) -> Make:
    def make(count_max: int = 10, bytes_max: int = KIB * KIB) -> Any:
        table = ScannerTable(count_max=count_max, bytes_max=bytes_max, idle_ms=IDLE_MS, clock=clock)
        return Table(table, thread)

    return make


def take(table: Table, scanner_id: str, count: int = 1) -> list[bytes]:
    return table.take(scanner_id, count)


def test_an_answer_is_bounded_by_bytes_but_has_one_message(
    queue: hqueue.Queue, scanner_of: Make
) -> None:
    queue.put([Message("t", bytes(300)) for _ in range(10)], partition=0)
    queue.put(Message("t", bytes(5 * KIB)), partition=0)
    scanner, sizes = scanner_of(), []
    while taken := scanner.take(100):
        sizes.append([len(message.value) for message in taken])
    assert [size for each in sizes for size in each] == [300] * 10 + [5 * KIB]
    assert all(sum(each) <= KIB or len(each) == 1 for each in sizes)
    assert scanner.held_bytes == 0


def test_an_answer_is_filled_from_as_many_batches_as_it_takes(
    queue: hqueue.Queue, scanner_of: Make
) -> None:
    for number in range(40):
        queue.put(Message("t", b"%d" % number), partition=0)
    scanner = scanner_of(bytes_max=100 * KIB)
    assert [m.value for m in scanner.take(30)] == [b"%d" % n for n in range(30)]
    assert [m.value for m in scanner.take(30)] == [b"%d" % n for n in range(30, 40)]
    assert scanner.take(1) == []


def test_a_large_batch_is_answered_in_pieces_and_held_as_it_was_read(
    queue: hqueue.Queue, scanner_of: Make
) -> None:
    count = 5_500
    queue.put([Message("t", b"%d" % n) for n in range(count)], partition=0)
    queue.put(Message("t", b"last"), partition=0)
    scanner, came, sizes = scanner_of(bytes_max=1_024 * KIB), [], []
    while taken := scanner.take(100_000):
        came += [message.value for message in taken]
        sizes.append(len(taken))
        assert scanner.held_bytes < 100 * count, "what is decoded takes some 400 bytes each"
    assert came == [*(b"%d" % n for n in range(count)), b"last"]
    assert max(sizes) == ANSWER_MESSAGES_MAX
    assert scanner.held_bytes == 0


def test_a_call_that_is_cancelled_while_it_decodes_passes_nothing_by(
    queue: OpenLog, clock: SteppedClock, thread: LoopThread
) -> None:
    values = [b"%d" % n for n in range(5_500)]
    queue.put([Message("t", value) for value in values], partition=0)

    async def read() -> list[bytes]:
        scanner = ApiScanner(queue.in_loop().reader, 0, Scan(), 1_024 * KIB, clock, queue="q")
        came = [message.value for message in await scanner.take(10)]
        for looks in range(1, 40):
            call = asyncio.ensure_future(scanner.take(990 if looks == 1 else 1))
            for _ in range(looks % 4):
                await asyncio.sleep(0)
            call.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                came += [message.value for message in await call]
        while taken := await scanner.take(100_000):
            came += [message.value for message in taken]
        return came

    assert thread.run(read()) == values


@pytest.mark.parametrize("drops_every", [1, 3, 7])
def test_what_it_held_it_reads_again(
    queue: hqueue.Queue, scanner_of: Make, drops_every: int
) -> None:
    for at in range(0, 60, 20):
        queue.put([Message("ab"[n % 2], b"%d" % n) for n in range(at, at + 20)], partition=0)
    scanner, came = scanner_of(Scan(topics=["a"]), bytes_max=100 * KIB), []
    while taken := scanner.take(1):
        came += taken
        if len(came) % drops_every == 0:
            scanner.drop()
            assert scanner.held_bytes == 0
    assert [message.value for message in came] == [b"%d" % n for n in range(0, 60, 2)]


def test_it_ends_at_its_stop_wherever_that_lies(queue: hqueue.Queue, scanner_of: Make) -> None:
    ids = queue.put([Message("t", b"%d" % n) for n in range(6)], partition=0)
    scanner = scanner_of(Scan(ids[1], ids[4]))
    assert [m.value for m in scanner.take(2)] == [b"1", b"2"]
    scanner.drop()
    assert [m.value for m in scanner.take(9)] == [b"3"]
    assert scanner_of(Scan(ids[2], ids[2])).take(1) == []
    last = MessageID.from_int(2**63 - 1)
    assert scanner_of(Scan(last)).take(1) == []


def test_it_goes_on_where_it_stood_when_requests_get_lost(
    cluster: MemoryBackend, queue: hqueue.Queue, clock: SteppedClock, thread: LoopThread
) -> None:
    for at in range(0, 200, 5):
        queue.put([Message("t", b"%d" % n) for n in range(at, at + 5)], partition=0)
    with cluster.lossy() as way, way.connect(operation_timeout_ms=300) as client:
        reader = Engine(client).open("q").in_loop().reader
        scanner: Any = Awaited(ApiScanner(reader, 0, Scan(), KIB, clock, queue="q"), thread)
        came, requests = [], itertools.count()
        lossy(way, lambda: next(requests) % 3 != 2)
        while True:
            try:
                taken = scanner.take(7)
            except StoreUnavailableError:
                continue
            if not taken:
                break
            came += taken
        assert [message.value for message in came] == [b"%d" % n for n in range(200)]
        lossy(way, lambda: False)
        scanner.drop()
        queue.put(Message("t", b"more"), partition=0)
        with pytest.raises(StoreUnavailableError):
            scanner.take(1)
        lossy(way, lambda: True)
        assert [message.value for message in scanner.take(1)] == [b"more"]


def lossy(way: LossyWay, arrives: Callable[[], bool]) -> None:
    way.set_fate(lambda _: Fate.PASS if arrives() else Fate.LOSE_REQUEST)


def test_after_a_truncation_it_finds_what_is_put_then(
    cluster: MemoryBackend, queue: hqueue.Queue, scanner_of: Make, clock: SteppedClock
) -> None:
    queue.put([Message("t", b"old")] * 3, partition=0)
    scanner = scanner_of()
    assert len(scanner.take(9)) == 3
    assert scanner.take(9) == []
    with cluster.connect() as client:
        client.truncate_queue("q")
        client.queue("q").put(Message("t", b"new"), partition=0)
    clock.now_ms += END_CHECK_MS
    assert [message.value for message in scanner.take(9)] == [b"new"]


def test_scanners_are_found_by_ids_that_differ_until_they_are_closed(
    queue: hqueue.Queue, scanner_of: Make, clock: SteppedClock, table_of: Make
) -> None:
    queue.put([Message("t", b"0"), Message("t", b"1")], partition=0)
    table = table_of()
    ids = {table.add(scanner_of()) for _ in range(5)}
    assert (len(ids), len(table)) == (5, 5)
    first = ids.pop()
    assert take(table, first) == [b"0"]
    table.close(first)
    for call in (table.close, lambda each: take(table, each)):
        with pytest.raises(ScannerNotFoundError):
            call(first)
    assert (len(table), table.held_bytes) == (4, 0)


def test_when_all_are_closed_none_holds_anything(
    queue: hqueue.Queue, scanner_of: Make, table_of: Make
) -> None:
    queue.put([Message("t", b"0"), Message("t", b"1")], partition=0)
    table, scanners = table_of(), [scanner_of(), scanner_of()]
    for scanner in scanners:
        assert take(table, table.add(scanner)) == [b"0"]
    assert table.held_bytes > 0
    table.close_all()
    assert (len(table), table.held_bytes) == (0, 0)
    assert [scanner.held_bytes for scanner in scanners] == [0, 0]


def test_there_are_no_more_than_there_may_be(
    scanner_of: Make, clock: SteppedClock, table_of: Make
) -> None:
    table = table_of(count_max=2)
    first = table.add(scanner_of())
    table.add(scanner_of())
    for call in (table.check_room, lambda: table.add(scanner_of())):
        with pytest.raises(ScannerBusyError):
            call()
    table.close(first)
    table.add(scanner_of())


def test_one_that_nobody_uses_expires_and_one_that_is_used_does_not(
    queue: hqueue.Queue, scanner_of: Make, clock: SteppedClock, table_of: Make
) -> None:
    queue.put([Message("t", b"%d" % n) for n in range(100)], partition=0)
    table = table_of()
    used, unused = table.add(scanner_of()), table.add(scanner_of())
    assert take(table, unused) == [b"0"]
    for number in range(3):
        clock.now_ms += IDLE_MS / 2
        assert take(table, used) == [b"%d" % number]
        table.sweep()
    with pytest.raises(ScannerNotFoundError):
        take(table, unused)
    assert (table.expired, len(table)) == (1, 1)
    with table.used(used):
        clock.now_ms += IDLE_MS
        table.sweep()
    assert take(table, used) == [b"3"]
    table.close(used)
    assert (table.expired, table.held_bytes) == (1, 0)


def test_one_that_rests_goes_on(
    queue: hqueue.Queue, scanner_of: Make, clock: SteppedClock, table_of: Make
) -> None:
    for number in range(50):
        queue.put(Message("t", b"%d" % number + bytes(100)), partition=0)
    table = table_of()
    scanner = table.add(scanner_of())
    came = []
    while taken := take(table, scanner, 4):
        came += taken
        clock.now_ms += UNUSED_SCAN_MS_MAX
        table.sweep()
    assert [value.rstrip(b"\0") for value in came] == [b"%d" % n for n in range(50)]


def test_together_they_hold_no_more_than_they_may_and_read_again_what_was_dropped(
    queue: hqueue.Queue, scanner_of: Make, clock: SteppedClock, table_of: Make
) -> None:
    queue.put([Message("t", b"%d" % n + bytes(KIB)) for n in range(20)], partition=0)
    table = table_of(bytes_max=64 * KIB)
    ids = [table.add(scanner_of(bytes_max=100 * KIB)) for _ in range(4)]
    for number in range(20):
        for scanner in ids:
            assert take(table, scanner) == [b"%d" % number + bytes(KIB)]
            assert 0 <= table.held_bytes <= 64 * KIB
    assert table.held_bytes == 0


def test_a_second_call_for_one_is_refused_and_closing_waits_for_none(
    queue: hqueue.Queue, scanner_of: Make, clock: SteppedClock, table_of: Make
) -> None:
    queue.put([Message("t", b"%d" % n) for n in range(5)], partition=0)
    table = table_of()
    scanner_id = table.add(scanner_of())
    with table.used(scanner_id) as scanner:
        with pytest.raises(ScannerBusyError):
            take(table, scanner_id)
        table.close(scanner_id)
        assert len(scanner.take(2)) == 2
    assert (len(table), table.held_bytes) == (0, 0)


def test_one_that_is_closed_while_it_is_let_rest_holds_nothing(
    queue: hqueue.Queue,
    scanner_of: Make,
    clock: SteppedClock,
    table_of: Make,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue.put([Message("t", b"%d" % n) for n in range(5)], partition=0)
    table, scanner = table_of(), scanner_of()
    scanner_id = table.add(scanner)
    assert take(table, scanner_id) == [b"0"]
    assert table.held_bytes > 0

    async def close_meanwhile() -> None:
        monkeypatch.undo()
        await table.of.close(scanner_id)

    monkeypatch.setattr(scanner.of, "release", close_meanwhile)
    clock.now_ms += UNUSED_SCAN_MS_MAX
    table.sweep()
    assert (len(table), table.held_bytes, scanner.held_bytes) == (0, 0, 0)
