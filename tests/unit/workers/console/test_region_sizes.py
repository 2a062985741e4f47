"""Sizes of partitions, by those of the regions that have their rows."""

from __future__ import annotations

import pytest

from hqueue.format.rowkey import first_of, partitions_between
from hqueue.typing import RegionSize
from hqueue_workers.console.pages.queues import sizes_by_partition
from hqueue_workers.console.rendering import size_cell


def test_a_partition_that_was_split_has_the_size_of_its_regions_together() -> None:
    regions = [RegionSize(0, 0, 5, 1), RegionSize(1, 1, 7, 2), RegionSize(1, 1, 11, 3)]
    assert sizes_by_partition(regions, range(2)) == {0: (5, 1, ""), 1: (18, 5, "")}


def test_partitions_that_share_a_region_say_so() -> None:
    regions = [RegionSize(0, 2, 5, 1), RegionSize(3, 4, 7, 2)]
    found = sizes_by_partition(regions, range(4))
    assert found == {
        0: (5, 1, "0 to 2"),
        1: (5, 1, "0 to 2"),
        2: (5, 1, "0 to 2"),
        3: (7, 2, "3 to 4"),
    }


@pytest.mark.parametrize(
    ("start", "end", "held"),
    [
        (b"", b"", (0, 6)),
        (b"", b"\0\3", (0, 2)),
        (b"\0\3", b"\0\6", (3, 5)),
        (b"\0\6", b"", (6, 6)),
        # Split by hand: within partition 2, and at its first row.
        (b"\0\2", b"\0\2\0\0\1", (2, 2)),
        (b"\0\2\0\0\1", b"\0\3", (2, 2)),
        (b"", first_of(2), (0, 1)),
        (b"", b"\1", (0, 255)),
    ],
)
def test_a_region_has_the_partitions_between_its_ends(
    start: bytes, end: bytes, held: tuple[int, int]
) -> None:
    assert partitions_between(start, end, 7) == held


def test_a_size_is_shown_as_people_read_it() -> None:
    assert [size_cell(each) for each in (None, 0, 1_048_576, 5e9)] == [
        "-",
        "0 MB",
        "1.0 MB",
        "5.0 GB",
    ]
