"""Replaying files into a queue: each message once, in the order in which they lie.

The files are an archive's, or any Parquet with the columns topic and value, and perhaps key or
partition. An archive is replayed round by round, other files at once. Which round is under way is
kept with the queue (`hqueue.Queue.claim_epoch`): so a replay that was killed goes on with that
round and finds what it has written of it; one that is repeated has nothing to do; and where an
archive has grown meanwhile, what is new is replayed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BinaryType, StringType

from hqueue import HQueueError, InvalidInputError, MessageID
from hqueue.metadata import check_name
from hqueue.settings.reserved import check_topic
from pyspark_hqueue.jobs.archive import FILES
from pyspark_hqueue.jobs.failures import refusing, translated
from pyspark_hqueue.jobs.folder import Folder
from pyspark_hqueue.jobs.manifest import ArchivedFolder, archived_queue, contents_of
from pyspark_hqueue.jobs.targets import Target
from pyspark_hqueue.reading.clients import client_of
from pyspark_hqueue.writing.write_options import WriteOptions

__all__ = ["Piece", "Replay", "archived_pieces"]

FILE_PLACE = ("_metadata.file_path", "_metadata.row_index")


@dataclasses.dataclass(frozen=True)
class Piece:
    """Files that are replayed together.

    Args:
        number: of the archive's round.
        files: what has its messages and no others.
        messages: how many they are.
        compacted: files that have its messages among others.
        spans: by partition, the ID after which its messages in compacted files lie, and their
            last one.
    """

    number: int
    files: tuple[str, ...]
    messages: int
    compacted: tuple[str, ...] = ()
    spans: Mapping[int, tuple[int, int]] = dataclasses.field(default_factory=dict)


def archived_pieces(folder: ArchivedFolder) -> list[Piece]:
    """The rounds of an archive that are in their places, without files that were deleted since."""
    contents = contents_of(folder)
    pieces = []
    for record in contents.rounds:
        files, compacted = contents.of_round(record)
        messages = record.messages if files or compacted else 0
        spans = contents.spans(record.number) if compacted else {}
        pieces.append(Piece(record.number, files, messages, compacted, spans))
    return pieces


NULL_TOPIC = "__HIVE_DEFAULT_PARTITION__"
"""The topic whose folder means null to Spark. Every message of an archive has a topic."""


class Replay:
    """Files to write to a queue.

    Args:
        spark: the session. Its settings stay as they are.
        path: the folder of an archive, or a path of Parquet files.
        queue: the queue's name.
        by: what decides on a message's partition, see `pyspark_hqueue.jobs.targets`; if None the
            column partition, else the column key, else nothing.
        topics: only messages of these topics; all if empty.
        topic: the topic of what is written, instead of the files'.
        start: only messages of an archive from this ID on.
        stop: only messages of an archive before this ID.
        write_id: identifies this replay in the queue: with another one the same files are written
            again. If None, it follows from the path and from these arguments.
        options: of the data source's sink: ``hqueue.gateways`` and so on.

    Raises:
        InvalidInputError: there is nothing at the path, or columns are missing, or an argument
            does not go with the files.
        QueueNotFoundError: there is no such queue.
    """

    def __init__(
        self,
        spark: SparkSession,
        path: str,
        queue: str,
        *,
        by: str | None = None,
        topics: Sequence[str] = (),
        topic: str | None = None,
        start: MessageID | None = None,
        stop: MessageID | None = None,
        write_id: str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self._spark = spark.newSession()
        # A topic that looks like a number is none.
        self._spark.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
        self._folder = Folder(spark, path)
        given = dict(options or {})
        checked = WriteOptions.of({**given, "queue": queue}, "batch")
        self._queue = client_of(checked.settings).queue(queue)
        if topic is not None:
            check_topic(topic)
        self._topics, self._topic = tuple(sorted(topics)), topic
        self._span = (start, stop)
        self._is_archive = archived_queue(self._folder) is not None
        self._whole = None if self._is_archive else self._load()
        columns = FILES.names if self._whole is None else self._whole.columns
        self._order = ("partition", "id") if {"partition", "id"} <= {*columns} else FILE_PLACE
        if by is None:
            by = next((name for name in ("partition", "key") if name in columns), None)
        self._target = Target(queue, self._queue.partitions, by, given)
        facts = [self._folder.uri, by, self._topics, topic, *map(str, self._span)]
        digest = hashlib.blake2b(json.dumps(facts).encode(), digest_size=12).hexdigest()
        self.write_id = f"replay.{digest}" if write_id is None else write_id
        self._check(columns)

    def _check(self, columns: Sequence[str]) -> None:
        if any(self._span) and "id" not in columns:
            raise InvalidInputError("only an archive's files can be bounded by time or ID")
        if self._topics and "topic" not in columns:
            raise InvalidInputError(
                "the files have no column topic: leave out the topics", columns=columns
            )
        frame = self._spark.createDataFrame([], FILES) if self._whole is None else self._whole
        types = {field.name: field.dataType for field in frame.schema}
        if not isinstance(types.get("value"), (BinaryType, StringType)):
            raise InvalidInputError(
                "the files need a column value, of binary or text", columns=columns
            )
        if self._topic is None and not isinstance(types.get("topic"), StringType):
            raise InvalidInputError(
                "the files need a column topic, of text; or name one topic for all", columns=columns
            )
        self._target.check(frame)
        check_name(self.write_id)

    def _load(self) -> DataFrame:
        if not self._folder.exists():
            raise InvalidInputError("there are no files at this path", path=self._folder.uri)
        metadata = self._folder.names("metadata")
        if self._folder.exists("_delta_log") or any(n.endswith(".metadata.json") for n in metadata):
            raise InvalidInputError(
                "these are the files of a table, among them some that are no longer part of it: "
                "replay the table, with --format delta or iceberg and a --checkpoint",
                path=self._folder.uri,
            )
        with refusing("the files at this path are not Parquet files", path=self._folder.uri):
            return self._spark.read.parquet(self._folder.uri)

    def pending(self) -> list[Piece]:
        """What a run would replay, or go on with. Nothing is changed by asking."""
        current = self._queue.current_epoch(f"spark-write.{self.write_id}")
        epoch = 0 if current is None else current[0]
        return [piece for piece in self._pieces() if piece.number >= epoch]

    def _pieces(self) -> list[Piece]:
        if self._whole is not None:
            return [Piece(0, (), self._whole.count())]
        return archived_pieces(self._folder)

    def run(self, on_piece: Callable[[Piece], None] | None = None) -> int:
        """Write what is pending.

        Args:
            on_piece: called with each piece that is written.

        Returns:
            How many messages were written, or were found to be there.

        Raises:
            IdempotencyKeyReusedError: the files have changed since the replay was begun.
            FencedError: another run is further than this one.
            HQueueError: the queue can't be written to.
            JobError: Spark failed.
        """
        written = 0
        pieces = self.pending()
        while pieces:
            piece = pieces.pop(0)
            if piece.messages:
                try:
                    written += self._write(piece)
                except HQueueError:
                    if not self._compacted_since(piece):
                        raise
                    pieces = self.pending()
                    continue
            # The next epoch says that this piece is done.
            self._queue.claim_epoch(f"spark-write.{self.write_id}", piece.number + 1)
            if on_piece is not None:
                on_piece(piece)
        return written

    def _write(self, piece: Piece) -> int:
        with translated():
            frame = self._chosen(self._frame(piece))
        return self._target.write(frame, self._order, write_id=self.write_id, epoch=piece.number)

    def _compacted_since(self, piece: Piece) -> bool:
        """Whether a piece failed because it lies in other files by now."""
        if not self._is_archive:
            return False
        there = archived_pieces(self._folder)
        return any(each.number == piece.number and each != piece for each in there)

    def _frame(self, piece: Piece) -> DataFrame:
        if self._whole is not None:
            return self._whole
        if not piece.compacted:
            return self._files(piece.files)
        lows, lasts = zip(*piece.spans.values(), strict=True)
        spans = self._spark.createDataFrame(
            [(partition, *span) for partition, span in piece.spans.items()],
            "partition int, behind long, last long",
        )
        # Row groups are skipped by the first condition.
        found = (
            self._files(piece.compacted)
            .where(F.col("id").between(min(lows), max(lasts)))
            .join(F.broadcast(spans), "partition")
            .where((F.col("id") > F.col("behind")) & (F.col("id") <= F.col("last")))
            .select(*FILES.names)
        )
        return found.union(self._files(piece.files)) if piece.files else found

    def _files(self, names: Sequence[str]) -> DataFrame:
        reader = self._spark.read.schema(FILES).option("basePath", self._folder.uri)
        frame = reader.parquet(*map(self._folder.inside, names)).select(*FILES.names)
        return frame.withColumn("topic", F.coalesce("topic", F.lit(NULL_TOPIC)))

    def _chosen(self, frame: DataFrame) -> DataFrame:
        if self._topics:
            frame = frame.where(F.col("topic").isin(list(self._topics)))
        start, stop = self._span
        if start is not None:
            frame = frame.where(F.col("id") >= int(start))
        if stop is not None:
            frame = frame.where(F.col("id") < int(stop))
        return frame if self._topic is None else frame.withColumn("topic", F.lit(self._topic))


if __name__ == "__main__":
    from pyspark_hqueue.jobs.program import main

    main("replay")
