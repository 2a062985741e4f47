"""What every store must do with a queue's rows: everything that `hqueue.log.ports` promises."""

from __future__ import annotations

import contextlib
import itertools
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from hqueue import ClosedError, Outcome, QueueNotFoundError
from hqueue.errors import HQueueError, QueueDisabledError, StoreUnavailableError
from hqueue.format import rowkey
from hqueue.log.ports import Row
from hqueue.log.table_ports import LogPort
from hqueue.runtime.clock import SystemClock
from hqueue.settings.limits import MESSAGE_ID_MAX
from hqueue.store import StorePort
from tests.support.backends import Backend, LossyWay
from tests.support.looped import LoopThread, looped
from tests.support.proxy import Fate
from tests.support.raw import RawTables

PARTITIONS = 128
HOUR_MS = 3_600_000
SLOTS = (0, 1, 32_768, 1 << 40, MESSAGE_ID_MAX)
"""Slots whose row keys differ in every part."""

_next_partition = itertools.count(1)


@pytest.fixture(scope="module")
def table(store: StorePort) -> Iterator[str]:
    """A table for all of these tests: each takes partitions of its own."""
    name = f"rows-{uuid.uuid4().hex[:12]}"
    store.tables.create(name, PARTITIONS, 86_400, {"partitions_per_region": 40})
    yield name
    store.tables.disable(name)
    store.tables.delete(name)


OpenLog = Callable[[StorePort, str], LogPort]
OpenTable = Callable[[StorePort], LogPort]


@pytest.fixture(scope="module", params=["blocking", "loop"])
def open_log(request: pytest.FixtureRequest) -> Iterator[OpenLog]:
    """Opens a queue's log: the port that blocks, or that for event loops, behind the same face."""
    if request.param == "blocking":
        yield lambda store, queue: store.log(queue)
        return
    with contextlib.closing(LoopThread()) as thread:
        yield lambda store, queue: looped(store.async_log(queue), thread)


@pytest.fixture(scope="module")
def open_table(open_log: OpenLog, table: str) -> OpenTable:
    return lambda store: open_log(store, table)


@pytest.fixture(scope="module")
def log(open_table: OpenTable, store: StorePort) -> LogPort:
    return open_table(store)


@pytest.fixture
def partition() -> int:
    """An empty partition, with empty ones on both sides. Never the first one or the last."""
    return 2 + next(_next_partition) * 2 % (PARTITIONS - 4)


@pytest.fixture
def small(store: StorePort, queue_name: str) -> Iterator[str]:
    """A table of the test's own."""
    store.tables.create(queue_name, 1, None, {})
    yield queue_name
    with contextlib.suppress(QueueNotFoundError):
        store.tables.disable(queue_name)
        store.tables.delete(queue_name)


def now_ms() -> int:
    return SystemClock().wall_ms()


def header(slot: int) -> bytes:
    return b"header of %d" % slot


def fill(log: LogPort, partition: int, slots: Sequence[int] = SLOTS) -> None:
    for slot in slots:
        assert log.put_if_absent(partition, slot, header(slot), {b"t": b"%d" % slot})


def slots_of(rows: Sequence[Row | None]) -> list[int]:
    return [row.slot for row in rows if row is not None]


# Writing


def test_a_slot_is_won_once_and_keeps_what_the_winner_wrote(log: LogPort, partition: int) -> None:
    cells = {b"a": b"1", b"b": bytes(range(256))}
    assert log.put_if_absent(partition, 7, b"first", cells)
    assert not log.put_if_absent(partition, 7, b"second", {b"a": b"2", b"c": b"3"})
    assert not log.put_if_absent(partition, 7, b"first", cells)
    assert log.put_if_absent(partition, 8, b"beside", {})
    key = rowkey.encode(partition, 7)
    (row,) = log.get([(partition, 7)], None)
    assert row == Row(key, partition, 7, b"first", {"a": b"1", "b": bytes(range(256))})


