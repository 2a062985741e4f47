"""A task's messages as Arrow record batches. Runs on the executors, for all paths."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from hqueue import MessageID, Queue, Scan
from hqueue.runtime.clock import SYSTEM_CLOCK
from hqueue.settings.limits import SEQUENCE_MAX
from pyspark_hqueue.reading.clients import client_of
from pyspark_hqueue.reading.loss import report_loss
from pyspark_hqueue.reading.plain_errors import plain_iteration
from pyspark_hqueue.reading.plan import Range
from pyspark_hqueue.reading.read_options import ReadOptions
from pyspark_hqueue.reading.schema import COLUMNS, arrow_schema

__all__ = ["read_ranges", "read_tasks", "topics_named"]

PAUSE_MS = 200


def read_tasks(given: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The messages of tasks.

    Args:
        given: the options and the columns, pickled.
        batches: the tasks: a column of ranges with a token, pickled.
    """
    options, columns = pickle.loads(given)
    for batch in batches:
        for packed in batch.column(0).to_pylist():
            ranges, token = pickle.loads(packed)
            yield from read_ranges(options, ranges, columns, token)


@plain_iteration
def read_ranges(
    options: ReadOptions,
    ranges: Sequence[Range],
    columns: StructType = COLUMNS,
    token: bytes | None = None,
) -> Iterator[pa.RecordBatch]:
    """The wanted messages of some ranges, in order, some megabytes at a time.

    The same range gives the same messages whenever it is read: all of them, or an error.

    Args:
        options: how they are read.
        ranges: what is read.
        columns: those that are made.
        token: by what the task proves itself, if it needs to.

    Raises:
        DataLossError: messages of it are gone, and the options make that an error.
    """
    queue = client_of(options.task_settings, token).queue(options.queue)
    schema = arrow_schema(columns)
    for range_ in ranges:
        for batch in _read(queue, range_, options):
            yield _columns(batch, schema)


def _read(queue: Queue, range_: Range, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    topics = options.wanted_topics(lambda: topics_named(queue, range_))
    partition, stop = range_.partition, MessageID.from_int(range_.stop)
    cursor = MessageID.from_int(range_.start)
    given = expired = 0
    if range_.exact:
        # What was collected since it was planned: a scan begins after that, and can't know of it.
        expired = max(0, queue.count_before(partition, cursor) - range_.ordinal)
    if topics is not None and not topics:
        cursor = stop
    deadline = None
    while True:
        if cursor < stop:
            scan = Scan(cursor, stop, topics or ())
            scan.owner_epoch = range_.owner_epoch
            with queue.partition_scanner(partition, scan) as scanner:
                for batch in scanner.arrow_batches():
                    given += batch.num_rows
                    yield batch
                expired += scanner.expired
                cursor = max(cursor, scanner.positions()[partition])
        if cursor >= stop and (given >= range_.messages or _holds(queue, range_)):
            break
        # A region server that lost the partition and does not know yet may answer from a log that
        # ends earlier; but one that stays so short was truncated. What was put since may lie beyond
        # the stop: so it is counted, too.
        deadline = deadline or queue.deadline()
        if deadline.expired:
            before = queue.count_before(partition, min(cursor, stop))
            report_loss(
                "the log ends before the offsets to read: the queue was truncated",
                fail=options.fail_on_data_loss,
                queue=queue.name,
                partition=partition,
                lost=range_.ordinal + range_.messages - max(range_.ordinal, before),
            )
            break
        SYSTEM_CLOCK.sleep_ms(PAUSE_MS)
    if expired and range_.exact:
        report_loss(
            "messages expired before they were read",
            fail=options.fail_on_data_loss,
            queue=queue.name,
            partition=partition,
            lost=expired,
        )


def _holds(queue: Queue, range_: Range) -> bool:
    """Whether the log had all messages of a range, expired ones too."""
    had = queue.count_before(range_.partition, MessageID.from_int(range_.stop))
    return had >= range_.ordinal + range_.messages


def topics_named(queue: Queue, range_: Range) -> frozenset[str]:
    """The topics of all messages in a range, by the headers."""
    deadline = queue.deadline()
    while True:
        topics: set[str] = set()
        # Beyond the stop, too: only who has seen it knows all that lies before it.
        for header in queue.headers(range_.partition, MessageID.from_int(range_.start), None):
            if header.base < range_.stop:
                topics.update(entry.topic for entry in header.topics)
            if header.end >= range_.stop:
                return frozenset(topics)
        # As in `_read`: a log that stays so short was truncated.
        if deadline.expired:
            return frozenset(topics)
        SYSTEM_CLOCK.sleep_ms(PAUSE_MS)


def _columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The library's columns as those of the schema that Spark has."""
    arrays = []
    for field in schema:
        name = field.name.lower()
        if name == "sequence":
            column = pc.bit_wise_and(batch.column("id"), pa.scalar(SEQUENCE_MAX, pa.int64()))
        else:
            column = batch.column(name)
        arrays.append(column.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
