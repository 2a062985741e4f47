"""A queue whose table's attributes can't be read hides no other."""

from __future__ import annotations

import logging

import pytest

from hqueue.errors import NotAQueueError, UnsupportedFormatError
from hqueue.hbase.table_attributes import FORMAT, PARTITIONS, describe, describe_all

GOOD = {FORMAT: b"1", PARTITIONS: b"4"}
DAMAGED = {
    "empty": {FORMAT: b"1", PARTITIONS: b""},
    "no number": {FORMAT: b"1", PARTITIONS: b"\xff four"},
    "huge": {FORMAT: b"1", PARTITIONS: b"9" * 5_000},
    "megabyte": {FORMAT: b"1", PARTITIONS: b"x" * 1_000_000},
    "none": {FORMAT: b"1"},
    "later": {FORMAT: b"2", PARTITIONS: b"4"},
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_queue_that_can_not_be_read_is_named_and_the_others_are_listed(
    damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    tables = {"b": GOOD, "broken": DAMAGED[damage], "a": GOOD}
    with caplog.at_level(logging.WARNING):
        listed = describe_all(tables, lambda name: describe(name, tables[name], {}, None, True))
    assert [queue.name for queue in listed] == ["a", "b"]
    assert "queue='broken'" in caplog.text
    assert len(caplog.text) < 1_000


def test_a_queue_of_a_later_format_says_so_itself() -> None:
    with pytest.raises(UnsupportedFormatError) as caught:
        describe("q", DAMAGED["later"], {}, None, True)
    assert (caught.value.queue, caught.value.format) == ("q", "2")
    with pytest.raises(NotAQueueError):
        describe("q", DAMAGED["empty"], {}, None, True)
