"""Which partitions are asked for when, and what an answer means: over a store in memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hqueue.consume.decode import messages_of
from hqueue.consume.fetcher import SEVERAL_ROWS, Fetch, Fetcher, Pace, fetch_once
from hqueue.consume.polling import poll
from hqueue.errors import CorruptLogError, HQueueError, QueueDisabledError, StoreUnavailableError
from hqueue.log import Batch, PartitionReader
from hqueue.log.ports import ReadPort, Row
from hqueue.runtime.backoff import Backoff
from hqueue.runtime.clock import Deadline, drive_each
from tests.support.doubles import Rows, SteppedClock

PACE = Pace(
    idle=Backoff(2, 16),
    failed=Backoff(100, 400),
    after_batch_ms=1,
    check_every_ms=1_000,
    gather_share=0.5,
)
LATER_ID = 1 << 40


class Driver:
    """Drives a fetcher as the real ones do, and keeps what came."""

    def __init__(self, partitions: int, pace: Pace = PACE) -> None:
        self.rows = Rows()
        self.clock = SteppedClock()
        port = cast(ReadPort, self.rows)
        self.fetches = [
            Fetch(PartitionReader(p, port, clock=self.clock), pace, 0.0) for p in range(partitions)
        ]
        self.fetcher = Fetcher(self.fetches)
        self.values: dict[int, list[bytes]] = {p: [] for p in range(partitions)}
        self.polls: list[tuple[tuple[int, ...], int]] = []

    def round(self) -> list[int]:
        """Ask for those that are due, once; the partitions that were asked for."""
        asked = self.fetcher.take_due(self.clock.now_ms)
        error: HQueueError | None = None
        try:
            for each in asked:
                while not each.reader.at_tail:
                    self._keep(each.reader.read(self.one_try()))
            for batches in fetch_once(asked, self.ask, self.one_try):
                self._keep(batches)
        except HQueueError as exc:
            error = exc
        for each in asked:
            each.answered(self.clock.now_ms, error)
            self.fetcher.request(each)
        return [each.reader.partition for each in asked]

    def rounds(self, for_ms: float) -> list[list[int]]:
        """Ask whenever it is due, for so long."""
        ends_ms, asked = self.clock.now_ms + for_ms, []
        while self.fetcher.next_due_ms <= ends_ms:
            self.clock.now_ms = max(self.clock.now_ms, self.fetcher.next_due_ms)
            asked.append(self.round())
        self.clock.now_ms = ends_ms
        return [each for each in asked if each]

    def truncate(self, partition: int) -> None:
        self.rows.rows[partition] = []

    def _keep(self, batches: list[Batch]) -> None:
        for batch in batches:
            self.values[batch.partition] += [m.value for m in messages_of(batch)]

    def ask(self, readers: Sequence[PartitionReader], rows_max: int) -> Iterator[list[Batch]]:
        self.polls.append((tuple(reader.partition for reader in readers), rows_max))
        work = poll([reader.steps for reader in readers], self.one_try, 10_000, rows_max)
        return drive_each(work, self.rows, self.clock)

    def one_try(self) -> Deadline:
        return Deadline(self.clock, 0)


def test_the_pause_grows_to_its_bound_and_begins_again_with_a_batch() -> None:
    driver = Driver(1)
    pauses = []
    for _ in range(6):
        driver.round()
        pauses.append(driver.fetches[0].pause_ms)
        driver.clock.now_ms = driver.fetcher.next_due_ms
    assert pauses == [2, 4, 8, 16, 16, 16]
    driver.rows.append(0, b"a")
    driver.round()
    assert (driver.values[0], driver.fetches[0].pause_ms) == ([b"a"], PACE.after_batch_ms)
    assert driver.round() == []
    driver.clock.now_ms = driver.fetcher.next_due_ms
    driver.round()
    assert driver.fetches[0].pause_ms == 2


def test_those_that_are_due_soon_gather_with_one_that_is_due() -> None:
    driver = Driver(3)
    for each, due_ms in zip(driver.fetches, (0, 8, 9), strict=True):
        each.pause_ms, each.due_ms = 16, due_ms
    assert driver.round() == [0, 1]
    assert driver.fetcher.next_due_ms == 9
    assert driver.round() == []
    # None of them alone makes the others due.
    driver.clock.now_ms = 8.9
    assert driver.round() == []


def test_one_that_is_asked_for_waits_no_more_until_it_is_wanted() -> None:
    driver = Driver(2)
    first = driver.fetcher.take_first(0.0)
    assert first is driver.fetches[0]
    assert first not in driver.fetcher
    assert (len(driver.fetcher), driver.round()) == (1, [1])
    driver.fetcher.request(first)
    assert driver.round() == [0]
    driver.fetcher.drop(first)
    driver.fetcher.drop(first)
    driver.clock.now_ms = 1_000
    assert driver.round() == [1]


def test_one_that_is_behind_is_gone_on_with_before_another_is_begun() -> None:
    driver = Driver(3)
    for partition in range(3):
        driver.rows.append(partition, b"a")
        driver.rows.append(partition, b"b")
    begun = driver.fetcher.take_first(0.0)
    assert begun is driver.fetches[0]
    begun.reader.read(Deadline(driver.clock, 0))
    assert not begun.reader.at_tail
    driver.fetcher.request(begun)
    assert driver.fetcher.take_first(0.0) is begun
    begun.reader.read(Deadline(driver.clock, 0))
    begun.reader.read(Deadline(driver.clock, 0))
    assert begun.reader.at_tail
    driver.fetcher.request(begun)
    assert driver.fetcher.take_first(0.0) is driver.fetches[1]


def test_after_some_batches_in_a_row_several_are_asked_for_and_not_where_one_comes() -> None:
    driver = Driver(1)
    driver.rounds(100)
    driver.polls.clear()
    for number in range(30):
        driver.rows.append(0, b"%d" % number)
        driver.clock.now_ms = driver.fetcher.next_due_ms
        driver.round()
    assert driver.values[0] == [b"%d" % number for number in range(30)]
    # After the fourth, and again after sixteen more.
    tried = [at for at, (_, rows_max) in enumerate(driver.polls) if rows_max == SEVERAL_ROWS]
    assert tried == [4, 21]
    driver.fetches[0].hits = 4
    for number in range(10):
        driver.rows.append(0, b"more %d" % number)
    driver.polls.clear()
    driver.clock.now_ms += 20
    driver.round()
    assert driver.polls == [((0,), SEVERAL_ROWS)]
    assert len(driver.values[0]) == 40
    assert driver.fetches[0].hits == 4


def test_four_batches_in_a_row_make_it_several_and_a_silence_begins_the_count_again() -> None:
    driver = Driver(1)
    driver.rounds(100)
    for batches, several in ((3, False), (4, True)):
        for _ in range(batches):
            driver.rows.append(0, b"x")
            driver.clock.now_ms = driver.fetcher.next_due_ms
            driver.round()
        driver.polls.clear()
        driver.clock.now_ms = driver.fetcher.next_due_ms
        driver.round()
        assert [rows_max > 1 for _, rows_max in driver.polls] == [several]


@pytest.mark.parametrize("partition", [0, 1])
def test_what_came_before_an_error_counts_and_all_that_were_asked_for_pause(partition: int) -> None:
    driver = Driver(2)
    driver.rounds(50)
    for each in (0, 1):
        driver.rows.append(each, b"good")
        driver.rows.append(each, b"lost")
        driver.rows.append(each, b"later")
    held = driver.rows.rows[1]
    good, _, later = held
    driver.rows.rows[1] = [good, Row(later.key, 1, good.slot + 1_000, later.header, later.cells)]
    began_ms = driver.clock.now_ms
    while not any(each.pause_ms >= PACE.failed.first_ms for each in driver.fetches):
        driver.clock.now_ms = driver.fetcher.next_due_ms
        driver.round()
    assert driver.clock.now_ms - began_ms <= 50
    assert driver.values[1] == [b"good"]
    assert driver.values[0][0] == b"good"
    assert driver.fetches[partition].pause_ms == PACE.failed.first_ms
    pauses = []
    for _ in range(3):
        driver.clock.now_ms = driver.fetches[1].due_ms
        driver.round()
        pauses.append(driver.fetches[1].pause_ms)
    assert pauses == [200, 400, 400]
    driver.rows.rows[1] = held
    driver.rounds(500)
    assert driver.values == {p: [b"good", b"lost", b"later"] for p in (0, 1)}


def test_the_end_of_the_log_is_looked_at_now_and_then_where_nothing_comes() -> None:
    driver = Driver(2)
    looks: list[float] = []

    def note(method: str) -> None:
        if method == "newest":
            looks.append(driver.clock.now_ms)

    driver.rows.failure = note  # type: ignore[assignment]
    driver.fetches[0].checked_ms = driver.fetches[1].checked_ms = 0.0
    for number in range(100):
        driver.rows.append(0, b"%d" % number)
        driver.rounds(100)
    # The other has batches all the time, and those say as much.
    assert 9 <= len(looks) <= 10
    assert all(later - earlier >= 1_000 for earlier, later in itertools.pairwise(looks))


@pytest.mark.parametrize(("after_ms", "looks"), [(999, False), (1_000, True)])
def test_the_end_is_looked_at_when_it_is_time_and_not_before(after_ms: float, looks: bool) -> None:
    (first,) = Driver(1).fetches
    first.begin(after_ms)
    assert first.check is looks


def test_the_first_looks_at_many_ends_spread_over_the_time_between_two_of_one() -> None:
    driver = Driver(100)
    checked = sorted(each.checked_ms for each in driver.fetches)
    assert -1_000 < checked[0] <= checked[-1] == 0
    assert max(b - a for a, b in itertools.pairwise(checked)) < 30


def test_a_log_that_was_truncated_is_found_again_and_read_on() -> None:
    driver = Driver(1)
    driver.rows.append(0, b"old")
    driver.rounds(100)
    driver.truncate(0)
    driver.rows.append(0, b"new", base=LATER_ID)
    driver.rows.append(0, b"newer")
    driver.rounds(1_100)
    assert driver.values[0] == [b"old", b"new", b"newer"]


def test_a_queue_that_could_not_be_read_is_looked_at_whole_before_it_is_read_on() -> None:
    driver = Driver(1)
    driver.rows.append(0, b"old")
    driver.rounds(100)
    driver.rows.failure = lambda method: QueueDisabledError("disabled")
    driver.rounds(100)
    assert driver.fetches[0].pause_ms >= PACE.failed.first_ms
    driver.truncate(0)
    driver.rows.append(0, b"new", base=LATER_ID)
    driver.rows.failure = lambda method: None
    driver.rounds(PACE.failed.most_ms)
    assert driver.values[0] == [b"old", b"new"]


def test_another_error_is_no_reason_to_look_at_the_ends() -> None:
    driver = Driver(1)
    driver.rounds(100)
    checked_ms = driver.fetches[0].checked_ms
    driver.rows.failure = lambda method: StoreUnavailableError("away")
    driver.rounds(100)
    assert driver.fetches[0].checked_ms == checked_ms


def test_idle_partitions_are_asked_for_together() -> None:
    driver = Driver(50)
    rounds = driver.rounds(1_000)
    assert all(len(asked) == 50 for asked in rounds)
    assert len(rounds) <= 1_000 / PACE.idle.most_ms + 5


events = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 2)),
        st.tuples(st.just("pass"), st.integers(0, 50)),
        st.tuples(st.just("fail"), st.sampled_from(["get", "headers", "newest", "open"])),
        st.tuples(st.just("mend"), st.none()),
    ),
    max_size=60,
)


@given(events)
def test_everything_comes_once_and_in_order_whatever_fails_meanwhile(
    happened: list[tuple[str, object]],
) -> None:
    driver = Driver(3)
    expected: dict[int, list[bytes]] = {p: [] for p in range(3)}
    for number, (kind, what) in enumerate(happened):
        if kind == "append":
            partition = cast(int, what)
            expected[partition].append(b"%d" % number)
            driver.rows.append(partition, b"%d" % number)
        elif kind == "pass":
            driver.rounds(cast(int, what))
        else:
            failing = what
            driver.rows.failure = lambda method, failing=failing: (  # type: ignore[misc]
                StoreUnavailableError("away") if method == failing else None
            )
    driver.rows.failure = lambda method: None
    driver.rounds(2 * PACE.failed.most_ms)
    assert driver.values == expected
    assert all(each.reader.at_tail for each in driver.fetches)


def test_a_corrupt_row_stays_an_error() -> None:
    driver = Driver(1)
    driver.rounds(50)
    driver.rows.append(0, b"good")
    (row,) = driver.rows.rows[0]
    driver.rows.rows[0] = [Row(row.key, 0, row.slot, b"broken", row.cells)]
    for _ in range(2):
        driver.clock.now_ms = driver.fetcher.next_due_ms
        (each,) = driver.fetcher.take_due(driver.clock.now_ms)
        with pytest.raises(CorruptLogError):
            list(fetch_once([each], driver.ask, driver.one_try))
        each.answered(driver.clock.now_ms, CorruptLogError("corrupt"))
        driver.fetcher.request(each)
