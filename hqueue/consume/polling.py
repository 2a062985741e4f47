"""Asking once for what comes next in many partitions, whose readers stand at their ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from hqueue.errors import HQueueError
from hqueue.format import decode_header
from hqueue.log import Batch, PartitionReader
from hqueue.log.offsets import PartitionOffsets
from hqueue.log.ports import ReadPort, Row
from hqueue.runtime.clock import Deadline

__all__ = ["appended_since", "poll"]

POLLED_PARTITIONS = 256
POLLED_WITH_BODIES = 8


def poll(
    readers: Sequence[PartitionReader],
    reads: ReadPort,
    deadline: Callable[[], Deadline],
    bytes_max: int,
    rows_max: int = 1,
) -> Iterator[list[Batch]]:
    """Ask once for what comes next for each of these readers, which stand at their ends.

    For the next batch of each that is one request for many; for up to `rows_max` of them it is
    two requests a reader. What was accepted before an error was given before it, and does not
    come again.
    """
    if rows_max > 1:
        for reader in readers:
            yield from _poll_several(reader, reads, deadline, bytes_max, rows_max)
        return
    for first in range(0, len(readers), POLLED_PARTITIONS):
        polled = readers[first : first + POLLED_PARTITIONS]
        for rows in _next_rows(polled, reads, deadline, bytes_max):
            yield from _accepted(polled, rows, deadline)


def appended_since(
    offsets: Sequence[PartitionOffsets], reads: ReadPort, deadline: Callable[[], Deadline]
) -> list[int]:
    """The partitions that have a batch beyond these offsets. A request for up to 256 of them."""
    slots = [(each.partition, int(each.end)) for each in offsets]
    found: list[int] = []
    for first in range(0, len(slots), POLLED_PARTITIONS):
        rows = _get(slots[first : first + POLLED_PARTITIONS], frozenset(), reads, deadline())
        found.extend(row.partition for row in rows)
    return found


def _poll_several(
    reader: PartitionReader,
    reads: ReadPort,
    deadline: Callable[[], Deadline],
    bytes_max: int,
    rows_max: int,
) -> Iterator[list[Batch]]:
    """The next batches of one reader: their headers, and then as many as `bytes_max` allows."""
    partition, slot = reader.next_slot
    headers = deadline().run(partial(reads.headers, partition, slot, rows_max))
    requests = _requests(headers, reader.topics, bytes_max)
    reader.at_tail = len(requests) <= 1 and len(headers) < rows_max
    for request in requests[:1]:
        for row in sorted(_get(request, reader.topics, reads, deadline()), key=_slot_of):
            yield from _accepted([reader], {partition: row}, deadline)


def _slot_of(row: Row) -> int:
    return row.slot


def _accepted(
    polled: Sequence[PartitionReader],
    rows: Mapping[int, Row],
    deadline: Callable[[], Deadline],
) -> Iterator[list[Batch]]:
    """Let readers take in the rows that were found for them.

    What one of them accepted is given also when a later one fails, for it would not come again.
    """
    batches: list[Batch] = []
    try:
        for reader in polled:
            if reader.partition not in rows:
                continue
            bound = deadline()
            batch = bound.run(partial(reader.accept, rows[reader.partition], bound))
            if batch is not None:
                batches.append(batch)
    except HQueueError:
        if batches:
            yield batches
        raise
    if batches:
        yield batches


def _next_rows(
    polled: Sequence[PartitionReader],
    reads: ReadPort,
    deadline: Callable[[], Deadline],
    bytes_max: int,
) -> Iterator[dict[int, Row]]:
    """The next rows of many partitions, in requests of about `bytes_max`, by partition.

    A reader asks for its own topics, and one request has one set of them: so each set is asked
    for in a request of its own.
    """
    by_topics: dict[frozenset[str] | None, list[tuple[int, int]]] = {}
    for reader in polled:
        by_topics.setdefault(reader.topics, []).append(reader.next_slot)
    for topics, slots in by_topics.items():
        requests = [slots]
        if len(slots) > POLLED_WITH_BODIES:
            headers = _get(slots, frozenset(), reads, deadline())
            requests = _requests(headers, topics, bytes_max)
        for request in requests:
            rows = _get(request, topics, reads, deadline())
            yield {row.partition: row for row in rows}


def _requests(
    rows: Sequence[Row], topics: frozenset[str] | None, bytes_max: int
) -> list[list[tuple[int, int]]]:
    """The slots of some rows whose headers were read, a request each, by the size of the bodies."""
    requests: list[list[tuple[int, int]]] = []
    room = 0
    for row in rows:
        entries = decode_header(row.key, row.header).topics if row.header else ()
        size = sum(entry.size for entry in entries if topics is None or entry.topic in topics)
        if not requests or size > room:
            requests.append([])
            room = bytes_max
        requests[-1].append((row.partition, row.slot))
        room -= size
    return requests


def _get(
    slots: Sequence[tuple[int, int]],
    topics: frozenset[str] | None,
    reads: ReadPort,
    deadline: Deadline,
) -> list[Row]:
    return deadline.run(lambda: reads.get(slots, topics))
