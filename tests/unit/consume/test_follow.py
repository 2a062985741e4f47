"""Following many partitions: what happens when some of them can't be read for a while."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import cast

import pytest

from hqueue.consume.decode import messages_of
from hqueue.consume.follow import follow
from hqueue.errors import HQueueError, QueueDisabledError, StoreUnavailableError
from hqueue.log import PartitionCursor
from hqueue.log.ports import Row
from hqueue.runtime.clock import Clock, Deadline, drive_each
from hqueue.settings.limits import MESSAGE_ID_MAX
from tests.support.doubles import Rows, SteppedClock

BOUND_MS = 5_000


class EventfulClock(SteppedClock):
    """One at which something happens at times."""

    def __init__(self) -> None:
        super().__init__()
        self.at: list[tuple[float, Callable[[], None]]] = []
        self.wakes_early_ms = 0.0

    def sleep_ms(self, duration_ms: float) -> None:
        super().sleep_ms(max(0.01, duration_ms - self.wakes_early_ms))
        for moment in [each for each in self.at if each[0] <= self.now_ms]:
            self.at.remove(moment)
            moment[1]()


@pytest.fixture
def clock() -> EventfulClock:
    return EventfulClock()


@pytest.fixture
def rows() -> Rows:
    return Rows()


def followed(
    rows: Rows,
    clock: EventfulClock,
    partitions: int,
    idle_ms_max: int = 1_000,
    stop: int = MESSAGE_ID_MAX + 1,
) -> Iterable[bytes]:
    time = cast("Clock", clock)
    work = follow(
        [PartitionCursor(p, stop=stop, clock=time) for p in range(partitions)],
        lambda: Deadline(time, BOUND_MS),
        idle_ms_max=idle_ms_max,
        closed=lambda: False,
        bytes_max=1_000,
        clock=time,
    )
    for batches in drive_each(work, rows, time):
        for batch in batches:
            for message in messages_of(batch):
                yield message.value


def test_what_was_accepted_is_given_when_a_later_partition_fails(
    rows: Rows, clock: EventfulClock
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

    def find(slots: Sequence[tuple[int, int]], topics: Iterable[str] | None) -> list[Row]:
        return [rows.rows[0][-1], rows.rows[1][-1]]

    rows.get = find  # type: ignore[method-assign]
    rows.failure = lambda method: StoreUnavailableError("away") if method == "newest" else None
    assert next(values) == b"new"
    with pytest.raises(HQueueError):
        next(values)


def test_a_queue_that_is_disabled_for_a_while_is_waited_for(
    rows: Rows, clock: EventfulClock
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


@pytest.mark.parametrize("wakes_early_ms", [0.0, 0.5])
def test_a_queue_that_stays_disabled_is_an_error_after_an_operations_bound(
    rows: Rows, clock: EventfulClock, wakes_early_ms: float
) -> None:
    clock.wakes_early_ms = wakes_early_ms
    rows.append(0, b"old")
    values = iter(followed(rows, clock, 1, idle_ms_max=60_000))
    assert next(values) == b"old"
    rows.failure = lambda method: QueueDisabledError("disabled")
    began_ms = clock.now_ms
    with pytest.raises(QueueDisabledError):
        next(values)
    assert BOUND_MS <= clock.now_ms - began_ms <= BOUND_MS + 200


def test_many_partitions_are_asked_without_bodies_and_then_in_a_few_requests(
    rows: Rows, clock: EventfulClock
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


def test_few_partitions_are_asked_with_the_bodies_at_once(rows: Rows, clock: EventfulClock) -> None:
    rows.append(0, b"old")
    values = iter(followed(rows, clock, 2))
    assert next(values) == b"old"
    rows.asked.clear()
    rows.append(0, b"new")
    assert next(values) == b"new"
    assert rows.asked[-1] == (2, 3)


def test_batches_in_quick_succession_come_several_at_a_time(
    rows: Rows, clock: EventfulClock
) -> None:
    rows.append(0, b"old")
    values = iter(followed(rows, clock, 1))
    assert next(values) == b"old"
    for number in range(4):
        rows.append(0, b"%d" % number)
        assert next(values) == b"%d" % number
    for number in range(10):
        rows.append(0, b"quick %d" % number)
    rows.asked.clear()
    assert [next(values) for _ in range(10)] == [b"quick %d" % number for number in range(10)]
    assert len(rows.asked) <= 3


def test_one_that_is_silent_beside_a_busy_one_is_found_where_its_log_goes_on(
    rows: Rows, clock: EventfulClock
) -> None:
    rows.append(0, b"old")
    rows.append(1, b"old")
    values = iter(followed(rows, clock, 2))
    assert [next(values), next(values)] == [b"old", b"old"]
    rows.rows[1].clear()
    rows.append(1, b"after truncation", base=1 << 40)
    came: list[bytes] = []
    while b"after truncation" not in came:
        rows.append(0, b"busy")
        clock.now_ms += 100
        came.append(next(values))
        assert len(came) < 100


def test_a_queue_that_is_disabled_now_and_then_is_waited_for_each_time(
    rows: Rows, clock: EventfulClock
) -> None:
    rows.append(0, b"old")
    values = iter(followed(rows, clock, 1, idle_ms_max=60_000))
    assert next(values) == b"old"

    def enable() -> None:
        rows.failure = lambda method: None
        rows.append(0, b"new")

    for _ in range(3):
        rows.failure = lambda method: QueueDisabledError("disabled")
        clock.at.append((clock.now_ms + BOUND_MS - 1_000, enable))
        assert next(values) == b"new"


def test_a_queue_that_can_be_read_meanwhile_is_waited_for_again_though_nothing_came(
    rows: Rows, clock: EventfulClock
) -> None:
    rows.append(0, b"old")
    values = iter(followed(rows, clock, 1, idle_ms_max=60_000))
    assert next(values) == b"old"

    def disable() -> None:
        rows.failure = lambda method: QueueDisabledError("disabled")

    def enable() -> None:
        rows.failure = lambda method: None

    for times in range(3):
        clock.at.append((clock.now_ms + times * BOUND_MS, disable))
        clock.at.append((clock.now_ms + times * BOUND_MS + BOUND_MS - 1_000, enable))
    clock.at.append((clock.now_ms + 4 * BOUND_MS, lambda: rows.append(0, b"new")))
    assert next(values) == b"new"


def test_it_ends_when_nothing_came_for_so_long_and_not_before(
    rows: Rows, clock: EventfulClock
) -> None:
    for number in range(1, 6):
        clock.at.append((900.0 * number, lambda: rows.append(0, b"new")))
    assert list(followed(rows, clock, 1, idle_ms_max=1_000)) == [b"new"] * 5
    assert 900 * 5 + 1_000 <= clock.now_ms <= 900 * 5 + 1_300


def test_it_ends_when_all_partitions_were_read_to_their_stops(
    rows: Rows, clock: EventfulClock
) -> None:
    clock.at.append((50.0, lambda: rows.append(0, b"wanted")))
    clock.at.append((100.0, lambda: rows.append(1, b"wanted")))
    clock.at.append((150.0, lambda: rows.append(1, b"not wanted")))
    values = list(followed(rows, clock, 2, idle_ms_max=60_000, stop=1_000))
    assert values == [b"wanted", b"wanted"]
    assert clock.now_ms < 300
