"""Reading in batch what a consumer group has not consumed yet."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from pyspark.sql import DataFrame, SparkSession

from hqueue import InvalidInputError, MessageID
from hqueue.engine import Engine
from pyspark_hqueue.reading.clients import client_of
from pyspark_hqueue.reading.located import frame_of, has_jvm, texts_of, wanted_columns
from pyspark_hqueue.reading.plan import partitions_of
from pyspark_hqueue.reading.pythons import check_tasks
from pyspark_hqueue.reading.read_options import ReadOptions
from pyspark_hqueue.reading.topic_ranges import planned

__all__ = ["read_group"]


@contextlib.contextmanager
def read_group(
    spark: SparkSession,
    queue: str,
    group: str,
    *,
    columns: Sequence[str] | None = None,
    **options: str | bool | float,
) -> Iterator[DataFrame]:
    """Read what a consumer group has not consumed yet, and commit that when the block ends.

        with read_group(spark, "events", "nightly") as frame:
            frame.write.mode("append").parquet("/lake/events")

    The frame is that of `read`: a snapshot, which begins at the group's offsets. If the block ends
    with an error, nothing is committed, and the next call has the same messages again; likewise if
    the commit fails. So messages are read at least once. All topics of the queue count as consumed,
    whichever are read.

    Args:
        spark: the session.
        queue: the queue's name.
        group: the group's name. It must have no consumers of the queue. ``startingOffsets`` says
            where the read begins in partitions in which the group has no offset; with the oldest
            message if it is not given.
        columns: as for `read`.
        options: the data source's batch options.

    Raises:
        InvalidInputError: an option is unknown or has a wrong value, a column does not exist, or
            the session is one of Spark Connect.
        SettingsError: the tasks use a different Python, in which HQueue is not installed.
        GroupActiveError: the group has consumers of the queue.
        CommitFailedError: a consumer or another program took the group's offsets over meanwhile.
        StoreUnavailableError: HBase or ZooKeeper was unavailable.
    """
    if not has_jvm(spark):
        raise InvalidInputError(
            "read_group works in Spark's driver only, and this is a client of Spark Connect: read "
            "with startingGroup and endingOffsets, and commit with hqueue.engine's "
            "standalone_offsets"
        )
    parsed = ReadOptions.of({**texts_of(options), "queue": queue, "startingGroup": group}, "batch")
    wanted = wanted_columns(spark, columns, parsed.columns)
    check_tasks(spark)
    client = client_of(parsed.settings)
    offsets = Engine(client).standalone_offsets(group, queue)
    offsets.begin(partitions_of(client.queue(queue), parsed))
    ranges = planned(client, parsed)
    yield frame_of(spark, parsed, ranges, wanted)
    offsets.commit(
        {
            range_.partition: (MessageID.from_int(range_.stop), range_.ordinal + range_.messages)
            for range_ in ranges
        }
    )
