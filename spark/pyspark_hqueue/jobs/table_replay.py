"""Replays a table that is an archive into a queue: each message once, in the order of the IDs.

    CHECKPOINT/replay.json            the table, what to replay of it, and the ID of the replay
    CHECKPOINT/pieces/00000002.json   the last ID of each partition in piece 2

An archive only grows at the ends of its partitions. A piece is the messages between the last IDs of
the piece before and its own. So it stays the same when the table grows or its files are rewritten.
A piece is recorded before it is written, and the queue knows which piece is being written
(`hqueue.Queue.claim_epoch`), as in any other replay.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import uuid
from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from hqueue import InvalidInputError, MessageID
from hqueue.settings.reserved import check_topic
from pyspark_hqueue.jobs.archive_table import column_differences
from pyspark_hqueue.jobs.arguments import check_table
from pyspark_hqueue.jobs.folder import Folder
from pyspark_hqueue.jobs.table_names import case_sensitive, check_apart, identity_of, sql_name
from pyspark_hqueue.jobs.tables import table_frame
from pyspark_hqueue.jobs.targets import Target
from pyspark_hqueue.reading.clients import client_of
from pyspark_hqueue.reading.schema import WITH_HEADERS
from pyspark_hqueue.writing.write_options import WriteOptions

__all__ = ["TablePiece", "TableReplay"]

NEEDED = StructType(
    [WITH_HEADERS[name] for name in ("partition", "id", "topic", "value", "key", "headers")]
)
RECORD = "replay.json"
PIECES = "pieces"


@dataclasses.dataclass(frozen=True)
class TablePiece:
    """A part of a table that is replayed together.

    Args:
        number: the number of the piece, from 0 on.
        after: the last ID of each partition in the piece before.
        last: the last ID of each partition in this piece.
        messages: how many messages the piece has, of all topics.
        files: always empty: a table knows its files itself.
    """

    number: int
    after: Mapping[int, int]
    last: Mapping[int, int]
    messages: int
    files: tuple[str, ...] = ()


class TableReplay:
    """Writes the table of an archive to a queue. A run continues where the last one ended.

    Args:
        spark: the session.
        table: the table's name, or the path of a Delta table.
        input_format: ``delta`` or ``iceberg``.
        queue: the queue's name.
        checkpoint: a folder, one for each replay. With another one, all messages are written again.
        by: how to choose a message's partition: see `pyspark_hqueue.jobs.targets`.
        topics: only messages of these topics; all if empty.
        topic: the topic of the written messages, instead of the table's.
        start: only messages from this ID on.
        stop: only messages before this ID.
        options: options of the data source's sink, such as ``hqueue.gateways``.

    Raises:
        InvalidInputError: there is no such table, or columns are missing, or the checkpoint
            belongs to another replay.
        QueueNotFoundError: there is no such queue.
    """

    def __init__(
        self,
        spark: SparkSession,
        table: str,
        input_format: str,
        queue: str,
        checkpoint: str,
        *,
        by: str | None = None,
        topics: Sequence[str] = (),
        topic: str | None = None,
        start: MessageID | None = None,
        stop: MessageID | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        given = dict(options or {})
        check_table(table, input_format, checkpoint)
        self._frame = table_frame(spark, table, input_format)
        self._checkpoint = Folder(spark, checkpoint)
        name = sql_name(spark, table, input_format)
        check_apart(spark, name, identity_of(spark, name, input_format)[1], self._checkpoint)
        checked = WriteOptions.of({**given, "queue": queue}, "batch")
        self._queue = client_of(checked.settings).queue(queue)
        if topic is not None:
            check_topic(topic)
        self._topics, self._topic = tuple(sorted(topics)), topic
        self._start, self._stop = start, stop
        self._target = Target(queue, self._queue.partitions, by or "partition", given)
        self._of = {
            "version": 1,
            "table": table,
            "queue": queue,
            "by": self._target.by,
            "topics": [*self._topics],
            "topic": topic,
            "start": None if start is None else str(start),
            "stop": None if stop is None else str(stop),
        }
        if not case_sensitive(spark):
            lower = {name: name.lower() for name in self._frame.columns}
            wanted = {name: low for name, low in lower.items() if low in NEEDED.names}
            self._frame = self._frame.withColumnsRenamed(wanted)
        there = [field for field in self._frame.schema if field.name in NEEDED.names]
        if differences := column_differences(StructType(there), NEEDED, writing=False):
            raise InvalidInputError(
                "the table is not an archive of a queue", table=table, differences=differences
            )
        self._target.check(self._frame)
        self._id()

    @property
    def write_id(self) -> str | None:
        """The ID of the replay in the queue; None before its first run."""
        found = self._id()
        return None if found is None else f"replay.{found}"

    def _id(self) -> str | None:
        text = self._checkpoint.read(RECORD)
        if text is None:
            return None
        record = json.loads(text)
        if {name: record.get(name) for name in self._of} != self._of:
            raise InvalidInputError(
                "the checkpoint belongs to another replay: give another folder",
                checkpoint=self._checkpoint.uri,
                table=record.get("table"),
                queue=record.get("queue"),
            )
        return str(record["id"])

    def pending(self) -> list[TablePiece]:
        """The pieces that a run would replay, or continue. This changes nothing."""
        pieces = self._recorded()
        after = pieces[-1].last if pieces else {}
        rest = self._after(after).groupBy("partition")
        found = rest.agg(F.max("id").alias("last"), F.count(F.lit(1)).alias("messages")).collect()
        if found:
            last = {**after, **{row["partition"]: row["last"] for row in found}}
            messages = sum(row["messages"] for row in found)
            pieces.append(TablePiece(len(pieces), after, last, messages))
        write_id = self.write_id
        epoch = self._queue.current_epoch(f"spark-write.{write_id}") if write_id else None
        return [piece for piece in pieces if epoch is None or piece.number >= epoch[0]]

    def _recorded(self) -> list[TablePiece]:
        pieces: list[TablePiece] = []
        while (text := self._checkpoint.read(f"{PIECES}/{len(pieces):08d}.json")) is not None:
            record = json.loads(text)
            last = {int(partition): last for partition, last in record["last"].items()}
            after = pieces[-1].last if pieces else {}
            pieces.append(TablePiece(len(pieces), after, last, record["messages"]))
        return pieces

    def run(self, on_piece: Callable[[TablePiece], None] | None = None) -> int:
        """Write what is pending.

        Args:
            on_piece: called with each piece that is written.

        Returns:
            How many messages were written, or found to be written already.

        Raises:
            IdempotencyKeyReusedError: messages of an unfinished piece are gone from the table.
            FencedError: another run has overtaken this one.
            HQueueError: the queue can't be written to.
            JobError: Spark failed.
        """
        pending = self.pending()
        self._checkpoint.publish(RECORD, json.dumps({**self._of, "id": uuid.uuid4().hex}))
        write_id = self.write_id
        assert write_id is not None
        written = 0
        for piece in pending:
            text = json.dumps({"last": piece.last, "messages": piece.messages})
            self._checkpoint.publish(f"{PIECES}/{piece.number:08d}.json", text)
            recorded = self._recorded()[piece.number]  # Another run may have been faster.
            written += self._target.write(
                self._chosen(recorded), ("partition", "id"), write_id=write_id, epoch=piece.number
            )
            # The next epoch says that this piece is done.
            self._queue.claim_epoch(f"spark-write.{write_id}", piece.number + 1)
            if on_piece is not None:
                on_piece(recorded)
        return written

    def _after(self, after: Mapping[int, int]) -> DataFrame:
        """The rows after these IDs."""
        return self._frame.where(F.col("id") > _of_partition(after))

    def _chosen(self, piece: TablePiece) -> DataFrame:
        frame = self._after(piece.after).where(F.col("id") <= _of_partition(piece.last))
        # Bounds over all partitions let Spark skip files.
        first = min(piece.after.get(partition, -1) for partition in piece.last)
        frame = frame.where((F.col("id") > first) & (F.col("id") <= max(piece.last.values())))
        if self._topics:
            frame = frame.where(F.col("topic").isin([*self._topics]))
        if self._start is not None:
            frame = frame.where(F.col("id") >= int(self._start))
        if self._stop is not None:
            frame = frame.where(F.col("id") < int(self._stop))
        return frame if self._topic is None else frame.withColumn("topic", F.lit(self._topic))


def _of_partition(ids: Mapping[int, int]) -> Column:
    """The ID for each row's partition, or one before all others."""
    if not ids:
        return F.lit(-1)
    pairs = itertools.chain.from_iterable(ids.items())
    return F.coalesce(F.create_map(*map(F.lit, pairs))[F.col("partition")], F.lit(-1))
