"""Asking once for what comes next in many partitions, whose readers stand at their ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from hqueue.consume.fetcher import Fetch, to_check, together
from hqueue.format.header import decode_header
from hqueue.log import Batch, PartitionCursor
from hqueue.log.offsets import PartitionOffsets
from hqueue.log.ports import Row
from hqueue.log.skipping import HeldUpError
from hqueue.log.standing import accept_ahead
from hqueue.log.steps import Get, Headers, Work, operation, request
from hqueue.runtime.clock import Deadline
from hqueue.runtime.interrupts import is_own
from hqueue.runtime.steps import Give, noting

__all__ = ["appended_since", "fetch", "poll"]

POLLED_PARTITIONS = 256
POLLED_WITH_BODIES = 8


def poll(
    cursors: Sequence[PartitionCursor],
    deadline: Callable[[], Deadline],
    bytes_max: int,
    rows_max: int = 1,
) -> Work[None]:
    """Ask once for what comes next for each of these cursors, which stand at their ends, and give
    the batches.

    For the next batch of each that is one request for many; for up to `rows_max` of them it is
    two requests a cursor. What was accepted before an error was given before it, and does not
    come again.
    """
    if rows_max > 1:
        for cursor in cursors:
            yield from _poll_several(cursor, deadline, bytes_max, rows_max)
        return
    for first in range(0, len(cursors), POLLED_PARTITIONS):
        polled = cursors[first : first + POLLED_PARTITIONS]
        by_topics: dict[frozenset[str] | None, list[PartitionCursor]] = {}
        for cursor in polled:
            by_topics.setdefault(cursor.topics, []).append(cursor)
        # One request has one set of topics: so each set is asked for in a request of its own.
        for topics, some in by_topics.items():
            yield from _poll_together(some, topics, deadline, bytes_max)


def fetch(
    fetches: Sequence[Fetch[PartitionCursor]], deadline: Callable[[], Deadline], bytes_max: int
) -> Work[None]:
    """`fetch_once`, in steps."""
    for cursor in to_check(fetches):
        yield from operation(deadline, cursor.check_tail)
    for asked in together(fetches):
        work = poll(asked.readers, deadline, bytes_max, asked.rows_max)
        yield from noting(work, asked.note)


def appended_since(
    offsets: Sequence[PartitionOffsets], deadline: Callable[[], Deadline]
) -> Work[list[int]]:
    """The partitions that have a batch beyond these offsets. A request for up to 256 of them."""
    slots = [(each.partition, int(each.end)) for each in offsets]
    found: list[int] = []
    for first in range(0, len(slots), POLLED_PARTITIONS):
        headers = Get(slots[first : first + POLLED_PARTITIONS], frozenset())
        rows: list[Row] = yield from request(headers, deadline())
        found.extend(row.partition for row in rows)
    return found


def _poll_several(
    cursor: PartitionCursor, deadline: Callable[[], Deadline], bytes_max: int, rows_max: int
) -> Work[None]:
    """The next batches of one cursor: their headers, and then as many as `bytes_max` allows."""
    partition, slot = cursor.next_slot
    headers: list[Row] = yield from request(Headers(partition, slot, rows_max), deadline())
    requests = _requests(headers, cursor.topics, bytes_max)
    cursor.at_tail = len(requests) <= 1 and len(headers) < rows_max
    for slots in requests[:1]:
        rows: list[Row] = yield from request(Get(slots, cursor.topics), deadline())
        for row in sorted(rows, key=_slot_of):
            yield from _accept([cursor], {partition: row}, deadline)


def _poll_together(
    cursors: Sequence[PartitionCursor],
    topics: frozenset[str] | None,
    deadline: Callable[[], Deadline],
    bytes_max: int,
) -> Work[None]:
    """The next batch of each of some cursors, in requests of about `bytes_max`."""
    slots = [cursor.next_slot for cursor in cursors]
    requests = [slots]
    if len(slots) > POLLED_WITH_BODIES:
        headers: list[Row] = yield from request(Get(slots, frozenset()), deadline())
        requests = _requests(headers, topics, bytes_max)
    for asked in requests:
        rows: list[Row] = yield from request(Get(asked, topics), deadline())
        yield from _accept(cursors, {row.partition: row for row in rows}, deadline)


def _slot_of(row: Row) -> int:
    return row.slot


def _accept(
    polled: Sequence[PartitionCursor],
    rows: Mapping[int, Row],
    deadline: Callable[[], Deadline],
) -> Work[None]:
    """Let cursors take in the rows that were found for them.

    What one of them accepted is given also when a later one fails, for it would not come again.
    Where this is cut off they return to where they stood.
    """
    batches: list[Batch] = []
    asked = [cursor for cursor in polled if cursor.partition in rows]
    positions = [cursor.position for cursor in asked]
    try:
        yield from _accept_each(asked, rows, deadline, batches)
    except BaseException as exc:
        if not is_own(exc):
            for cursor, position in zip(asked, positions, strict=True):
                cursor.return_to(position)
        elif batches:
            yield Give(batches)
        raise
    if batches:
        yield Give(batches)


def _accept_each(
    cursors: Sequence[PartitionCursor],
    rows: Mapping[int, Row],
    deadline: Callable[[], Deadline],
    batches: list[Batch],
) -> Work[None]:
    for cursor in cursors:
        for row in (yield from accept_ahead(cursor, (rows[cursor.partition],), batches)):
            try:
                batch = cursor.accept_at_once(row)
            except HeldUpError:
                bound = deadline()
                accepted = bound.insist(partial(cursor.accept, row, bound))
                batch = yield from bound.bound(accepted)
            if batch is not None:
                batches.append(batch)


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
