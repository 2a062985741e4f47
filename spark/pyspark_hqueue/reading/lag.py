"""How far streams are behind, by their progress."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import StreamingQueryListener

from pyspark_hqueue.reading.stream_offsets import behind, positions_in, read_offset

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
    )

__all__ = ["LagListener", "StreamLag", "lags_of"]


@dataclasses.dataclass(frozen=True)
class StreamLag:
    """How far a stream is behind in a queue after a batch."""

    queue: str
    query_id: str
    """The ID of the query, which its checkpoint has."""
    query_name: str | None
    batch: int
    """The number of the batch that the query has finished last."""
    partitions: Mapping[int, int]
    """How many messages of all topics each partition has from the end of that batch on."""

    @property
    def messages(self) -> int:
        """How many messages the stream is behind in all partitions together."""
        return sum(self.partitions.values())


class LagListener(StreamingQueryListener):
    """Reports the lag of all streams that read queues in this session, after each batch.

        spark.streams.addListener(LagListener(lambda lag: print(lag.queue, lag.messages)))

    Spark shows where the log ends from 4.2 on; with earlier versions nothing is reported. The lag
    is that of the moment when the batch was planned, and while a stream is idle Spark reports
    nothing: what was written since then is not in it.

    Args:
        function: called with each queue's lag, in a thread of Spark's. What it raises is logged by
            Spark.
    """

    def __init__(self, function: Callable[[StreamLag], None]) -> None:
        super().__init__()
        self._function = function

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Does nothing: no batch was read yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Reports the lag after a batch."""
        for lag in lags_of(event.progress):
            self._function(lag)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Does nothing: no batch was read since the last report."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Does nothing: the last batch was reported before."""


def lags_of(progress: StreamingQueryProgress) -> list[StreamLag]:
    """The lag of each queue that a query reads, by its progress; none where Spark does not show
    where the log ends.
    """
    lags = []
    for source in progress.sources:
        end, latest = read_offset(source.endOffset), read_offset(source.latestOffset)
        if end is not None and latest is not None:
            lags.append(
                StreamLag(
                    latest["queue"],
                    str(progress.id),
                    progress.name,
                    progress.batchId,
                    behind(positions_in(latest), positions_in(end)),
                )
            )
    return lags
