"""Following the ends of many partitions at once."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial

from hqueue.errors import HQueueError, QueueStateError
from hqueue.format import decode_header
from hqueue.log import Batch, PartitionReader
from hqueue.log.offsets import PartitionOffsets
from hqueue.log.ports import ReadPort, Row
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock, Deadline

__all__ = ["appended_since", "follow", "poll"]

PAUSE_MS_MIN = 2.0
PAUSE_MS_MAX = 100.0
CHECK_TAIL_EVERY_MS = 5_000
POLLED_PARTITIONS = 256
POLLED_WITH_BODIES = 8
HITS_TO_SCAN = 4


def follow(
    readers: Sequence[PartitionReader],
    reads: ReadPort,
    deadline: Callable[[], Deadline],
    *,
    idle_ms_max: int | None,
    closed: Callable[[], bool],
    bytes_max: int,
    clock: Clock = SYSTEM_CLOCK,
) -> Iterator[list[Batch]]:
    """Give batches as they come, until all readers are finished, or nothing came for long enough.

    At the end of a partition the row key of its next batch is known, so one request asks for the
    next batches of all partitions: of a few with the bodies, of more without, for each may weigh
    megabytes. A partition where they come in quick succession is scanned again. The pause between
    requests grows from 2 to 100 ms while nothing comes. Every 5 s the ends themselves are looked
    at, in case a log was truncated.

    While a queue is truncated it is disabled for some seconds, and missing for a moment: so both
    are errors only when they last for an operation's bound.
    """
    hits = {reader.partition: 0 for reader in readers}
    pause_ms = PAUSE_MS_MIN
    last_ms = checked_ms = clock.monotonic_ms()
    unreadable: Deadline | None = None
    while not closed():
        came = False
        try:
            for batches in _catch_up(readers, deadline, closed):
                came = True
                yield batches
            waiting = [(reader.partition, reader) for reader in readers if not reader.finished]
            if not waiting:
                return
            came = (yield from _polled(waiting, reads, deadline, bytes_max, hits)) or came
            if not came and clock.monotonic_ms() - checked_ms >= CHECK_TAIL_EVERY_MS:
                checked_ms = clock.monotonic_ms()
                for _, reader in waiting:
                    reader.check_tail(deadline())
            unreadable = None
        except QueueStateError:
            unreadable = unreadable or deadline()
            if unreadable.expired:
                raise
            checked_ms = clock.monotonic_ms() - CHECK_TAIL_EVERY_MS
        now_ms = clock.monotonic_ms()
        if came:
            last_ms, pause_ms = now_ms, PAUSE_MS_MIN
            continue
        if idle_ms_max is not None and now_ms - last_ms >= idle_ms_max:
            return
        clock.sleep_ms(pause_ms)
        pause_ms = min(pause_ms * 1.5, PAUSE_MS_MAX)


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
            yield from _prefetch(reader, reads, deadline, bytes_max, rows_max)
        return
    waiting = [(reader.partition, reader) for reader in readers]
    for first in range(0, len(waiting), POLLED_PARTITIONS):
        polled = waiting[first : first + POLLED_PARTITIONS]
        for rows in _poll(polled, reads, deadline, bytes_max):
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


def _prefetch(
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
            yield from _accepted([(partition, reader)], {partition: row}, deadline)


def _polled(
    waiting: Sequence[tuple[int, PartitionReader]],
    reads: ReadPort,
    deadline: Callable[[], Deadline],
    bytes_max: int,
    hits: dict[int, int],
) -> Generator[list[Batch], None, bool]:
    """Ask once for the next batches of all partitions; returns whether there were any."""
    came = False
    for first in range(0, len(waiting), POLLED_PARTITIONS):
        polled = waiting[first : first + POLLED_PARTITIONS]
        found: set[int] = set()
        for rows in _poll(polled, reads, deadline, bytes_max):
            found |= rows.keys()
            yield from _accepted(polled, rows, deadline)
        came = came or bool(found)
        for partition, reader in polled:
            hits[partition] = hits[partition] + 1 if partition in found else 0
            if hits[partition] >= HITS_TO_SCAN:
                hits[partition], reader.at_tail = 0, False
    return came


def _slot_of(row: Row) -> int:
    return row.slot


def _accepted(
    polled: Sequence[tuple[int, PartitionReader]],
    rows: Mapping[int, Row],
    deadline: Callable[[], Deadline],
) -> Iterator[list[Batch]]:
    """Let readers take in the rows that were found for them.

    What one of them accepted is given also when a later one fails, for it would not come again.
    """
    batches: list[Batch] = []
    try:
        for partition, reader in polled:
            if partition not in rows:
                continue
            bound = deadline()
            batch = bound.run(partial(reader.accept, rows[partition], bound))
            if batch is not None:
                batches.append(batch)
    except HQueueError:
        if batches:
            yield batches
        raise
    if batches:
        yield batches


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
    polled: Sequence[tuple[int, PartitionReader]],
    reads: ReadPort,
    deadline: Callable[[], Deadline],
    bytes_max: int,
) -> Iterator[dict[int, Row]]:
    """The next rows of many partitions, in requests of about `bytes_max`, by partition.

    A reader asks for its own topics, and one request has one set of them: so each set is asked
    for in a request of its own.
    """
    by_topics: dict[frozenset[str] | None, list[tuple[int, int]]] = {}
    for _, reader in polled:
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
