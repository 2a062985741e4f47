"""Row keys: their byte order is the order of IDs, and no other bytes are one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hqueue.errors import CorruptLogError
from hqueue.format import rowkey
from hqueue.settings.limits import MESSAGE_ID_MAX, PARTITIONS_MAX
from tests.support.batches import partitions


@given(partitions)
def test_nothing_lies_between_two_partitions(partition: int) -> None:
    last = rowkey.encode(partition, MESSAGE_ID_MAX)
    assert last < rowkey.before_first_of(partition + 1) < rowkey.first_of(partition + 1)


@pytest.mark.parametrize(
    "row",
    [
        b"",
        bytes(11),
        bytes(13),
        PARTITIONS_MAX.to_bytes(2, "big") + bytes(10),
        b"\xff" * 12,
        bytes(2) + (1 << 48).to_bytes(8, "big") + bytes(2),
        bytes(10) + (1 << 15).to_bytes(2, "big"),
    ],
)
def test_what_no_queue_writes_is_refused(row: bytes) -> None:
    with pytest.raises(CorruptLogError) as caught:
        rowkey.decode(row)
    assert caught.value.row == row.hex()


@given(st.integers(1, PARTITIONS_MAX), st.integers(1, 1_000))
def test_regions_hold_whole_partitions(count: int, per_region: int) -> None:
    keys = rowkey.split_keys(count, per_region)
    assert keys == sorted(set(keys))
    assert len(keys) == (count - 1) // per_region
    for key in keys:
        assert rowkey.first_of(int.from_bytes(key, "big"))[:2] == key
