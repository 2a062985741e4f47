"""The metric of messages that readers skipped, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from hqueue.metadata import PartitionKey
from hqueue.metrics.families import counts

__all__ = ["SkippedMessages"]


class SkippedMessages(Collector):
    """The messages that a process could not read and skipped.

    Args:
        messages: gives the current number of skipped messages of each partition.
    """

    def __init__(self, messages: Callable[[], Mapping[PartitionKey, int]]) -> None:
        self._messages = messages

    def collect(self) -> Iterator[CounterMetricFamily]:
        skipped = counts("hqueue_skipped_messages")
        for key, messages in sorted(self._messages().items()):
            skipped.add_metric([key.queue, str(key.partition)], messages)
        yield skipped
