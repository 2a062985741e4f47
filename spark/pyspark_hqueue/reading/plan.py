"""From what is wanted to tasks of equal numbers of messages. All paths plan here.

The log's ordinals say how many messages lie between two positions without reading any. So all
ranges are laid end to end and cut into equal pieces: a large partition is spread over several
tasks, and many small ones share one.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from pyspark.sql.datasource import InputPartition

from hqueue import InvalidInputError, MessageID, PartitionExpiry, PartitionOffsets, Queue
from hqueue.message_id import id_of, timestamp_of
from hqueue.runtime.clock import SYSTEM_CLOCK
from pyspark_hqueue.reading.loss import report_loss
from pyspark_hqueue.reading.read_options import Boundary, ReadOptions

__all__ = [
    "Position",
    "Range",
    "Task",
    "beyond_expiry",
    "cut",
    "partitions_of",
    "pieces_of",
    "position_of",
    "ranges_between",
    "snapshot",
    "starts_of",
]

TASK_MESSAGES_MIN = 10_000
"""A task of fewer is not worth its start, some 60 ms, when a task in its place has room."""

TASK_BYTES_MAX = 64 * 1024 * 1024

TTL_MARGIN_MS = 60_000
"""A message is kept by the region server's clock, and has its time from a writer's."""


@dataclasses.dataclass(frozen=True, slots=True)
class Position:
    """A position in a partition: what is read next, and how many messages the partition had
    before.
    """

    id: int
    ordinal: int


@dataclasses.dataclass(frozen=True, slots=True)
class Range:
    """The messages of a partition with IDs in ``[start, stop)``.

    Args:
        partition: the partition.
        start: the first ID.
        stop: the first ID that isn't wanted any more.
        ordinal: messages that the partition had before `start`.
        messages: how many there were, of all topics and those that are gone by now, too. A region
            server that lost the partition and does not know yet may have counted too few, or none:
            the IDs say what is read.
        exact: whether all of them have to be there; otherwise those that are.
        owner_epoch: only what the owner with this epoch appended of the topic; all if None.
    """

    partition: int
    start: int
    stop: int
    ordinal: int
    messages: int
    exact: bool
    owner_epoch: int | None = None


class Task(InputPartition):
    """What one Spark task reads.

    Args:
        ranges: what it reads.
        token: by what it proves itself to HBase, which is a secret; None for nothing.
    """

    def __init__(self, ranges: tuple[Range, ...], token: bytes | None = None) -> None:
        super().__init__(ranges)
        self.ranges = ranges
        self.token = token

    def __repr__(self) -> str:
        return f"Task({self.ranges!r})"

    @property
    def messages(self) -> int:
        return sum(range_.messages for range_ in self.ranges)

    def proven_by(self, token: bytes | None) -> Task:
        """The same task with a token."""
        return Task(self.ranges, token)


def partitions_of(queue: Queue, options: ReadOptions) -> Sequence[int]:
    """The partitions that are read.

    Raises:
        InvalidInputError: the queue has no such partition.
    """
    wanted: Iterable[int] = range(queue.partitions)
    for partition in options.partitions or ():
        if partition >= queue.partitions:
            raise InvalidInputError(
                "the queue has no such partition",
                queue=queue.name,
                partition=partition,
                partitions=queue.partitions,
            )
    if options.partitions is not None:
        wanted = sorted(options.partitions)
    return [partition for partition in wanted if options.narrowing.matches(partition)]


def _positions_of(
    queue: Queue, offsets: Sequence[PartitionOffsets], boundary: Callable[[int], Boundary]
) -> dict[int, Position]:
    """Where these boundaries are now, none beyond the ends."""
    boundaries = {each.partition: boundary(each.partition) for each in offsets}
    earliest = [each.partition for each in offsets if boundaries[each.partition] == "earliest"]
    oldest = _oldest(queue, SYSTEM_CLOCK.wall_ms()) if earliest else None
    expiry = _expiry(queue, earliest, oldest)
    return {
        each.partition: _position(
            queue,
            each,
            boundaries[each.partition],
            int(expiry[each.partition].gone) if each.partition in expiry else 0,
        )
        for each in offsets
    }


def _expiry(
    queue: Queue, partitions: Collection[int], guess: MessageID | None
) -> dict[int, PartitionExpiry]:
    """Up to where messages have expired in these partitions; none if the queue keeps all.

    Args:
        queue: the queue.
        partitions: which.
        guess: as `_oldest` gives it: one that is wrong costs requests.
    """
    if guess is None:
        return {}
    return {
        partition: queue.expiry(partition, guess, exact_ms=TTL_MARGIN_MS)
        for partition in partitions
    }


def _oldest(queue: Queue, now_ms: int) -> MessageID | None:
    """Messages below this ID have expired if the time is right; None if the queue keeps all."""
    ttl_seconds = queue.describe().ttl_seconds
    return None if ttl_seconds is None else MessageID(max(0, now_ms - ttl_seconds * 1_000))


def _position(
    queue: Queue, offsets: PartitionOffsets, boundary: Boundary, expired: int
) -> Position:
    if boundary == "latest":
        return Position(int(offsets.end), offsets.end_ordinal)
    wanted = expired if boundary == "earliest" else int(boundary)
    if wanted >= offsets.end:
        return Position(int(offsets.end), offsets.end_ordinal)
    if offsets.beginning is None or wanted <= offsets.beginning:
        # What lies between was collected: nothing of it can be counted any more.
        return Position(0 if boundary == "earliest" else wanted, offsets.beginning_ordinal)
    before = queue.count_before(offsets.partition, MessageID.from_int(wanted))
    return Position(wanted, before)


def starts_of(
    queue: Queue,
    offsets: Sequence[PartitionOffsets],
    options: ReadOptions,
    *,
    begins: bool = True,
) -> dict[int, Position]:
    """Where a read begins.

    Args:
        queue: the queue.
        offsets: of the partitions that are read.
        options: where to begin in each.
        begins: whether it does begin. If it may go on elsewhere, it is not an error yet that
            messages are gone: they count as not read, so that `ranges_between` finds it.

    Raises:
        DataLossError: it should begin with messages that are gone.
    """
    starts = _positions_of(queue, offsets, options.start_in)
    for each in offsets:
        boundary = options.start_in(each.partition)
        if (
            _is_exact(options, each.partition)
            and each.beginning_ordinal
            and each.beginning is not None
        ):
            assert isinstance(boundary, int)
            if boundary >= each.beginning:
                continue
            if begins:
                report_loss(
                    "messages from startingOffsets on are gone, at most this many",
                    fail=options.fail_on_data_loss,
                    queue=queue.name,
                    partition=each.partition,
                    lost=each.beginning_ordinal,
                )
            else:
                starts[each.partition] = Position(int(boundary), 0)
    return starts


def _is_exact(options: ReadOptions, partition: int) -> bool:
    """Whether a read begins with a message that was named, and has to be there."""
    boundary = options.start_in(partition)
    return (
        options.start.exact
        and isinstance(boundary, MessageID)
        and boundary == options.start.of(partition)
    )


def _has_what_is_left(options: ReadOptions, partition: int) -> bool:
    """Whether a read begins with the first message that is there, whichever that is."""
    return options.start_in(partition) != "latest" and not _is_exact(options, partition)


def snapshot(
    queue: Queue, options: ReadOptions, committed: Mapping[int, Position] | None = None
) -> list[Range]:
    """What a batch read gives: all between its bounds that is written by now.

    Args:
        queue: the queue.
        options: what is read.
        committed: a group's offsets, at which the read begins in these partitions.

    Raises:
        DataLossError: messages are gone with which the read should begin.
    """
    least = options.narrowing.start
    offsets = queue.offsets(partitions_of(queue, options))
    begun = {p: at for p, at in (committed or {}).items() if at.id >= least}
    starts = starts_of(queue, [each for each in offsets if each.partition not in begun], options)
    for partition in starts.keys() & (committed or {}).keys():
        # Filters leave out what lies before: none of that can be missed.
        before = queue.count_before(partition, MessageID.from_int(least))
        starts[partition] = Position(least, before)
    stops = _positions_of(queue, offsets, options.stop_in)
    begun_stops = {partition: stops[partition] for partition in begun if partition in stops}
    ranges = ranges_between(queue, begun, begun_stops, {}, options, first=False)
    for partition, start in starts.items():
        stop = stops[partition]
        if start.id < stop.id:
            messages = max(0, stop.ordinal - start.ordinal)
            exact = _is_exact(options, partition) and partition not in (committed or {})
            ranges.append(Range(partition, start.id, stop.id, start.ordinal, messages, exact))
    return sorted(ranges, key=lambda range_: range_.partition)


def ranges_between(
    queue: Queue,
    starts: Mapping[int, Position],
    stops: Mapping[int, Position],
    fell_from: Mapping[int, int],
    options: ReadOptions,
    *,
    first: bool,
    committed: Collection[int] = (),
) -> list[Range]:
    """What lies between two offsets of a stream, if it is all there.

    The log is asked how many messages it had before a start: more than the offset says, and those
    between were collected; fewer, and it was truncated and began again.

    Args:
        queue: the queue.
        starts: where the batch begins.
        stops: where it ends.
        fell_from: messages that partitions were known to have before they were truncated.
        options: whether a loss is an error.
        first: whether it is the first batch of the query, which from "earliest" or a time has what
            is left, and misses nothing.
        committed: partitions in which the query began at a group's offset.

    Raises:
        DataLossError: messages between them are gone.
    """
    ranges = []
    for partition, stop in stops.items():
        known = partition in starts  # Others were added since: the queue was made again.
        start = starts.get(partition, Position(0, 0))
        if start.id >= stop.id:
            continue
        is_begun = first and partition not in committed
        exact = known and not (is_begun and _has_what_is_left(options, partition))
        before = queue.count_before(partition, MessageID.from_int(start.id))
        if before != start.ordinal and exact:
            if before > start.ordinal:
                text, lost = "messages were deleted before they were read", before - start.ordinal
            else:
                text = "the queue was truncated, and at least this many messages are lost"
                lost = max(fell_from.get(partition, 0), stop.ordinal) - start.ordinal
            report_loss(
                text,
                fail=options.fail_on_data_loss,
                queue=queue.name,
                partition=partition,
                lost=max(0, lost),
            )
        # What was collected counts all the same: a batch that is repeated is divided as before.
        ordinal = min(start.ordinal, before)
        messages = max(0, stop.ordinal - ordinal)
        ranges.append(Range(partition, start.id, stop.id, ordinal, messages, exact))
    return ranges


def pieces_of(queue: Queue, ranges: Sequence[Range], options: ReadOptions, cores: int = 1) -> int:
    """Into how many tasks to cut: as few as keep the cores busy and each task small.

    How large messages are is judged by one batch in the middle of the largest range.
    """
    total = sum(range_.messages for range_ in ranges)
    if not ranges:
        return 0
    largest = max(ranges, key=lambda range_: range_.messages)
    middle = (largest.start + largest.stop) // 2 if largest.start else largest.stop - 1
    sizes = [
        sum(entry.size for entry in header.topics) / header.count
        for header in itertools.islice(
            queue.headers(
                largest.partition, MessageID.from_int(middle), MessageID.from_int(largest.stop)
            ),
            1,
        )
        if header.count
    ]
    wanted = max(
        options.tasks_min,
        math.ceil(total / options.task_messages_max),
        math.ceil(total * max(sizes, default=0) / TASK_BYTES_MAX),
        min(cores, math.ceil(total / TASK_MESSAGES_MIN)),
    )
    return max(1, min(wanted, total))


def position_of(queue: Queue, partition: int, ordinal: int) -> Position:
    """A position in a partition that had this many messages before.

    It had more where those there were collected, and fewer where a region server answers that lost
    the partition and does not know yet: its log ends earlier. So they are counted again: what is
    given is true, whether it is what was asked for or not.
    """
    at = queue.id_at(partition, ordinal)
    return Position(int(at), queue.count_before(partition, at))


def beyond_expiry(
    queue: Queue,
    ends: Mapping[int, Position],
    targets: Mapping[int, Position],
    options: ReadOptions,
) -> dict[int, Position]:
    """Where a query's first batch ends so that it alone can meet messages that have expired.

    It has what is left; the next one begins with a message that was named, which has to be there.
    So the first passes all that expires within a minute. Which that is, follows from the time: this
    machine's or, if that is behind, the newest message's. Where the log shows that this is wrong,
    it is what was written within a minute of the oldest message that is there.

    Args:
        queue: the queue.
        ends: where the batch should end.
        targets: where the log does.
        options: where the query begins.
    """
    found = dict(ends)
    bounded = [
        partition
        for partition, end in ends.items()
        if end.id < targets.get(partition, end).id and _has_what_is_left(options, partition)
    ]
    times_ms = (timestamp_of(target.id) for target in targets.values())
    now_ms = max(SYSTEM_CLOCK.wall_ms(), *times_ms)
    oldest = _oldest(queue, now_ms) if bounded else None
    for partition, expiry in _expiry(queue, bounded, oldest).items():
        target, margin = targets[partition], id_of(TTL_MARGIN_MS)
        assert oldest is not None
        is_right = int(expiry.gone) - margin <= oldest <= expiry.kept
        kept = int(oldest if is_right else expiry.kept) + margin
        if ends[partition].id < min(kept, target.id):
            before = queue.count_before(partition, MessageID.from_int(kept))
            found[partition] = (
                target if kept >= target.id else position_of(queue, partition, before)
            )
    return found


def cut(
    ranges: Sequence[Range], pieces: int, position: Callable[[int, int], Position]
) -> list[Task]:
    """Cut ranges into tasks of equal numbers of messages, to one or two.

    Args:
        ranges: what to read; tasks keep their order.
        pieces: the number of tasks. Tasks whose messages are all gone have no ranges; the others
            keep their numbers, by which a sink may know them.
        position: as `position_of` for the queue.
    """
    total = sum(range_.messages for range_ in ranges)
    cuts = [total * number // pieces for number in range(1, pieces)]
    tasks: list[list[Range]] = [[] for _ in range(pieces)]
    passed = 0
    for range_ in ranges:
        end = passed + range_.messages
        first = bisect.bisect_right(cuts, passed)
        inner = cuts[first : bisect.bisect_left(cuts, end)]
        stop = Position(range_.stop, range_.ordinal + range_.messages)
        edges = [Position(range_.start, range_.ordinal)]
        for at in inner:
            edge = position(range_.partition, range_.ordinal + at - passed)
            # Where messages expired meanwhile, the first that is left may lie beyond the range.
            edges.append(sorted((edges[-1], edge, stop), key=lambda each: each.id)[1])
        for number, (begin, end_) in enumerate(itertools.pairwise([*edges, stop]), first):
            if begin.id < end_.id:
                tasks[number].append(
                    dataclasses.replace(
                        range_,
                        start=begin.id,
                        stop=end_.id,
                        ordinal=begin.ordinal,
                        messages=max(0, end_.ordinal - begin.ordinal),
                    )
                )
        passed = end
    return [Task(tuple(task)) for task in tasks]
