"""Following many partitions: what happens when some of them can't be read for a while."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import pytest

from hqueue.batch import encode_bodies, encode_header
from hqueue.clock import Clock, Deadline
from hqueue.decode import messages_of
from hqueue.errors import HQueueError, QueueDisabledError, StoreUnavailableError
from hqueue.follow import follow
from hqueue.log import PartitionReader
from hqueue.message import Message
from hqueue.ports import ReadPort, Row
from hqueue.rowkey import encode

BOUND_MS = 5_000


class SteppedClock:
    def __init__(self) -> None:
        self.now_ms = 0.0
        self.at: list[tuple[float, Callable[[], None]]] = []

    def wall_ms(self) -> int:
        return int(self.now_ms)

    def monotonic_ms(self) -> float:
        return self.now_ms

    def sleep_ms(self, duration_ms: float) -> None:
        self.now_ms += duration_ms
        for moment in [each for each in self.at if each[0] <= self.now_ms]:
            self.at.remove(moment)
            moment[1]()


class Rows:
    """A store of rows in memory that fails when it is told to."""

    def __init__(self) -> None:
        self.rows: dict[int, list[Row]] = {}
        self.failure: Callable[[str], HQueueError | None] = lambda method: None
        self.asked: list[tuple[int, int]] = []
        """For each multi-get: the rows asked for, and the bytes of bodies that came."""

    def append(self, partition: int, value: bytes, times: int = 1) -> None:
        rows = self.rows.setdefault(partition, [])
        slot = ordinal = 0
        if rows:
            slot, ordinal = rows[-1].slot + 1_000, sum(len(row.cells) for row in rows)
        bodies = encode_bodies([Message("t", value)] * times)
        key = encode(partition, slot)
        # Each batch covers the IDs up to the next slot's.
        base = slot + 1_000 - times
        header = encode_header(
            key, bodies, base=base, ordinal=ordinal, nonce=b"12345678", published_ms=0
        )
        cells = {topic.decode(): cell for topic, cell in bodies.cells.items()}
        rows.append(Row(key, partition, slot, header, cells))

    def _check(self, method: str) -> None:
        error = self.failure(method)
        if error is not None:
            raise error

    def newest(self, partition: int, at_or_below: int) -> Row | None:
        self._check("newest")
        found = [row for row in self.rows.get(partition, []) if row.slot <= at_or_below]
        return found[-1] if found else None

    def headers(self, partition: int, start: int, limit: int) -> list[Row]:
        self._check("headers")
        return [row for row in self.rows.get(partition, []) if row.slot >= start][:limit]

    def get(self, places: Sequence[tuple[int, int]], topics: Iterable[str] | None) -> list[Row]:
        self._check("get")
        wanted = None if topics is None else set(topics)
        found = [
            Row(
                row.key,
                row.partition,
                row.slot,
                row.header,
                {t: c for t, c in row.cells.items() if wanted is None or t in wanted},
            )
            for partition, slot in places
            for row in self.rows.get(partition, [])
            if row.slot == slot
        ]
        self.asked.append((len(places), sum(len(c) for r in found for c in r.cells.values())))
        return found

    def open(self, partition: int, start: int, stop: int, topics: object) -> Any:
        self._check("open")
        return Stream([r for r in self.rows.get(partition, []) if start <= r.slot < stop])


class Stream:
    def __init__(self, rows: list[Row]) -> None:
        self._rows = rows

    def read(self, rows: int) -> list[Row]:
        read, self._rows = self._rows[:rows], self._rows[rows:]
        return read

    def close(self) -> None:
        pass


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def rows() -> Rows:
    return Rows()


def followed(
    rows: Rows, clock: SteppedClock, partitions: int, idle_ms_max: int = 1_000
) -> Iterable[bytes]:
    port, time = cast("ReadPort", rows), cast("Clock", clock)
    for batches in follow(
        [PartitionReader(p, port, clock=time) for p in range(partitions)],
        port,
        lambda: Deadline(time, BOUND_MS),
        idle_ms_max=idle_ms_max,
        closed=lambda: False,
        bytes_max=1_000,
        clock=time,
    ):
        for batch in batches:
            for message in messages_of(batch):
                yield message.value


def test_what_was_accepted_is_given_when_a_later_partition_fails(
    rows: Rows, clock: SteppedClock
) -> None:
    for partition in (0, 1):
        rows.append(partition, b"old")
    values = iter(followed(rows, clock, 2))
    assert [next(values), next(values)] == [b"old", b"old"]
    rows.append(0, b"new")
    # The second partition is asked about a gap, and the store is away just then.
    rows.append(1, b"skipped")
    rows.append(1, b"later")
    skipped, later = rows.rows[1][-2:]
    rows.rows[1][-2:] = [Row(later.key, 1, skipped.slot + 1, later.header, later.cells)]

    def find(places: Sequence[tuple[int, int]], topics: Iterable[str] | None) -> list[Row]:
        return [rows.rows[0][-1], rows.rows[1][-1]]

    rows.get = find  # type: ignore[method-assign]
    rows.failure = lambda method: StoreUnavailableError("away") if method == "newest" else None
    assert next(values) == b"new"
    with pytest.raises(HQueueError):
        next(values)


def test_a_queue_that_is_disabled_for_a_while_is_waited_for(
    rows: Rows, clock: SteppedClock
) -> None:
    rows.append(0, b"old")
    values = iter(followed(rows, clock, 1, idle_ms_max=60_000))
    assert next(values) == b"old"
    rows.failure = lambda method: QueueDisabledError("disabled")

    def enable() -> None:
        rows.failure = lambda method: None
        rows.append(0, b"new")

    clock.at.append((clock.now_ms + BOUND_MS - 1_000, enable))
    assert next(values) == b"new"


def test_a_queue_that_stays_disabled_is_an_error_after_an_operations_bound(
    rows: Rows, clock: SteppedClock
) -> None:
    rows.append(0, b"old")
    values = iter(followed(rows, clock, 1, idle_ms_max=60_000))
    assert next(values) == b"old"
    rows.failure = lambda method: QueueDisabledError("disabled")
    began_ms = clock.now_ms
    with pytest.raises(QueueDisabledError):
        next(values)
    assert BOUND_MS <= clock.now_ms - began_ms <= BOUND_MS + 200


def test_many_partitions_are_asked_without_bodies_and_then_in_portions(
    rows: Rows, clock: SteppedClock
) -> None:
    for partition in range(20):
        rows.append(partition, b"old")
    values = iter(followed(rows, clock, 20))
    assert [next(values) for _ in range(20)] == [b"old"] * 20
    rows.asked.clear()
    for partition in range(20):
        rows.append(partition, b"%d" % partition * 200)
    assert [next(values) for _ in range(20)] == [b"%d" % p * 200 for p in range(20)]
    asked = [each for each in rows.asked if each[1]]
    assert (20, 0) in rows.asked
    assert len(asked) > 5
    assert max(size for _, size in asked) <= 1_000


def test_few_partitions_are_asked_with_the_bodies_at_once(rows: Rows, clock: SteppedClock) -> None:
    rows.append(0, b"old")
    values = iter(followed(rows, clock, 2))
    assert next(values) == b"old"
    rows.asked.clear()
    rows.append(0, b"new")
    assert next(values) == b"new"
    assert rows.asked[-1] == (2, 3)
