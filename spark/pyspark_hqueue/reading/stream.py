"""Reading as a stream: exactly once, by offsets, as `stream_offsets` describes them.

Spark writes the offset that a batch ends at into the checkpoint before it reads the batch, and
messages of a partition never appear behind a reader: so a range of IDs that was named holds the
same messages for good.

Where a query starts would be asked again after a restart that comes before the end of its first
batch, and "latest" is elsewhere then. So the offset that every query starts from is the empty one,
``{}``; the first batch, which may well have no messages, ends at one that says in ``start`` where
the query began, and that is in the checkpoint from then on.

From 4.2 on, Spark asks for the next batch from a start only when the batch that ended there is
finished: so that is when it is committed to the group of ``commitGroup``. Before 4.2 there is only
`commit`, which comes when the next batch is named.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from hqueue import HQueueError, InvalidInputError
from hqueue.runtime.clock import SYSTEM_CLOCK
from pyspark_hqueue.reading.admission import (
    ADMITS,
    AvailableNow,
    Limit,
    default_limit,
    limit_of,
    shares,
)
from pyspark_hqueue.reading.clients import client_of, task_token
from pyspark_hqueue.reading.decode import read_ranges
from pyspark_hqueue.reading.end_offsets import EndOffsets
from pyspark_hqueue.reading.groups import GroupCommits, commits_of, committed_by
from pyspark_hqueue.reading.plain_errors import plain_errors
from pyspark_hqueue.reading.plan import (
    Position,
    Task,
    beyond_expiry,
    cut,
    pieces_of,
    position_of,
    ranges_between,
    starts_of,
)
from pyspark_hqueue.reading.read_options import ReadOptions
from pyspark_hqueue.reading.schema import RANGES, arrow_schema
from pyspark_hqueue.reading.source import check_schema
from pyspark_hqueue.reading.stream_offsets import (
    Positions,
    check_queue,
    latest_offset,
    offset_of,
    positions_in,
    start_in,
)
from pyspark_hqueue.reading.topic_names import warn_of_topics

__all__ = ["QueueStreamReader", "stream_reader"]


def stream_reader(given: Mapping[str, str], schema: StructType) -> DataSourceStreamReader:
    """Make a stream reader for these options. If they are wrong, each call of the reader raises as
    `ReadOptions.of`: Spark would hide an error that is raised here behind one of its own.
    """
    try:
        return _stream_reader(given, schema)
    except HQueueError as exc:
        return RefusedReader(exc)


@plain_errors
def _stream_reader(given: Mapping[str, str], schema: StructType) -> QueueStreamReader:
    options = ReadOptions.of(given, "stream")
    check_schema(schema, RANGES if options.ranges_only else options.columns)
    limited = options.trigger_messages_max is not None or options.trigger_messages_min is not None
    if limited and not ADMITS:
        raise InvalidInputError(
            "maxOffsetsPerTrigger and minOffsetsPerTrigger need PySpark 4.2: leave them out"
        )
    return QueueStreamReader(options, schema)


def _refuse(reader: RefusedReader, *_: object) -> Any:
    raise reader.error


_REFUSE: Any = _refuse


class RefusedReader(AvailableNow, DataSourceStreamReader):
    """The reader of a query with wrong options: the first method that Spark calls raises why."""

    def __init__(self, error: HQueueError) -> None:
        self.error = error

    initialOffset = latestOffset = getDefaultReadLimit = _REFUSE  # noqa: N815
    prepareForTriggerAvailableNow = partitions = read = _REFUSE  # noqa: N815


class QueueStreamReader(AvailableNow, DataSourceStreamReader):
    """Names offsets, on the driver, in one process for the whole query; reads, on the executors."""

    def __init__(self, options: ReadOptions, columns: StructType) -> None:
        self.options = options
        self._columns = columns
        self._end_offsets = EndOffsets(
            lambda: client_of(options.settings).queue(options.queue), options
        )
        self._start: Positions | None = None
        self._committed: Positions = {}
        """The offsets of ``startingGroup`` when the query began."""
        self._commits: GroupCommits | None = None
        self._named: Positions = {}
        self._target: Positions | None = None
        self._triggered_ms = float("-inf")

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {}

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        return default_limit(self.options)

    @plain_errors
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read what is there by now, and then end."""
        self._target = self._now(refresh=True)

    @plain_errors
    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """The ends of the log, for the query's progress, and how far behind them the batch ends
        that was named last.
        """
        return latest_offset(self.options.queue, self._now(), self._named)

    @plain_errors
    def latestOffset(  # noqa: N802
        self, start: dict[str, Any] | None = None, limit: Any = None
    ) -> dict[str, Any]:
        """Where the next batch ends; `start` where there is nothing for one.

        Before PySpark 4.2 neither argument is given, and a batch ends where the log does. Whether a
        query begins is not known then: the first offset that a process names has a start, which
        counts if it does.

        Raises:
            InvalidInputError: the checkpoint belongs to a stream of another queue.
            GroupActiveError: the group of ``commitGroup`` has consumers.
        """
        check_queue(start or {}, self.options.queue)
        self._join()
        begins = start == {} or (start is None and not self._named)
        if begins and self._start is None:
            self._start = self._begin(begins=start is not None)
        base = positions_in(start) if start else (self._start or {}) if begins else self._named
        target = self._target or self._now()
        allowed = limit_of(limit, self.options, waits=bool(start) and self._target is None)
        end = {**dict.fromkeys(target, Position(0, 0)), **base}
        end |= self._admitted(base, target, allowed)
        if begins:
            left = {p: at for p, at in end.items() if p not in self._committed}
            end |= beyond_expiry(self._end_offsets.queue, left, target, self.options)
        self._named = end
        if start:
            # A query that ends where the log was ends now: with its process.
            self._finished(base, wait=end == base and self._target is not None)
            if end == base:
                return start
        self._triggered_ms = SYSTEM_CLOCK.monotonic_ms()
        if not begins:
            return offset_of(self.options.queue, end)
        return offset_of(self.options.queue, end, self._start, self._committed)

    @plain_errors
    def commit(self, end: dict[str, Any]) -> None:
        """The batch that ended here is finished."""
        self._finished(positions_in(end))

    @plain_errors
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks between two offsets.

        Raises:
            DataLossError: messages between them are gone.
            InvalidInputError: the checkpoint belongs to a stream of another queue.
        """
        check_queue(end, self.options.queue)
        queue = self._end_offsets.queue
        ranges = ranges_between(
            queue,
            positions_in(start) if start else start_in(end),
            positions_in(end),
            self._end_offsets.fell_from,
            self.options,
            first=not start,
            committed=end.get("exact", ()),
        )
        if self.options.ranges_only:
            return [Task(tuple(ranges))] if ranges else []
        pieces = pieces_of(queue, ranges, self.options)
        tasks = cut(ranges, pieces, functools.partial(position_of, queue))
        token = task_token(self.options) if tasks else None
        return [task.proven_by(token) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Task)
        if self.options.ranges_only:
            rows = [dataclasses.asdict(range_) for range_ in partition.ranges]
            return iter([pa.RecordBatch.from_pylist(rows, schema=arrow_schema(self._columns))])
        return read_ranges(self.options, partition.ranges, self._columns, partition.token)

    def _begin(self, *, begins: bool) -> Positions:
        """Where the query begins in each partition, if it does."""
        queue, options = self._end_offsets.queue, self.options
        offsets = list(self._end_offsets.offsets(refresh=True).values())
        fullest = sorted(offsets, key=lambda each: -each.end_ordinal)
        warn_of_topics(queue, options, [each.partition for each in fullest])
        self._committed = committed_by(client_of(options.settings), options)
        others = [each for each in offsets if each.partition not in self._committed]
        return starts_of(queue, others, options, begins=begins) | self._committed

    def _join(self) -> None:
        """Have the offsets of ``commitGroup``."""
        group = self.options.commit_group
        if group is None:
            return
        if self._commits is None:
            client = client_of(self.options.settings)
            self._commits = commits_of(client, group, self.options.queue)
        self._commits.begin(self._end_offsets.offsets())

    def _finished(self, positions: Positions, *, wait: bool = False) -> None:
        """Commit to ``commitGroup`` that all before these positions is finished."""
        if self._commits is not None:
            self._commits.finished(positions, wait=wait)

    def _now(self, *, refresh: bool = False) -> Positions:
        offsets = self._end_offsets.offsets(refresh=refresh)
        return {p: Position(int(each.end), each.end_ordinal) for p, each in offsets.items()}

    def _admitted(self, base: Positions, target: Positions, limit: Limit) -> Positions:
        """How far the next batch goes in the partitions that have something for it."""
        news = {}
        for partition, end in target.items():
            begin = base.get(partition, Position(0, 0))
            if end.id > begin.id:
                # Fewer than before: the log was truncated, and began again.
                messages = end.ordinal - begin.ordinal
                news[partition] = messages if messages >= 0 else end.ordinal
        total = sum(news.values())
        waited_ms = SYSTEM_CLOCK.monotonic_ms() - self._triggered_ms
        if total < limit.least and waited_ms < self.options.trigger_delay_ms_max:
            return {}
        if limit.most is None or total <= limit.most:
            return {
                partition: target[partition] for partition, messages in news.items() if messages
            }
        admitted = {}
        for partition, share in shares(news, limit.most).items():
            end, begin = target[partition], base.get(partition, Position(0, 0))
            ordinal = end.ordinal - news[partition] + share
            if share:
                at = position_of(self._end_offsets.queue, partition, ordinal)
                admitted[partition] = at if begin.id < at.id < end.id else end
        return admitted
