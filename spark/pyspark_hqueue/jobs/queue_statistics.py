"""Counting what is in a queue: messages and bytes of each topic, by windows of time.

The headers of the log tell it without a message being read, some hundred times faster than reading
them: so that is how it is done, without a Spark job, where nothing else is asked for. A condition
or an expression over the messages needs them, and is counted in Spark.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping, Sequence

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from hqueue import InvalidInputError, MessageID
from pyspark_hqueue.jobs.failures import refusing, translated
from pyspark_hqueue.jobs.sizes import message_bytes
from pyspark_hqueue.reading.clients import client_of
from pyspark_hqueue.reading.decode import topics_named
from pyspark_hqueue.reading.located import frame_of
from pyspark_hqueue.reading.plan import Range
from pyspark_hqueue.reading.read_options import ReadOptions
from pyspark_hqueue.reading.schema import WITH_HEADERS
from pyspark_hqueue.reading.topic_ranges import planned

__all__ = ["Count", "Counting", "Statistics"]

WINDOWS = 20
"""About this many windows there are if nobody says how long they are."""

SPANS_MS = tuple(
    seconds * 1_000
    for seconds in (1, 5, 10, 30, 60, 300, 600, 1_800, 3_600, 21_600, 86_400, 604_800)
)

COUNTS_MAX = 1_000_000


@dataclasses.dataclass(frozen=True, slots=True)
class Count:
    """What a window has of a topic, or of whatever else it was counted by: messages, and the bytes
    of their values, keys and headers.
    """

    window_ms: int
    group: str
    messages: int
    bytes: int


@dataclasses.dataclass(frozen=True)
class Statistics:
    """Counts by window and group; windows without messages have none."""

    queue: str
    window_ms: int
    counts: Sequence[Count]

    @property
    def messages(self) -> int:
        return sum(count.messages for count in self.counts)

    @property
    def bytes(self) -> int:
        return sum(count.bytes for count in self.counts)

    def windows(self) -> dict[int, list[Count]]:
        """The counts of each window, the largest first; windows in their order."""
        found: dict[int, list[Count]] = collections.defaultdict(list)
        for count in sorted(self.counts, key=lambda c: (c.window_ms, -c.messages, c.group)):
            found[count.window_ms].append(count)
        return dict(found)

    def groups(self) -> list[Count]:
        """The groups over all windows, the largest first; their window is the first one."""
        found: dict[str, list[Count]] = collections.defaultdict(list)
        for count in self.counts:
            found[count.group].append(count)
        totals = [
            Count(
                min(c.window_ms for c in counts),
                group,
                sum(c.messages for c in counts),
                sum(c.bytes for c in counts),
            )
            for group, counts in found.items()
        ]
        return sorted(totals, key=lambda count: (-count.messages, count.group))


class Counting:
    """What a job counts of a queue: all that is in it now, or what the options name.

    Args:
        queue: the queue's name.
        window_ms: how long windows are; if None, so that there are about 20.
        where: count only messages for which this expression of Spark's SQL is true.
        by: count by this expression instead of the topic.
        options: of the data source's batch reads: ``startingTimestamp``, ``subscribe``, ….

    Raises:
        InvalidInputError: an option has a wrong value.
        QueueNotFoundError: there is no such queue.
    """

    def __init__(
        self,
        queue: str,
        *,
        window_ms: int | None = None,
        where: str | None = None,
        by: str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self._options = ReadOptions.of({**(options or {}), "queue": queue}, "batch")
        self._queue = client_of(self._options.settings).queue(queue)
        if window_ms is not None and window_ms < 1:
            raise InvalidInputError("a window must be at least 1 ms long", window_ms=window_ms)
        self._window_ms = window_ms
        self._where, self._by = where, by
        self._ranges: list[Range] | None = None

    @property
    def needs_spark(self) -> bool:
        """Whether headers can't tell it."""
        return self._where is not None or self._by is not None

    def pending(self) -> list[Range]:
        """What is counted: what is there at the first call."""
        if self._ranges is None:
            self._ranges = planned(client_of(self._options.settings), self._options)
        return self._ranges

    def by_headers(self) -> Statistics:
        """Count without reading messages. A batch counts where its first message lies, and keys and
        headers as many bytes as their columns have in the log.

        Raises:
            InvalidInputError: an expression needs the messages.
        """
        if self.needs_spark:
            raise InvalidInputError(
                "the log's headers are not enough to count this: count in Spark instead"
            )
        window_ms = self._window()
        found: dict[tuple[int, str], list[int]] = collections.defaultdict(lambda: [0, 0])
        for range_ in self.pending():
            wanted = self._options.wanted_topics(lambda r=range_: topics_named(self._queue, r))  # type: ignore[misc]
            start, stop = MessageID.from_int(range_.start), MessageID.from_int(range_.stop)
            for header in self._queue.headers(range_.partition, start, stop):
                if header.base < range_.start:
                    continue
                window = MessageID.from_int(header.base).timestamp // window_ms * window_ms
                owners = None if range_.owner_epoch is None else header.owner_epochs
                for entry in header.topics:
                    if owners is not None and owners.get(entry.topic) != range_.owner_epoch:
                        continue
                    if wanted is None or entry.topic in wanted:
                        count = found[window, entry.topic]
                        count[0] += entry.count
                        count[1] += entry.value_bytes + entry.values_at
        counts = [Count(*key, *count) for key, count in sorted(found.items())]
        return Statistics(self._queue.name, window_ms, counts)

    def by_messages(self, spark: SparkSession) -> Statistics:
        """Count in Spark, over the messages themselves.

        Raises:
            InvalidInputError: an expression is wrong, or there is too much to show.
            HQueueError: the queue can't be read.
            JobError: Spark failed.
        """
        window_ms = self._window()
        self.check(spark)
        frame = frame_of(spark, self._options, self.pending(), WITH_HEADERS)
        if self._where is not None:
            frame = frame.where(self._where)
        group = F.expr(self._by or "topic").cast("string")
        with translated():
            rows = (
                frame.groupBy(
                    F.window("timestamp", f"{window_ms} milliseconds").alias("window"),
                    F.coalesce(group, F.lit("")).alias("group"),
                )
                .agg(F.count(F.lit(1)).alias("messages"), F.sum(message_bytes()).alias("bytes"))
                .select(F.unix_millis("window.start"), "group", "messages", "bytes")
                .limit(COUNTS_MAX + 1)
                .collect()
            )
        if len(rows) > COUNTS_MAX:
            raise InvalidInputError(
                "the result has too many windows and groups to show: use longer windows, or fewer "
                "groups",
                counts_max=COUNTS_MAX,
            )
        counts = sorted((Count(*row) for row in rows), key=lambda c: (c.window_ms, c.group))
        return Statistics(self._queue.name, window_ms, counts)

    def check(self, spark: SparkSession) -> None:
        """Refuse expressions that can't be evaluated. Reads nothing."""
        text = "an expression must be Spark SQL over the columns of a queue"
        with refusing(text, columns=WITH_HEADERS.names):
            frame = spark.createDataFrame([], WITH_HEADERS).where(self._where or "true")
            frame.select(F.expr(self._by or "topic").cast("string")).schema  # noqa: B018

    def _window(self) -> int:
        if self._window_ms is not None:
            return self._window_ms
        offsets = {each.partition: each for each in self._queue.offsets()}
        firsts, lasts = [], []
        for range_ in self.pending():
            first = offsets[range_.partition].beginning or MessageID(0)
            firsts.append(MessageID.from_int(max(range_.start, first)).timestamp)
            lasts.append(MessageID.from_int(range_.stop).timestamp)
        span_ms = max(lasts, default=0) - min(firsts, default=0)
        return next((ms for ms in SPANS_MS if ms * WINDOWS >= span_ms), SPANS_MS[-1])


if __name__ == "__main__":
    from pyspark_hqueue.jobs.program import main

    main("statistics")
