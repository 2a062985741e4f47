"""What a check says of a log whose control records and ranges do not agree."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from hqueue import Message, MessageID
from hqueue.format import rowkey
from hqueue.format.cells import control_record, encode_bodies
from hqueue.format.control import encode_fences, with_owners
from hqueue.format.header import Bodies
from hqueue.log.ranges import RangeVerifier, contradictions
from hqueue.log.skew import StoreClock
from hqueue.log.steps import Work
from hqueue.log.verify import PartitionVerification, PartitionVerifier
from hqueue.metadata.managers import LogRange
from hqueue.runtime.clock import Deadline, drive_each
from tests.fuzz.fuzz_store import Rows, SteppedClock
from tests.fuzz.log import chained
from tests.fuzz.rows import Stored, written

WALL_MS = 1_700_000_000_000
START = WALL_MS << 15


def fences(**epochs: int) -> Bodies:
    (record,) = encode_fences(epochs)
    return record


def messages(*topics: str) -> Bodies:
    return encode_bodies([Message(topic, b"x") for topic in topics])


def owned(epoch: int, *topics: str) -> Bodies:
    """A batch by an owner."""
    return with_owners(messages(*topics), dict.fromkeys(topics, epoch))


def laid(*chain: Bodies) -> Iterator[Stored]:
    """Rows of partition 0. Batches of one message, and control records, have the IDs START on."""
    slot = ordinal = 0
    for bodies in chain:
        base = max(slot, START)
        yield written(bodies, rowkey.encode(0, slot), base=base, ordinal=ordinal)
        slot, ordinal = base + bodies.span, ordinal + bodies.count


def lies(
    first: int, last: int | None, epoch: int, partition: int = 0, *, marked: bool = False
) -> LogRange:
    end = None if last is None else MessageID.from_int(START + last)
    return LogRange(partition, MessageID.from_int(START + first), end, epoch, marked)


def check(
    rows: Sequence[Stored],
    ranges: Mapping[str, Sequence[LogRange]] | None,
    moved: Callable[[str], bool] = lambda topic: False,
) -> PartitionVerification:
    clock = SteppedClock(WALL_MS)
    port: Any = Rows(rows)

    def has_moved(topic: str) -> Work[bool]:
        yield from ()
        return moved(topic)

    checker = PartitionVerifier(
        0,
        lambda: Deadline(clock, 1_000),
        ttl_ms=None,
        now_ms=StoreClock(clock).now_ms,
        ranges=None if ranges is None else RangeVerifier(0, ranges),
        moved=has_moved,
    )
    *_, result = drive_each(checker.run(), port, clock)
    return result


RIGHT = [messages("t"), messages("u"), fences(t=2), messages("t"), messages("t")]
"""Topic "t" lies at 0 to 2, ended by its record at 2, and then at 3 to 4."""
RANGES = {"t": [lies(0, 2, 1), lies(3, None, 2)], "u": [lies(1, None, 1)]}


def problems(chain: Sequence[Bodies], ranges: Mapping[str, Sequence[LogRange]]) -> list[str]:
    result = check(list(laid(*chain)), ranges)
    assert result.unfinished == []
    return [finding.problem for finding in result.findings]


def test_ranges_that_the_log_agrees_with_have_no_findings() -> None:
    result = check(list(laid(*RIGHT)), RANGES)
    assert (result.findings, result.unfinished, result.outside) == ([], [], 0)
    assert (result.batches, result.control_records, result.messages) == (5, 1, 4)


def test_an_empty_log_says_nothing_of_ranges() -> None:
    assert check([], RANGES).findings == []


def test_what_was_collected_is_not_missed() -> None:
    rows = list(laid(*RIGHT))
    for collected in range(1, 5):
        result = check(rows[collected:], RANGES)
        assert (result.findings, result.unfinished) == ([], [])


@pytest.mark.parametrize(
    ("chain", "problem"),
    [
        ([messages("t")] * 4, "no control record lies"),
        ([messages("t"), messages("u"), fences(u=2), messages("t")], "names a later owner"),
        ([messages("t"), messages("u"), fences(t=1), messages("t")], "names a later owner"),
        ([messages("t"), fences(t=2), fences(t=3), messages("t")], None),
        ([fences(t=2), messages("t"), fences(t=2), messages("t")], "a message lies after"),
        ([messages("t")], "no control record lies"),
    ],
)
def test_a_closed_range_ends_at_the_record_that_names_its_next_owner(
    chain: Sequence[Bodies], problem: str | None
) -> None:
    found = problems(chain, {"t": [lies(0, 2, 1), lies(3, None, 2)]})
    if problem is None:
        assert found == []
    else:
        (one,) = found
        assert problem in one
        assert "'t'" in one


def test_several_records_may_end_one_range() -> None:
    """Many topics take several: the last one's ID holds for all."""
    chain = [messages("t"), fences(t=2), fences(u=2), messages("t")]
    assert problems(chain, {"t": [lies(0, 2, 1), lies(3, None, 2)]}) == []


def test_a_record_of_one_that_lost_the_race_ends_nothing() -> None:
    chain = [messages("t"), messages("u"), fences(t=2), messages("t"), fences(t=2), messages("t")]
    assert problems(chain, RANGES) == []