def test_of_writers_at_once_one_wins_each_slot_whole(log: LogPort, partition: int) -> None:
    def write(number: int) -> list[int]:
        cells = {b"t%d" % n: b"%d" % number for n in range(5)}
        return [s for s in range(10) if log.put_if_absent(partition, s, b"%d" % number, cells)]

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(write, range(8)))
    assert sorted(slot for slots in won for slot in slots) == list(range(10))
    rows = {row.slot: row for row in log.get([(partition, slot) for slot in range(10)], None)}
    for number, slots in enumerate(won):
        for slot in slots:
            assert rows[slot].header == b"%d" % number
            assert set(rows[slot].cells.values()) == {b"%d" % number}
            assert len(rows[slot].cells) == 5


TOPICS = ["a", "a:b", ":", "message", "log:batch", "ä€😀", " ", "\0", "x" * 255]


def test_any_topic_and_any_bytes_are_kept(log: LogPort, partition: int) -> None:
    cells = {topic: topic.encode() * 3 for topic in TOPICS} | {
        "empty": b"",
        "large": bytes(8 << 20),
    }
    put = {topic.encode(): cell for topic, cell in cells.items()}
    assert log.put_if_absent(partition, 1, b"\0\xff", put)
    (row,) = log.get([(partition, 1)], None)
    assert (row.header, row.cells) == (b"\0\xff", cells)
    for topic in TOPICS:
        (row,) = log.get([(partition, 1)], [topic, "none"])
        assert row.cells == {topic: cells[topic]}


def test_a_deleted_header_leaves_the_bodies_and_the_others(log: LogPort, partition: int) -> None:
    fill(log, partition)
    log.delete_headers(partition, [SLOTS[0], SLOTS[2]], now_ms())
    assert [log.header(partition, slot) for slot in SLOTS[:3]] == [None, header(1), None]
    assert slots_of(log.headers(partition, 0, 9)) == [SLOTS[1], *SLOTS[3:]]
    assert slots_of(log.backwards(partition, SLOTS[3], 9)) == [SLOTS[3], SLOTS[1]]
    assert slots_of([log.newest(partition, SLOTS[2])]) == [SLOTS[1]]
    (row,) = log.get([(partition, SLOTS[2])], None)
    assert (row.header, row.cells) == (None, {"t": b"32768"})
    # They are not there: that is done, too.
    log.delete_headers(partition, [SLOTS[0], 5], now_ms())


def test_a_header_that_was_written_since_is_not_deleted(log: LogPort, partition: int) -> None:
    fill(log, partition)
    log.delete_headers(partition, SLOTS, now_ms() - 60_000)
    assert slots_of(log.headers(partition, 0, 9)) == list(SLOTS)


def test_a_deleted_row_is_gone(log: LogPort, partition: int) -> None:
    for slot in (1, 2):
        assert log.put_if_absent(partition, slot, b"h", {b"a": b"1", b"b": b"2"})
    log.delete_row(partition, 1, [b"a", b"b"])
    assert slots_of(log.get([(partition, 1), (partition, 2)], None)) == [2]
    assert log.header(partition, 1) is None
    assert slots_of(log.headers(partition, 0, 9)) == [2]


# Reading headers


def test_the_newest_row_is_the_highest_at_or_below(log: LogPort, partition: int) -> None:
    assert log.newest(partition, MESSAGE_ID_MAX) is None
    for beside in (partition - 1, partition + 1):
        log.put_if_absent(beside, 1, b"another partition's", {b"t": b""})
    assert log.newest(partition, MESSAGE_ID_MAX) is None
    fill(log, partition)
    for at, expected in [
        (0, 0),
        (1, 1),
        (2, 1),
        (32_767, 1),
        (32_768, 32_768),
        ((1 << 40) - 1, 32_768),
        (MESSAGE_ID_MAX - 1, 1 << 40),
        (MESSAGE_ID_MAX, MESSAGE_ID_MAX),
    ]:
        row = log.newest(partition, at)
        key = rowkey.encode(partition, expected)
        assert row == Row(key, partition, expected, header(expected), {}), "without bodies"


