"""Writing, in batch and as a stream: each row once.

What a task writes is cut into chunks, and each is put with an idempotency key: of what is
written, of the task's number, and of the chunk's. A task that is repeated, its twin that Spark
started because it seemed slow, and one that stood still and goes on later, all put the same chunks
with the same keys, so each is in the queue once, whichever comes first.

The keys of a stream belong to its query and the number of its batch, both of which a restart
finds in the checkpoint. The query is a producer, and the batch its epoch; when that was claimed
lies in the queue (`hqueue.Queue.claim_epoch`): nothing is kept in the driver, and nothing depends
on commits.
"""

from __future__ import annotations

import dataclasses
import functools
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyspark.sql.datasource as spark
from pyspark import TaskContext
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from hqueue import (
    Client,
    IdempotencyKeyReusedError,
    InvalidInputError,
    MessageID,
    MessageTooLargeError,
    Queue,
)
from hqueue.runtime.logs import Log
from pyspark_hqueue.reading.clients import client_of, task_token
from pyspark_hqueue.reading.plain_errors import plain_errors
from pyspark_hqueue.writing.chunks import ANY, Chunk, Chunks, largest_row
from pyspark_hqueue.writing.write_options import WriteOptions, check_columns, columns_of

__all__ = ["batch_writer", "stream_writer"]

logger = Log(__name__)

TAKES_ARROW = hasattr(spark, "DataSourceStreamArrowWriter")
"""From PySpark 4.1 on; before that a stream is written row by row."""

_StreamWriter: Any = (
    spark.DataSourceStreamArrowWriter if TAKES_ARROW else spark.DataSourceStreamWriter
)

SHOWN_BYTES = 100
"""Of a key in an error."""

STAY_CHUNKS = 16
"""Chunks that go to one partition before the next, of rows that may go anywhere."""

ROWS_AT_A_TIME = 10_000


@dataclasses.dataclass
class Written(spark.WriterCommitMessage):
    """What a task has put, or found to be there."""

    chunks: int = 0
    messages: int = 0


@dataclasses.dataclass(frozen=True)
class Writing:
    """What idempotency keys belong to, and since when there can be some.

    Args:
        name: the same whenever the same is written.
        since: by partition, or one for all.
    """

    name: str
    since: MessageID | Mapping[int, MessageID]

    def since_in(self, partition: int) -> MessageID:
        return self.since if isinstance(self.since, MessageID) else self.since[partition]


