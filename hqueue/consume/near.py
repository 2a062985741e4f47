"""Reads of messages by their IDs: which ranges of the log one read covers."""

from __future__ import annotations

from collections.abc import Iterable

from hqueue.settings.limits import SEQUENCE_BITS

__all__ = ["near"]

NEAR_IDS = 1_000 << SEQUENCE_BITS
"""Ranges that are at most a second apart are read together."""


def near(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The ranges to read for these ranges, in the order of IDs. Those that are near each other
    become one. A range is its first ID and the ID after its last one.
    """
    read: list[tuple[int, int]] = []
    for begin, end in sorted(ranges):
        if read and begin - read[-1][1] <= NEAR_IDS:
            read[-1] = (read[-1][0], max(read[-1][1], end))
        else:
            read.append((begin, end))
    return read