def test_headers_ascend_from_a_slot_on_up_to_a_limit(log: LogPort, partition: int) -> None:
    assert log.headers(partition, 0, 10) == []
    fill(log, partition)
    fill(log, partition + 1, [0])
    assert slots_of(log.headers(partition, 0, 10)) == list(SLOTS)
    assert slots_of(log.headers(partition, 0, 2)) == [0, 1]
    assert slots_of(log.headers(partition, 1, 2)) == [1, 32_768]
    assert slots_of(log.headers(partition, 2, 10)) == list(SLOTS[2:])
    assert slots_of(log.headers(partition, MESSAGE_ID_MAX, 10)) == [MESSAGE_ID_MAX]
    (first, *_) = log.headers(partition, 0, 1)
    assert first == Row(rowkey.encode(partition, 0), partition, 0, header(0), {})


def test_backwards_descends_to_the_first_of_the_partition(log: LogPort, partition: int) -> None:
    fill(log, partition - 1, [MESSAGE_ID_MAX])
    assert log.backwards(partition, MESSAGE_ID_MAX, 10) == []
    fill(log, partition)
    assert slots_of(log.backwards(partition, MESSAGE_ID_MAX, 10)) == list(SLOTS[::-1])
    assert slots_of(log.backwards(partition, MESSAGE_ID_MAX - 1, 2)) == [1 << 40, 32_768]
    assert slots_of(log.backwards(partition, 0, 10)) == [0]
    assert [row.cells for row in log.backwards(partition, 1, 2)] == [{}, {}]


def test_more_headers_than_a_server_gives_at_once(log: LogPort, partition: int) -> None:
    slots = range(0, 3_000, 2)
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda slot: fill(log, partition, [slot]), slots))
    assert slots_of(log.headers(partition, 0, 10_000)) == list(slots)
    assert slots_of(log.backwards(partition, 2_999, 1_200)) == list(slots)[:299:-1]
    stream = log.open(partition, 0, 3_000, None)
    read = [row for count in (1, 700, 700, 700) for row in stream.read(count)]
    assert slots_of(read) == list(slots)
    stream.close()


# Reading rows


def test_many_rows_of_many_partitions_come_with_one_request(log: LogPort, partition: int) -> None:
    fill(log, partition)
    fill(log, partition + 1, [5])
    asked = [(partition, slot) for slot in (*SLOTS, 2, 3)] + [
        (partition + 1, 5),
        (partition + 1, 6),
    ]
    found = log.get(asked, None)
    assert sorted((row.partition, row.slot) for row in found) == sorted(
        [*((partition, slot) for slot in SLOTS), (partition + 1, 5)]
    )
    for row in found:
        assert (row.header, row.cells) == (header(row.slot), {"t": b"%d" % row.slot})


def test_only_topics_that_are_asked_for_come(log: LogPort, partition: int) -> None:
    assert log.put_if_absent(partition, 1, b"h1", {b"a": b"1", b"b": b"2", b"ab": b"3"})
    assert log.put_if_absent(partition, 2, b"h2", {b"b": b"4"})
    for topics, expected in [
        (None, [{"a": b"1", "b": b"2", "ab": b"3"}, {"b": b"4"}]),
        (["a"], [{"a": b"1"}, {}]),
        (["b", "a"], [{"a": b"1", "b": b"2"}, {"b": b"4"}]),
        ([], [{}, {}]),
    ]:
        rows = sorted(log.get([(partition, 1), (partition, 2)], topics), key=lambda row: row.slot)
        stream = log.open(partition, 0, 9, topics)
        assert [row.cells for row in rows] == expected
        assert [row.cells for row in stream.read(9)] == expected
        assert [row.header for row in rows] == [b"h1", b"h2"]
        stream.close()


def test_a_stream_gives_its_range_in_order_and_then_nothing(log: LogPort, partition: int) -> None:
    fill(log, partition, [1, 3, 5, 7, 9])
    fill(log, partition + 1, [0])
    for start, stop, expected in [
        (0, MESSAGE_ID_MAX + 1, [1, 3, 5, 7, 9]),
        (3, 9, [3, 5, 7]),
        (4, 8, [5, 7]),
        (10, MESSAGE_ID_MAX + 1, []),
    ]:
        stream = log.open(partition, start, stop, None)
        first = stream.read(2)
        assert slots_of(first) == expected[:2]
        assert slots_of(stream.read(100)) == expected[2:]
        assert stream.read(100) == stream.read(1) == []
        stream.close()
        stream.close()


