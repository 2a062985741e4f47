"""Following the ends of many partitions at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import tenacity

from hqueue.clock import SYSTEM_CLOCK, Clock, Deadline
from hqueue.log import Batch, PartitionReader
from hqueue.ports import ReadPort, Row

__all__ = ["follow"]

PAUSE_MS_MIN = 2.0
PAUSE_MS_MAX = 100.0
CHECK_TAIL_EVERY_MS = 5_000
POLLED_PARTITIONS = 256
HITS_TO_SCAN = 4


def follow(
    readers: Sequence[PartitionReader],
    reads: ReadPort,
    deadline: Callable[[], Deadline],
    *,
    idle_ms_max: int | None,
    closed: Callable[[], bool],
    clock: Clock = SYSTEM_CLOCK,
) -> Iterator[list[Batch]]:
    """Give batches as they come, until all readers are finished, or nothing came for long enough.

    At the end of a partition the row key of its next batch is known, so one request asks for the
    next batches of all partitions, bodies included. A partition where they come in quick
    succession is scanned again. The pause between requests grows from 2 to 100 ms while nothing
    comes. Every 5 s the ends themselves are looked at, in case a log was truncated.
    """
    hits = {reader.partition: 0 for reader in readers}
    pause_ms = PAUSE_MS_MIN
    last_ms = checked_ms = clock.monotonic_ms()
    while not closed():
        came = False
        for batches in _catch_up(readers, deadline, closed):
            came = True
            yield batches
        waiting = [(reader.partition, reader) for reader in readers if not reader.finished]
        if not waiting:
            return
        for first in range(0, len(waiting), POLLED_PARTITIONS):
            polled = waiting[first : first + POLLED_PARTITIONS]
            rows = {row.partition: row for row in _poll(polled, reads, deadline())}
            came = came or bool(rows)
            found = [reader.accept(rows[p], deadline()) for p, reader in polled if p in rows]
            for partition, reader in polled:
                hits[partition] = hits[partition] + 1 if partition in rows else 0
                if hits[partition] >= HITS_TO_SCAN:
                    hits[partition], reader.at_tail = 0, False
            batches = [batch for batch in found if batch is not None]
            if batches:
                yield batches
        now_ms = clock.monotonic_ms()
        if came:
            last_ms, pause_ms = now_ms, PAUSE_MS_MIN
            continue
        if idle_ms_max is not None and now_ms - last_ms >= idle_ms_max:
            return
        if now_ms - checked_ms >= CHECK_TAIL_EVERY_MS:
            checked_ms = now_ms
            for _, reader in waiting:
                reader.check_tail(deadline())
        clock.sleep_ms(pause_ms)
        pause_ms = min(pause_ms * 1.5, PAUSE_MS_MAX)


def _catch_up(
    readers: Sequence[PartitionReader],
    deadline: Callable[[], Deadline],
    closed: Callable[[], bool],
) -> Iterator[list[Batch]]:
    """Read every partition to its end."""
    for reader in readers:
        while not reader.at_tail and not closed():
            batches = reader.read(deadline())
            if batches:
                yield batches


def _poll(
    polled: Sequence[tuple[int, PartitionReader]], reads: ReadPort, deadline: Deadline
) -> list[Row]:
    """The next rows of many partitions.

    A reader asks for its own topics, and one request has one set of them: so each set is asked
    for in a request of its own.
    """
    by_topics: dict[frozenset[str] | None, list[tuple[int, int]]] = {}
    for _, reader in polled:
        by_topics.setdefault(reader.topics, []).append(reader.place)
    rows: list[Row] = []
    for topics, places in by_topics.items():
        attempt: tenacity.AttemptManager
        for attempt in deadline.retrying():
            with attempt:
                rows += reads.get(places, topics)
    return rows
