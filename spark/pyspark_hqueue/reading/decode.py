"""A task's messages as Arrow record batches. Runs on the executors, for all paths."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from hqueue import Client, MessageID, Queue, Scan, Settings, connect
from hqueue.runtime.clock import SYSTEM_CLOCK
from hqueue.settings.limits import SEQUENCE_MAX
from pyspark_hqueue.reading.loss import report_loss
from pyspark_hqueue.reading.options import ReadOptions
from pyspark_hqueue.reading.plan import Range
from pyspark_hqueue.reading.schema import COLUMNS, arrow_schema

__all__ = ["client_of", "read_ranges", "topics_named"]

PAUSE_MS = 200


@functools.lru_cache(maxsize=8)
def client_of(settings: Settings) -> Client:
    """This process's client with these settings; Spark uses a process for many tasks."""
    return connect(settings)


def read_ranges(
    options: ReadOptions, ranges: Sequence[Range], columns: StructType = COLUMNS
) -> Iterator[pa.RecordBatch]:
    """The wanted messages of some ranges, in order, some megabytes at a time.

    The same range gives the same messages whenever it is read: all of them, or an error.

    Raises:
        DataLossError: messages of it are gone, and that is to be an error.
    """
    queue = client_of(options.settings).queue(options.queue)
    schema = arrow_schema(columns)
    for range_ in ranges:
        for batch in _read(queue, range_, options):
            yield _columns(batch, schema)


def _read(queue: Queue, range_: Range, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    topics = options.wanted_topics(lambda: topics_named(queue, range_))
    if topics is not None and not topics:
        return
    cursor, expired = MessageID.from_int(range_.start), 0
    deadline = None
    while cursor < range_.stop:
        scan = Scan(cursor, MessageID.from_int(range_.stop), topics or ())
        with queue.partition_scanner(range_.partition, scan) as scanner:
            yield from scanner.arrow_batches()
            expired += scanner.expired
            cursor = max(cursor, scanner.positions()[range_.partition])
        if cursor >= range_.stop:
            break
        # A region server that lost the partition and does not know yet may answer from a log that
        # ends earlier; but one that stays so short was truncated.
        deadline = deadline or queue.deadline()
        if deadline.expired:
            report_loss(
                "the log ends before what was to be read: the queue was truncated",
                fail=options.fail_on_data_loss,
                queue=queue.name,
                partition=range_.partition,
                lost=range_.ordinal
                + range_.messages
                - max(range_.ordinal, queue.count_before(range_.partition, cursor)),
            )
            break
        SYSTEM_CLOCK.sleep_ms(PAUSE_MS)
    if expired and range_.exact:
        report_loss(
            "messages expired before they were read",
            fail=options.fail_on_data_loss,
            queue=queue.name,
            partition=range_.partition,
            lost=expired,
        )


def topics_named(queue: Queue, range_: Range) -> set[str]:
    """The topics of all messages in a range, by the headers."""
    start, stop = MessageID.from_int(range_.start), MessageID.from_int(range_.stop)
    headers = queue.headers(range_.partition, start, stop)
    return {entry.topic for header in headers for entry in header.topics}


def _columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The library's columns as those that Spark was told of."""
    arrays = []
    for field in schema:
        if field.name == "sequence":
            column = pc.bit_wise_and(batch.column("id"), pa.scalar(SEQUENCE_MAX, pa.int64()))
        else:
            column = batch.column(field.name)
        arrays.append(column.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