def test_an_open_range_whose_record_is_there_is_to_be_finished() -> None:
    rows = list(laid(messages("t"), messages("u"), fences(t=2)))
    result = check(rows, {"t": [lies(0, None, 1)]})
    assert result.findings == []
    (one,) = result.unfinished
    assert one.row == rows[2].key.hex()
    assert "still said to be open" in one.problem


def test_a_message_after_the_record_is_damage_in_an_open_range_too() -> None:
    rows = list(laid(*RIGHT))
    result = check(rows, {"t": [lies(0, None, 1)]})
    (one,) = result.findings
    assert (one.row, result.unfinished) == (rows[3].key.hex(), [])
    assert "after the control record" in one.problem


@pytest.mark.parametrize("ranges", [RANGES["t"], [lies(0, None, 1)], [lies(0, 1, 1)]])
def test_a_topic_that_moved_meanwhile_is_not_judged(ranges: Sequence[LogRange]) -> None:
    chain = [messages("t"), messages("u"), fences(t=2), messages("t")]
    result = check(list(laid(*chain)), {"t": ranges}, moved=lambda topic: topic == "t")
    assert result.findings == []
    assert all("it moved" in one.problem for one in result.unfinished)
    assert len(result.unfinished) == (0 if ranges is RANGES["t"] else 1)


def test_messages_outside_of_a_topics_ranges_are_counted_and_are_no_damage() -> None:
    chain = [messages("t"), messages("u"), fences(t=2), messages("t"), messages("u", "v")]
    result = check(
        list(laid(*chain)), {"t": [lies(0, 2, 1), lies(9, None, 2, 1)], "u": [lies(0, 9, 0, 1)]}
    )
    assert (result.findings, result.outside) == ([], 3)
    before = check(list(laid(*chain)), {"u": [lies(4, None, 0, 1)]})
    assert before.outside == 1, "what lies before the first range that is known is not counted"


def test_what_was_put_directly_into_a_marked_range_is_outside_and_is_no_damage_anywhere() -> None:
    chain = [owned(1, "t"), messages("t", "t"), fences(t=2), messages("t"), owned(2, "t")]
    ranges = {"t": [lies(0, 3, 1, marked=True), lies(4, None, 2, marked=True)]}
    result = check(list(laid(*chain)), ranges)
    assert (result.findings, result.unfinished, result.outside) == ([], [], 3)
    unfinished = check(list(laid(*chain[:4])), {"t": [lies(0, None, 1, marked=True)]})
    assert (unfinished.findings, unfinished.outside) == ([], 3)
    assert len(unfinished.unfinished) == 1


def test_a_message_after_the_record_or_by_another_owner_is_damage_in_a_marked_range() -> None:
    chain = [owned(1, "t"), fences(t=2), owned(1, "t"), fences(t=3), owned(2, "t")]
    late = problems(chain[:3], {"t": [lies(0, None, 1, marked=True)]})
    assert ["after the control record" in each for each in late] == [True]
    ranges = {"t": [lies(0, 1, 1, marked=True), lies(2, 3, 2, marked=True), lies(4, None, 3)]}
    found = problems(chain, ranges)
    assert ["an owner other" in each for each in found] == [True, True]


def test_what_a_batch_says_of_its_owners_is_looked_at_without_ranges() -> None:
    cut = dataclasses.replace(messages("t"), control=b"\1" + bytes(7))
    strange = dataclasses.replace(messages("t"), control=b"\x09")
    rows = list(laid(messages("t"), cut, strange, owned(1, "t")))
    result = check(rows, None)
    assert [finding.row for finding in result.findings] == [row.key.hex() for row in rows[1:3]]
    assert (result.control_records, result.messages) == (0, 4)


@pytest.mark.parametrize(
    ("second", "problem"),
    [
        (lies(3, None, 2), None),
        (lies(2, None, 2), "before the one before ends"),
        (lies(3, None, 1), "epoch"),
    ],
)
def test_ids_and_epochs_grow_over_ranges(second: LogRange, problem: str | None) -> None:
    found = list(contradictions([lies(0, 2, 1), second]))
    if problem is None:
        assert found == []
    else:
        ((one, text),) = found
        assert one is second
        assert problem in text
        assert any(problem in each for each in problems(RIGHT, {"t": [lies(0, 2, 1), second]}))


def test_only_the_last_range_is_open() -> None:
    ((_, text),) = contradictions([lies(0, None, 1), lies(3, None, 2)])
    assert "while the one before is open" in text


def test_a_control_record_that_can_not_be_read_is_found_without_ranges() -> None:
    cut = control_record(struct.pack(">BH", 1, 2) + struct.pack(">QB", 7, 1) + b"t")
    strange = control_record(b"\x09")
    rows = list(laid(messages("t"), cut, strange, messages("t")))
    result = check(rows, None)
    assert [finding.row for finding in result.findings] == [row.key.hex() for row in rows[1:3]]
    assert "cut off" in result.findings[0].problem
    assert "unknown version" in result.findings[1].problem
    assert (result.control_records, result.messages) == (2, 2)


def test_a_control_record_with_messages_is_found() -> None:
    rows = list(chained(0, [messages("t"), fences(t=1), messages("t")]))
    rows[1] = dataclasses.replace(rows[1], cells={b"t": b"x"})
    (found,) = check(rows, None).findings
    assert found.row == rows[1].key.hex()
    assert "has messages" in found.problem
