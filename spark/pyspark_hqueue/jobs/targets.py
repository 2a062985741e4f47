"""Where messages go, and writing them there in order.

What decides on the partition, ``by``:

    partition   the source's, modulo the number of the queue's partitions
    key         the message's key; where it is null, the partition
    topic       the topic, as a key
    other       an expression of Spark's SQL over the columns, as a key; where it is null,
                the partition

So what had an order in the source keeps it: all messages of a source's partition, of a key or of
a topic come into one partition, in the order in which they lay.

Messages of the system's own topics, as dead letters, are about the subscribers of the queue that
they lay in: they are left out, and so are the system's own headers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, BinaryType, StructType

from hqueue import InvalidInputError
from hqueue.runtime.logs import Log
from hqueue.settings.reserved import PREFIX
from pyspark_hqueue.jobs.failures import refusing, translated
from pyspark_hqueue.writing.write_options import check_headers

__all__ = ["Target"]

logger = Log(__name__)

TASKS_MAX = 32


@dataclasses.dataclass(frozen=True)
class Target:
    """A queue to write to.

    Args:
        queue: its name.
        partitions: how many it has.
        by: what decides on a message's partition; see above. Anywhere if None.
        options: of the data source's sink, as ``hqueue.gateways``.
    """

    queue: str
    partitions: int
    by: str | None
    options: Mapping[str, str]

    @property
    def tasks(self) -> int:
        """How many tasks write.

        Rows that were written are identified by their task. So the number follows from the queue
        alone, and not from how much there is to write, which may be less when it is repeated.
        """
        return min(self.partitions, TASKS_MAX)

    def check(self, frame: DataFrame) -> None:
        """Refuse a rule that can't be applied to these columns.

        Raises:
            InvalidInputError: it is not an expression, or gives another value each time; or the
                headers have a type that they can't have.
        """
        check_headers(frame.schema)
        if self.by in ("partition", "key") and self.by not in frame.columns:
            raise InvalidInputError(
                "there is no column of this name to choose partitions by",
                by=self.by,
                columns=frame.columns,
            )
        with refusing(
            "by must be partition, key, topic, or an expression of Spark's SQL", by=self.by
        ):
            chosen = frame.select(self._partition(frame))
            plan = chosen._jdf.queryExecution().analyzed()
        if not plan.deterministic():
            raise InvalidInputError("an expression must be deterministic", by=self.by)

    def write(self, frame: DataFrame, order: Sequence[str], *, write_id: str, epoch: int) -> int:
        """Write a frame, with its messages in order in each partition of the queue, once.

        Args:
            frame: its columns are ``topic``, ``value``, ``key`` and ``headers`` if there are any,
                those of `order` and of the rule.
            order: columns that no two messages share all of. What is written is the same each
                time that the same frame is given, however Spark divides it.
            write_id: identifies this write, together with `epoch`, so that it is made once.
            epoch: a later epoch fences the ones before it.

        Returns:
            How many were written, or were found to be there. Those left out are logged.

        Raises:
            HQueueError: the queue can't be written to.
            JobError: Spark failed.
        """
        order_columns = [f"order_{index}" for index in range(len(order))]
        message = {"topic": F.col("topic"), "value": F.col("value")}
        if "key" in frame.columns:
            message["key"] = _as_key(frame, F.col("key"))
        if "headers" in frame.columns:
            message["headers"] = _kept_headers(frame)
        columns = [
            self._partition(frame).alias("partition"),
            *(column.alias(name) for name, column in message.items()),
            *(F.col(name).alias(column) for name, column in zip(order, order_columns, strict=True)),
        ]
        spread = ["partition"] if self.by is not None else order_columns[:1]
        given, seen = Observation(), Observation()
        ordered = (
            frame.observe(given, F.count(F.lit(1)).alias("messages"))
            .where(~F.coalesce(F.col("topic").startswith(PREFIX), F.lit(False)))
            .select(*columns)
            .observe(seen, F.count(F.lit(1)).alias("messages"))
            .repartition(self.tasks, *spread)
            .sortWithinPartitions("partition", *order_columns)
            .select("partition", *message)
        )
        named = {"queue": self.queue, "writeId": write_id, "writeEpoch": str(epoch)}
        with translated():
            ordered.write.format("hqueue").mode("append").options(**self.options, **named).save()
        written = int(seen.get["messages"])
        left_out = int(given.get["messages"]) - written
        if left_out:
            logger.warning("left out %d messages of topics that begin with %r", left_out, PREFIX)
        return written

    def _partition(self, frame: DataFrame) -> Column:
        if self.by is None:
            return F.lit(None).cast("int")
        same = F.pmod(F.col("partition").cast("long"), F.lit(self.partitions)).cast("int")
        if self.by == "partition":
            return same
        key = F.expr(self.by) if self.by not in ("key", "topic") else F.col(self.by)
        chosen = (F.crc32(_as_key(frame, key)) % self.partitions).cast("int")
        return F.coalesce(chosen, same) if "partition" in frame.columns else chosen


def _kept_headers(frame: DataFrame) -> Column:
    """The headers but for the system's own."""
    kind = frame.schema["headers"].dataType
    headers = F.col("headers")
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return headers  # Of nulls alone.
    name = kind.elementType.names[0]
    return F.filter(headers, lambda each: ~each.getField(name).startswith(PREFIX))


def _as_key(frame: DataFrame, column: Column) -> Column:
    """A column as a key: what is not binary as its text."""
    if isinstance(frame.select(column).schema[0].dataType, BinaryType):
        return column
    return column.cast("string").cast("binary")
