"""Cutting what is read into tasks, dividing a batch's limit, and narrowing by filters."""

from __future__ import annotations

import datetime
import operator
import random

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from hqueue import MessageID
from hqueue.settings.limits import MESSAGE_ID_MAX, SEQUENCE_MAX
from pyspark_hqueue.reading.admission import shares
from pyspark_hqueue.reading.plan import Position, Range, Task, cut
from pyspark_hqueue.reading.pushdown import Narrowing, narrowing_of

UTC = datetime.timezone.utc


def ranges_of(*messages: int, first: int = 1_000) -> list[Range]:
    """A range a partition, in which a message's ID is its ordinal and a thousand."""
    return [Range(p, first, first + n, 0, n, True) for p, n in enumerate(messages)]


def place(partition: int, ordinal: int) -> Position:
    return Position(1_000 + ordinal, ordinal)


def ids_of(tasks: list[Task]) -> list[tuple[int, int]]:
    return [(r.partition, i) for task in tasks for r in task.ranges for i in range(r.start, r.stop)]


@pytest.mark.parametrize("seed", range(30))
def test_tasks_have_equal_numbers_and_all_messages_once_and_in_order(seed: int) -> None:
    random_ = random.Random(seed)
    ranges = ranges_of(*(random_.choice([1, 3, 50, 1_000]) for _ in range(random_.randrange(1, 9))))
    total = sum(range_.messages for range_ in ranges)
    pieces = random_.randrange(1, min(total, 20) + 1)
    tasks = cut(ranges, pieces, place)
    assert ids_of(tasks) == [(r.partition, i) for r in ranges for i in range(r.start, r.stop)]
    assert len(tasks) == pieces
    assert max(task.messages for task in tasks) - min(task.messages for task in tasks) <= 1
    for task in tasks:
        assert all(r.messages == r.stop - r.start for r in task.ranges)


def test_many_small_partitions_become_few_tasks_and_a_large_one_several() -> None:
    tasks = cut(ranges_of(*[2] * 1_000), 4, place)
    assert [len(task.ranges) for task in tasks] == [250] * 4
    tasks = cut(ranges_of(100, 5), 3, place)
    assert [[r.partition for r in task.ranges] for task in tasks] == [[0], [0], [0, 1]]


def test_only_ranges_that_are_cut_are_searched_in() -> None:
    asked = []

    def noting(partition: int, ordinal: int) -> Position:
        asked.append(partition)
        return place(partition, ordinal)

    cut(ranges_of(10, 10, 10, 10), 4, noting)
    assert asked == []
    cut(ranges_of(10, 30), 4, noting)
    assert asked == [1, 1]


def test_a_cut_that_was_collected_meanwhile_leaves_no_range_beyond_the_end() -> None:
    tasks = cut(ranges_of(100), 4, lambda *_: Position(5_000, 4_000))
    assert ids_of(tasks) == [(0, i) for i in range(1_000, 1_100)]


def test_tasks_keep_their_numbers_when_what_some_of_them_read_was_collected() -> None:
    tasks = cut(ranges_of(100), 4, lambda _, ordinal: place(0, max(ordinal, 60)))
    assert [[(r.start, r.ordinal, r.messages) for r in task.ranges] for task in tasks] == [
        [(1_000, 0, 60)],
        [],
        [(1_060, 60, 15)],
        [(1_075, 75, 25)],
    ]


def test_a_cut_by_a_log_that_ends_earlier_moves_messages_to_the_next_task() -> None:
    tasks = cut(ranges_of(100), 4, lambda _, ordinal: place(0, min(ordinal, 30)))
    assert ids_of(tasks) == [(0, i) for i in range(1_000, 1_100)]
    assert [task.messages for task in tasks] == [25, 5, 0, 70]
    assert all(r.messages == r.stop - r.start for task in tasks for r in task.ranges)


def test_a_range_of_which_nothing_was_counted_is_read_all_the_same() -> None:
    ranges = [Range(p, 10, 20, 5, 0, True) for p in range(2)]
    tasks = cut(ranges, 1, place)
    assert [task.ranges for task in tasks] == [tuple(ranges)]


@pytest.mark.parametrize("seed", range(20))
def test_a_limit_is_divided_by_what_each_has_and_used_up(seed: int) -> None:
    random_ = random.Random(seed)
    messages = {p: random_.choice([0, 1, 7, 900, 10**6]) for p in range(random_.randrange(1, 12))}
    total = sum(messages.values())
    if total < 2:
        return
    most = random_.randrange(1, total)
    divided = shares(messages, most)
    assert sum(divided.values()) == most
    for partition, share in divided.items():
        assert 0 <= share <= messages[partition]
        assert abs(share - messages[partition] * most / total) < 1