def test_a_stream_that_was_closed_early_holds_up_nobody(log: LogPort, partition: int) -> None:
    fill(log, partition, range(5))
    streams = [log.open(partition, 0, 9, None) for _ in range(3)]
    assert [slots_of(stream.read(1)) for stream in streams] == [[0]] * 3
    streams[0].close()
    assert slots_of(streams[1].read(9)) == slots_of(streams[2].read(9)) == [1, 2, 3, 4]
    with pytest.raises(StoreUnavailableError):
        streams[0].read(1)


# Expiry


def test_bodies_expire_by_their_time_and_headers_do_not(
    log: LogPort, raw: RawTables, table: str, partition: int
) -> None:
    now_ms = time.time_ns() // 1_000_000
    for slot, age_ms in ((1, 25 * HOUR_MS), (2, 23 * HOUR_MS)):
        cells = {b"log:batch": header(slot), b"message:t": b"%d" % slot}
        raw.put(table, rowkey.encode(partition, slot), cells, now_ms - age_ms)
    asked = [(partition, 1), (partition, 2)]
    stream = log.open(partition, 0, 9, ["t"])
    for rows in (log.get(asked, None), log.get(asked, ["t"]), stream.read(9)):
        assert {row.slot: row.cells for row in rows} == {1: {}, 2: {"t": b"2"}}
    stream.close()
    assert slots_of(log.headers(partition, 0, 9)) == [1, 2]
    assert not log.put_if_absent(partition, 1, b"other", {})


# Records


def test_a_record_is_replaced_by_whoever_knows_what_it_was(log: LogPort, queue_name: str) -> None:
    assert log.record(queue_name) is None
    assert not log.replace_record(queue_name, b"1", b"2")
    assert log.replace_record(queue_name, None, b"1")
    assert not log.replace_record(queue_name, None, b"2")
    assert not log.replace_record(queue_name, b"2", b"3")
    assert log.record(queue_name) == b"1"
    assert log.replace_record(queue_name, b"1", b"\0\xff")
    assert log.record(queue_name) == b"\0\xff"
    assert log.record(queue_name + "/ä") is None


def test_of_replacements_at_once_one_succeeds(log: LogPort, queue_name: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda n: log.replace_record(queue_name, None, b"%d" % n), range(8)))
    assert sum(won) == 1
    assert log.record(queue_name) == b"%d" % won.index(True)


def test_records_are_in_no_partition(log: LogPort, queue_name: str) -> None:
    assert log.replace_record(queue_name, None, b"1")
    last = PARTITIONS - 1
    assert log.headers(last, 0, 10) == log.backwards(last, MESSAGE_ID_MAX, 10) == []
    stream = log.open(last, 0, MESSAGE_ID_MAX + 1, None)
    assert stream.read(10) == []
    stream.close()


# The clock


class ClockAhead(SystemClock):
    """This machine's clock, an hour ahead."""

    def wall_ms(self) -> int:
        return super().wall_ms() + HOUR_MS


def test_the_stores_clock_is_measured_and_nothing_stays(
    backend: Backend, raw: RawTables, open_log: OpenLog, small: str
) -> None:
    for clock, expected_ms in ((SystemClock(), 0), (ClockAhead(), -HOUR_MS)):
        with contextlib.closing(backend.store(clock)) as store:
            ahead_ms, error_ms = open_log(store, small).clock_offset_ms()
        assert abs(ahead_ms - expected_ms) <= error_ms + 50
        assert 0 <= error_ms < 2_000
    assert raw.rows(small) == {}


# States of the table, and of the way to it

