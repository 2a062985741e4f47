"""A range of rows that lies in several regions, read as if it were one: a queue's table that was
split by hand.

Each region answers for a moment of its own, and a log grows meanwhile. So a row of a later region
counts only once it is seen that the earlier ones have nothing new before it: else rows would be
missing in the middle, and not at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hqueue.hbase.native.cells import Cell
from hqueue.hbase.native.exchanges import Asking
from hqueue.hbase.native.regions import Region
from hqueue.hbase.native.scanning import Range

__all__ = ["ReadRegion", "read_segments"]

Rows = list[list[Cell]]
ReadRegion = Callable[[Region, Range, int], Asking[Rows]]
"""Reads the first rows of a range that lies in a region, this many, as of one moment."""


def read_segments(
    regions: Sequence[Region], rows: Range, limit: int, read: ReadRegion
) -> Asking[list[list[Cell]]]:
    """The first rows of a range, as they were together at one moment of this call, if rows are
    added at their end alone.

    Args:
        regions: what the range lies in, by their first rows, without a gap.
        rows: the range; one that is reversed begins at its highest row.
        limit: the most rows.
        read: asks a region.
    """
    segments = [(region, part) for region in regions if (part := _part(region, rows)) is not None]
    of_all = _read_backwards if rows.reversed else _read_forwards
    return (yield from of_all(segments, limit, read))


def _read_backwards(
    segments: Sequence[tuple[Region, Range]], limit: int, read: ReadRegion
) -> Asking[Rows]:
    # What a later region had was added after all that the earlier ones have, which are asked next.
    found: Rows = []
    for region, part in reversed(segments):
        if len(found) < limit:
            found += yield from read(region, part, limit - len(found))
    return found


def _read_forwards(
    segments: Sequence[tuple[Region, Range]], limit: int, read: ReadRegion
) -> Asking[Rows]:
    found: Rows = []
    ended: list[tuple[Region, Range]] = []
    """What had no more rows when it was asked: from the last row that was found on."""
    for region, part in segments:
        if len(found) >= limit:
            break
        page = yield from read(region, part, limit - len(found))
        if page:
            for before, after_it in ended:
                late = yield from read(before, after_it, limit - len(found))
                if late:
                    return found + late
            found += page
            ended = []
        rest = part._replace(start=page[-1][0].row + b"\0") if page else part
        if rest.start < rest.stop:
            ended.append((region, rest))
    return found


def _part(region: Region, rows: Range) -> Range | None:
    """What of a range lies in a region; None for nothing."""
    if not rows.reversed:
        start = max(rows.start, region.start)
        stop = min(rows.stop, region.end) if region.end else rows.stop
        return Range(start, stop) if start < stop else None
    # From `start` down, without `stop`. A region's own end is not a row of it, its start is.
    if rows.start < region.start or (region.end and rows.stop >= region.end):
        return None
    start = rows.start if region.holds(rows.start) else region.end
    return Range(start, rows.stop, True)
