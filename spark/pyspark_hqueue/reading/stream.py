"""Reading as a stream: exactly once, by offsets.

An offset says for each partition which ID comes next and how many messages came before it:

    {"partitions": {"0": [57909149007872000, 1200], "1": [0, 0]}}

Spark writes the offset that a batch ends at into the checkpoint before it reads the batch, and
messages of a partition never appear behind a reader: so a range of IDs that was named holds the
same messages for good.

Where a query starts would be asked again after a restart that comes before the end of its first
batch, and "latest" is elsewhere then. So the offset that every query starts from is the empty one,
``{}``; the first batch, which may well have no messages, ends at one that says in ``start`` where
the query began, and that is in the checkpoint from then on.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from hqueue import InvalidInputError
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

__all__ = ["QueueStreamReader", "stream_reader"]

Positions = dict[int, Position]


def stream_reader(given: Mapping[str, str], schema: StructType) -> QueueStreamReader:
    """A stream reader for these options. Raises as `ReadOptions.of`."""
    options = ReadOptions.of(given, "stream")
    check_schema(schema, RANGES if options.ranges_only else options.columns)
    limited = options.trigger_messages_max is not None or options.trigger_messages_min is not None
    if limited and not ADMITS:
        raise InvalidInputError("maxOffsetsPerTrigger and minOffsetsPerTrigger need PySpark 4.2")
    return QueueStreamReader(options, schema)


class QueueStreamReader(AvailableNow, DataSourceStreamReader):
    """Names offsets, on the driver, in one process for the whole query; reads, on the executors."""

    def __init__(self, options: ReadOptions, columns: StructType) -> None:
        self.options = options
        self._columns = columns
        self._end_offsets = EndOffsets(
            lambda: client_of(options.settings).queue(options.queue), options
        )
        self._start: Positions | None = None
        self._named: Positions = {}
        self._target: Positions | None = None
        self._triggered_ms = float("-inf")

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {}

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        return default_limit(self.options)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read what is there by now, and then end."""
        self._target = self._now(refresh=True)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """The ends of the log, for the query's progress: what is missing to them is the lag."""
        return _offset(self._now())

    def latestOffset(  # noqa: N802
        self, start: dict[str, Any] | None = None, limit: Any = None
    ) -> dict[str, Any]:
        """Where the next batch ends; `start` where there is nothing for one.

        Before PySpark 4.2 neither argument is given, and a batch ends where the log does. Whether a
        query begins is not known then: the first offset that a process names has a start, which
        counts if it does.
        """
        begins = start == {} or (start is None and not self._named)
        if begins and self._start is None:
            self._start = starts_of(
                self._end_offsets.queue,
                list(self._end_offsets.offsets(refresh=True).values()),
                self.options,
                begins=start is not None,
            )
        base = _positions(start) if start else (self._start or {}) if begins else self._named
        target = self._target or self._now()
        allowed = limit_of(limit, self.options, waits=bool(start) and self._target is None)
        end = {**dict.fromkeys(target, Position(0, 0)), **base}
        end |= self._admitted(base, target, allowed)
        if begins:
            end = beyond_expiry(self._end_offsets.queue, end, target, self.options)
        if start and end == base:
            return start
        self._named = end
        self._triggered_ms = SYSTEM_CLOCK.monotonic_ms()
        return _offset(end, self._start if begins else None)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks between two offsets.

        Raises:
            DataLossError: messages between them are gone.
        """
        queue = self._end_offsets.queue
        begins = _positions(start or {"partitions": end["start"]})
        ranges = ranges_between(
            queue,
            begins,
            _positions(end),
            self._end_offsets.fell_from,
            self.options,
            first=not start,
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


def _offset(positions: Positions, start: Positions | None = None) -> dict[str, Any]:
    """An offset as Spark keeps it. Two are the same when their texts are: so keys are in order."""
    offset: dict[str, Any] = {"partitions": _listed(positions)}
    if start is not None:
        offset["start"] = _listed(start)
    return offset


def _listed(positions: Positions) -> dict[str, list[int]]:
    return {str(p): [positions[p].id, positions[p].ordinal] for p in sorted(positions)}


def _positions(offset: Mapping[str, Any]) -> Positions:
    return {int(p): Position(*position) for p, position in offset["partitions"].items()}