REQUESTS: Mapping[str, Callable[[LogPort], object]] = {
    "newest": lambda log: log.newest(0, 1),
    "headers": lambda log: log.headers(0, 0, 1),
    "backwards": lambda log: log.backwards(0, 1, 1),
    "header": lambda log: log.header(0, 1),
    "get": lambda log: log.get([(0, 1)], None),
    "get several": lambda log: log.get([(0, 1), (0, 2)], None),
    "open": lambda log: log.open(0, 0, 1, None).read(1),
    "put_if_absent": lambda log: log.put_if_absent(0, 1, b"h", {b"t": b""}),
    "delete_headers": lambda log: log.delete_headers(0, [1], now_ms()),
    "delete_row": lambda log: log.delete_row(0, 1, [b"t"]),
    "clock_offset_ms": lambda log: log.clock_offset_ms(),
    "record": lambda log: log.record("r"),
    "replace_record": lambda log: log.replace_record("r", None, b"1"),
}


def refused(log: LogPort, error: type[HQueueError], left_out: str = "") -> None:
    """Each request is refused with this error, and none takes long."""
    for name, request in REQUESTS.items():
        if name == left_out:
            continue
        began = time.monotonic()
        with pytest.raises(error):
            request(log)
        assert time.monotonic() - began < 10, name


@pytest.mark.in_memory_first
def test_a_disabled_queue_refuses_every_request_and_keeps_its_rows(
    store: StorePort, open_log: OpenLog, small: str
) -> None:
    log = open_log(store, small)
    assert log.put_if_absent(0, 5, b"kept", {b"t": b"1"})
    store.tables.disable(small)
    # What fails to be deleted is left for the next time: that may take long, and need not say why.
    refused(log, QueueDisabledError, left_out="delete_headers")
    store.tables.enable(small)
    assert [(row.slot, row.cells) for row in log.get([(0, 1), (0, 5)], None)] == [(5, {"t": b"1"})]


def test_a_missing_queue_refuses_every_request(
    store: StorePort, open_log: OpenLog, queue_name: str
) -> None:
    refused(open_log(store, queue_name), QueueNotFoundError)


def test_a_queue_that_was_deleted_refuses_every_request(
    store: StorePort, open_log: OpenLog, small: str
) -> None:
    log = open_log(store, small)
    assert log.put_if_absent(0, 5, b"kept", {b"t": b"1"})
    store.tables.disable(small)
    store.tables.delete(small)
    refused(log, QueueNotFoundError)


def test_a_closed_store_refuses_every_request(
    backend: Backend, open_log: OpenLog, table: str
) -> None:
    store = backend.store()
    log = open_log(store, table)
    store.close()
    store.close()
    refused(log, ClosedError)


@pytest.mark.parametrize("fate", [Fate.LOSE_ANSWER, Fate.LOSE_REQUEST, Fate.HOLD])
def test_a_put_without_an_answer_has_an_unknown_outcome_and_is_made_once(
    lossy: LossyWay, open_table: OpenTable, log: LogPort, partition: int, fate: Fate
) -> None:
    with contextlib.closing(lossy.store()) as store:
        lossy.set_fate(lambda operation: fate if operation == "put_if_absent" else Fate.PASS)
        with pytest.raises(StoreUnavailableError) as caught:
            open_table(store).put_if_absent(partition, 1, b"h", {b"t": b"1"})
    assert caught.value.outcome is Outcome.UNKNOWN
    applied = fate is Fate.LOSE_ANSWER
    assert log.header(partition, 1) == (b"h" if applied else None)
    assert lossy.deliver() == (fate is Fate.HOLD)
    assert log.header(partition, 1) == (None if fate is Fate.LOSE_REQUEST else b"h")


def test_what_never_left_is_not_applied(lossy: LossyWay, open_table: OpenTable) -> None:
    with contextlib.closing(lossy.store()) as store:
        lossy.cut()
        for request in REQUESTS.values():
            with pytest.raises(StoreUnavailableError) as caught:
                request(open_table(store))
            assert caught.value.outcome is Outcome.NOT_APPLIED


def test_each_read_without_an_answer_says_so_and_can_be_made_again(
    lossy: LossyWay, open_table: OpenTable
) -> None:
    with contextlib.closing(lossy.store(gateway_retry_ms=1)) as store:
        for request in REQUESTS.values():
            lossy.set_fate(lambda operation: Fate.LOSE_ANSWER)
            with pytest.raises(StoreUnavailableError):
                request(open_table(store))
            lossy.set_fate(lambda operation: Fate.PASS)
            request(open_table(store))
