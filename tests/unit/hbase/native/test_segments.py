"""A range in several regions is read as it was at one moment, while rows are added to its end."""

from __future__ import annotations

import itertools

import pytest

from hqueue.hbase.native.cells import Cell
from hqueue.hbase.native.exchanges import Asking
from hqueue.hbase.native.regions import Region
from hqueue.hbase.native.scanning import Range
from hqueue.hbase.native.segments import read_segments
from hqueue.runtime.steps import carry_out
from hqueue.settings.addresses import Address

ROWS = 12
BOUNDS = [b"", b"\x03", b"\x05", b"\x07", b""]
REGIONS = [
    Region(b"%d" % number, start, end, Address("h", 1))
    for number, (start, end) in enumerate(itertools.pairwise(BOUNDS))
]


class GrowingLog:
    """Rows 0, 1, …; before each answer some more are there.

    Args:
        growth: how many rows there are at each answer; the last number stays.
    """

    def __init__(self, growth: tuple[int, ...]) -> None:
        self._growth = growth
        self.calls = 0

    def read(self, region: Region, rows: Range, limit: int) -> Asking[list[list[Cell]]]:
        there = self._growth[min(self.calls, len(self._growth) - 1)]
        self.calls += 1
        numbers = [n for n in range(there) if region.holds(bytes([n]))]
        if rows.reversed:
            inside = [n for n in reversed(numbers) if rows.stop < bytes([n]) <= rows.start]
        else:
            inside = [n for n in numbers if rows.start <= bytes([n]) < rows.stop]
        yield from ()
        return [[Cell(bytes([n]), b"f", b"q", 0, memoryview(b""))] for n in inside[:limit]]


def read(rows: Range, limit: int, log: GrowingLog) -> list[list[Cell]]:
    def never(step: object) -> object:
        raise AssertionError(step)

    return carry_out(read_segments(REGIONS, rows, limit, log.read), never)


@pytest.mark.parametrize("limit", [1, 3, ROWS])
def test_no_row_is_missing_before_another_however_the_log_grows(limit: int) -> None:
    for growth in itertools.combinations_with_replacement(range(0, ROWS + 1, 2), 5):
        log = GrowingLog(growth)
        found = read(Range(b"\x01", b"\x0b"), limit, log)
        numbers = [cells[0].row[0] for cells in found]
        seen = growth[min(log.calls, len(growth)) - 1]
        assert numbers == list(range(1, 1 + len(numbers)))
        assert len(numbers) <= limit
        assert min(limit, len(range(1, min(growth[0], 11)))) <= len(numbers)
        assert len(numbers) <= len(range(1, min(seen, 11)))

        log = GrowingLog(growth)
        back = Range(b"\x0a", b"\x00", True)
        numbers = [cells[0].row[0] for cells in read(back, limit, log)]
        if numbers:
            assert numbers == list(range(numbers[0], numbers[0] - len(numbers), -1))
            assert len(numbers) == limit or numbers[-1] == 1
        assert bool(numbers) or growth[0] <= 1