@plain_errors
def batch_writer(
    given: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> spark.DataSourceWriter:
    """A writer for these options.

    With a write id, what another job wrote under it is found and not written again. Without, the
    keys are this job's own: the repeated tasks of one job are recognised.
    """
    options = WriteOptions.of(given, "batch")
    check_columns(schema, options, overwrite=overwrite)
    queue = client_of(options.settings).queue(options.queue)
    if options.write_id is None:
        offsets = {each.partition: each.end for each in queue.offsets()}
        return QueueWriter(options, queue.partitions, Writing(f"job/{uuid.uuid4()}", offsets))
    since = queue.claim_epoch(f"spark-write.{options.write_id}", options.write_epoch)
    name = f"write/{options.write_id}/{options.write_epoch}"
    return QueueWriter(options, queue.partitions, Writing(name, since))


@plain_errors
def stream_writer(
    given: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> spark.DataSourceStreamWriter:
    """A writer for these options."""
    options = WriteOptions.of(given, "stream")
    check_columns(schema, options, overwrite=overwrite)
    described = client_of(options.settings).describe_queue(options.queue)
    return QueueStreamWriter(options, described.partitions, schema)


class QueueWriter(spark.DataSourceArrowWriter):
    """Writes a frame. Its messages can be read as they are put, task by task."""

    def __init__(self, options: WriteOptions, partitions: int, writing: Writing) -> None:
        self._options = options
        self._partitions = partitions
        self._writing = writing
        self._token = task_token(options)

    @plain_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        client = client_of(self._options.task_settings, self._token)
        queue = _opened(client, self._options.queue, self._partitions)
        return _write(queue, self._options, self._writing, iterator)

    def commit(self, messages: Sequence[spark.WriterCommitMessage | None]) -> None:
        _report(self._options, messages)


class QueueStreamWriter(_StreamWriter):  # type: ignore[misc]
    """Writes a stream. The messages of a batch can be read as they are put, before its end."""

    def __init__(self, options: WriteOptions, partitions: int, schema: StructType) -> None:
        self._options = options
        self._partitions = partitions
        self._schema = schema
        self._token = task_token(options)
        """Spark makes a writer for each batch."""

    @plain_errors
    def write(self, iterator: Iterator[Any]) -> Written:
        task = _task()
        query = task.getLocalProperty("sql.streaming.queryId")
        batch = task.getLocalProperty("streaming.sql.batchId")
        assert query is not None
        assert batch is not None
        client = client_of(self._options.task_settings, self._token)
        queue = _opened(client, self._options.queue, self._partitions)
        since = queue.claim_epoch(f"spark.{query}", int(batch))
        if not TAKES_ARROW:
            iterator = _record_batches(iterator, self._schema)
        writing = Writing(f"stream/{query}/{batch}", since)
        return _write(queue, self._options, writing, iterator)

    @plain_errors
    def commit(self, messages: Sequence[spark.WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        if None in messages:
            # Spark drops the rows of a continuous query instead of calling `write`, and commits. It
            # logs this error, and does not count the rows as done.
            raise InvalidInputError(
                "a query with a continuous trigger can't write to a queue: start it with "
                "trigger(processingTime=…) or trigger(availableNow=True)",
                queue=self._options.queue,
            )
        _report(self._options, messages)


def _write(
    queue: Queue, options: WriteOptions, writing: Writing, rows: Iterator[pa.RecordBatch]
) -> Written:
    task = _task().partitionId()
    chunks = Chunks(queue.partitions, options.topic)
    written = Written()
    first = zlib.crc32(writing.name.encode()) + task

    def put(chunk: Chunk) -> None:
        partition = chunk.target
        if partition == ANY:
            partition = (first + chunk.number // STAY_CHUNKS) % queue.partitions
        idempotency_key = f"{writing.name}/{task}/{chunk.target}/{chunk.number}"
        try:
            queue.put(
                chunk.messages,
                partition=partition,
                idempotency_key=idempotency_key,
                since=writing.since_in(partition),
            )
        except IdempotencyKeyReusedError as exc:
            raise IdempotencyKeyReusedError(
                "an earlier try of the task wrote other rows, or in another order: to be written "
                "once, a task's rows must be the same each time (sortWithinPartitions gives an "
                "order)",
                idempotency_key=idempotency_key,
                partition=partition,
                count=exc.count,
                count_before=exc.count_before,
            ) from exc
        except MessageTooLargeError as exc:
            raise _too_large(exc, chunk, partition, task) from exc
        written.chunks += 1
        written.messages += chunk.messages.num_rows

    for some in rows:
        for chunk in chunks.add(_named(some, options)):
            put(chunk)
    for chunk in chunks.flush():
        put(chunk)
    return written


def _named(rows: pa.RecordBatch, options: WriteOptions) -> pa.RecordBatch:
    """The columns of a message, by the names that messages have for them."""
    case_sensitive = _task().getLocalProperty("spark.sql.caseSensitive") == "true"
    found = columns_of(rows.schema.names, options, case_sensitive=case_sensitive)
    arrays = [rows.column(column) for column in found.values()]
    return pa.RecordBatch.from_arrays(arrays, names=list(found))


def _too_large(
    exc: MessageTooLargeError, chunk: Chunk, partition: int, task: int
) -> MessageTooLargeError:
    """The error that names the largest row of a chunk."""
    row = largest_row(chunk.messages)
    error = MessageTooLargeError(
        "a row is too large for a message: leave it out, or cut its value into several rows",
        spark_partition=task,
        row=row["row"],
        topic=row["topic"],
        key=None if row.get("key") is None else row["key"][:SHOWN_BYTES],
        partition=partition,
    )
    error.facts |= exc.facts
    return error


def _report(options: WriteOptions, messages: Sequence[spark.WriterCommitMessage | None]) -> None:
    tasks = [message for message in messages if isinstance(message, Written)]
    logger.info(
        "%d messages are in queue %s, in %d batches by %d tasks",
        sum(task.messages for task in tasks),
        options.queue,
        sum(task.chunks for task in tasks),
        len(tasks),
    )


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None
    return task


@functools.lru_cache(maxsize=64)
def _opened(client: Client, name: str, partitions: int) -> Queue:
    """The queue, with what this process has seen of its log: Spark uses it for many tasks.

    One that was made again with another number of partitions is another.
    """
    return client.queue(name)


def _record_batches(rows: Iterable[Any], schema: StructType) -> Iterator[pa.RecordBatch]:
    arrow = to_arrow_schema(schema)
    rows = iter(rows)
    while True:
        some = [tuple(row) for _, row in zip(range(ROWS_AT_A_TIME), rows, strict=False)]
        if not some:
            return
        columns = [
            pa.array(column, field.type)
            for column, field in zip(zip(*some, strict=True), arrow, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=arrow)
