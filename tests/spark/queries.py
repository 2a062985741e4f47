"""Streaming queries that are run bit by bit, and what came out of them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import hqueue
from hqueue import Message
from pyspark_hqueue.reading.admission import ADMITS
from pyspark_hqueue.reading.schema import COLUMNS
from tests.support.waiting import wait_for

__all__ = ["Stream", "put", "undo_commit"]


def put(queue: hqueue.Queue, partition: int, first: int, count: int, topic: str = "t") -> None:
    """Put a batch of messages that say their partition and their number."""
    queue.put(
        [Message(topic, b"%d:%d" % (partition, n)) for n in range(first, first + count)],
        partition=partition,
    )


def undo_commit(checkpoint: Path, batch: int) -> None:
    """Take away what a driver notes in a checkpoint when a batch is done."""
    (checkpoint / "commits" / str(batch)).unlink()
    (checkpoint / "commits" / f".{batch}.crc").unlink(missing_ok=True)


class Stream:
    """A stream that appends what it reads to Parquet, with a checkpoint: it can be restarted.

    Args:
        spark: the session.
        queue: the queue that is read.
        folder: where its checkpoint and its output go.
        options: the source's.
    """

    def __init__(
        self, spark: SparkSession, queue: hqueue.Queue, folder: Path, **options: object
    ) -> None:
        self.spark = spark
        self.queue = queue
        self.checkpoint = folder / "checkpoint"
        self.output = folder / "output"
        self.options = options

    def source(self) -> DataFrame:
        reader = self.spark.readStream.format("hqueue").option("queue", self.queue.name)
        for name, value in self.options.items():
            reader = reader.option(name, value)  # type: ignore[arg-type]
        return reader.load()

    def start(self, **trigger: Any) -> StreamingQuery:
        writer = self.source().writeStream.format("parquet").option("path", str(self.output))
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        return (writer.trigger(**trigger) if trigger else writer).start()

    @contextlib.contextmanager
    def running(self, **trigger: Any) -> Iterator[StreamingQuery]:
        """The query, stopped at the end of the block."""
        query = self.start(**trigger)
        try:
            yield query
        finally:
            query.stop()

    def run_to_the_end(self) -> StreamingQuery:
        """Read what is there by now.

        A Spark that doesn't ask a source in Python where it ends makes one batch a run, and if one
        failed before it is that one: so there it is run until it has nothing to do.
        """
        committed = self._committed()
        query = self.start(availableNow=True)
        assert query.awaitTermination(120)
        if not ADMITS and self._committed() > committed:
            return self.run_to_the_end()
        return query

    def values(self) -> list[str]:
        """All that was read so far, in order."""
        if not (self.output / "_spark_metadata" / "0").exists():
            return []
        rows = self.spark.read.schema(COLUMNS).parquet(str(self.output)).collect()
        return [row.value.decode() for row in sorted(rows, key=lambda r: (r.partition, r.id))]

    def await_values(self, number: int) -> list[str]:
        wait_for(lambda: len(self.values()) >= number, f"{number} rows are read", timeout_s=120)
        return self.values()

    def await_batch(self, batch: int) -> None:
        """Wait until a batch is committed."""
        wait_for((self.checkpoint / "commits" / str(batch)).exists, f"batch {batch}", timeout_s=120)

    def batches(self) -> int:
        """How many batches were begun."""
        return self._noted("offsets")

    def _committed(self) -> int:
        return self._noted("commits")

    def _noted(self, what: str) -> int:
        return len(list((self.checkpoint / what).glob("[0-9]*")))

    def undo_commit(self, batch: int) -> None:
        """As if the driver had died before it noted that a batch is done."""
        undo_commit(self.checkpoint, batch)

    def offsets(self, batch: int) -> dict[str, Any]:
        """The offset that a batch ended at, as it is in the checkpoint."""
        lines = (self.checkpoint / "offsets" / str(batch)).read_text().splitlines()
        found: dict[str, Any] = json.loads(lines[-1])
        return found