def narrowed(*filters: Filter) -> Narrowing:
    return narrowing_of(filters)[0]


def handed_back(*filters: Filter) -> list[Filter]:
    return narrowing_of(filters)[1]


def test_filters_narrow_the_partitions() -> None:
    column = ("partition",)
    for filters, wanted in (
        ([EqualTo(column, 3)], {3}),
        ([In(column, (1, 4))], {1, 4}),
        ([In(column, (1, None))], {1}),
        ([GreaterThan(column, 1), LessThanOrEqual(column, 3)], {2, 3}),
        ([GreaterThanOrEqual(column, 4), In(column, (1, 4))], {4}),
        ([EqualTo(column, 1), EqualTo(column, 2)], set()),
        ([Not(EqualTo(column, 1))], set(range(6))),
        ([EqualTo(("sequence",), 1)], set(range(6))),
        ([EqualTo(("id",), 1), EqualTo(("id",), 2)], set()),
    ):
        assert {p for p in range(6) if narrowed(*filters).matches(p)} == wanted


def test_filters_narrow_the_topics() -> None:
    column = ("topic",)
    assert narrowed(EqualTo(column, "a")).topics == {"a"}
    assert narrowed(In(column, ("a", "b")), EqualTo(column, "b")).topics == {"b"}
    assert narrowed(In(column, ("a", None))).topics == {"a"}
    assert narrowed(EqualTo(("TOPIC",), "a")).topics == {"a"}
    assert narrowed(EqualTo(column, "a"), EqualTo(column, "b")).topics == set()
    assert narrowed(GreaterThan(column, "a")).topics is None


def test_filters_narrow_the_ids() -> None:
    column = ("id",)
    for filters in (
        [EqualTo(column, 50)],
        [GreaterThan(column, 49), LessThan(column, 51)],
        [GreaterThanOrEqual(column, 50), LessThanOrEqual(column, 50)],
        [In(column, (50, 50))],
    ):
        assert narrowed(*filters) == Narrowing(50, 51)
    assert narrowed(In(column, (50, 60))) == Narrowing(50, 61)
    assert narrowed(LessThan(column, -5)).stop == 0
    assert narrowed(GreaterThan(column, MESSAGE_ID_MAX)).start == MESSAGE_ID_MAX + 1
    assert not narrowed(GreaterThan(column, MESSAGE_ID_MAX)).matches(0)
    assert narrowed() == Narrowing()


def test_filters_narrow_the_time_as_spark_compares_it() -> None:
    first_ms = 1_767_225_600_001
    kinds = {
        EqualTo: operator.eq,
        GreaterThan: operator.gt,
        GreaterThanOrEqual: operator.ge,
        LessThan: operator.lt,
        LessThanOrEqual: operator.le,
    }
    for microseconds in (0, 1, 500, 999):
        at_us = 1_000 * first_ms + microseconds
        at = datetime.datetime.fromtimestamp(0, UTC) + datetime.timedelta(microseconds=at_us)
        for kind, compare in kinds.items():
            narrowing = narrowed(kind(("timestamp",), at))
            for ms in range(first_ms - 2, first_ms + 3):
                for id_ in (MessageID(ms), MessageID(ms, SEQUENCE_MAX)):
                    fits = narrowing.start <= id_ < narrowing.stop
                    assert fits == compare(1_000 * ms, at_us), (kind, microseconds, ms)
    long_ago = datetime.datetime(1960, 1, 1, tzinfo=UTC)
    assert narrowed(LessThan(("timestamp",), long_ago)).stop == 0
    assert narrowed(GreaterThan(("timestamp",), long_ago)) == Narrowing()


def test_filters_that_narrow_too_little_are_handed_back() -> None:
    in_full = [
        EqualTo(("topic",), "a"),
        In(("topic",), ("a", "b")),
        In(("partition",), (1, 4)),
        GreaterThan(("id",), 5),
        LessThan(("timestamp",), datetime.datetime(2026, 1, 1, tzinfo=UTC)),
    ]
    others = [
        In(("id",), (5, 9)),
        In(("id",), ()),
        GreaterThan(("topic",), "a"),
        Not(EqualTo(("partition",), 1)),
        EqualTo(("value",), b"a"),
        IsNotNull(("key",)),
    ]
    assert handed_back(*in_full, *others) == others
