"""Measuring how far the subscribers are behind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from hqueue import HQueueError, MessageID, PartitionLag, Queue
from hqueue.metadata import SubscriptionKey
from hqueue.runtime.logs import Log
from hqueue_workers.delivery.partition import ServedPartition
from hqueue_workers.node.measuring import measure_again_and_again
from hqueue_workers.node.metrics import Lag
from hqueue_workers.node.runtime import Runtime

__all__ = ["LagMeter"]

logger = Log(__name__)

EVERY_MS = 5_000.0


class LagMeter:
    """Knows each subscriber's lag: of one that is at its partition's end by itself, of others by
    asking HBase now and then.

    Args:
        served: gives the partitions that are served.
        runtime: what the worker runs on.
    """

    def __init__(self, served: Callable[[], Iterable[ServedPartition]], runtime: Runtime) -> None:
        self._served = served
        self._runtime = runtime
        self._measured: dict[SubscriptionKey, PartitionLag] = {}

    def lags(self) -> list[Lag]:
        """All lags that are known."""
        known = []
        for partition in self._served():
            for sender in partition.senders:
                key = sender.checkpoint.key
                lag = self._measured.get(key)
                if sender.cursor.at_end:
                    known.append(Lag(key, 0, 0))
                elif lag is not None:
                    known.append(Lag(key, lag.messages, lag.age_ms))
        return known

    async def run(self) -> None:
        """Measure, until cancelled."""
        await measure_again_and_again(self._runtime, EVERY_MS, self._measure_all)

    async def _measure_all(self) -> None:
        behind: dict[Queue, list[tuple[SubscriptionKey, int]]] = defaultdict(list)
        for partition in self._served():
            for sender in partition.senders:
                if not sender.cursor.at_end:
                    behind[partition.queue].append((sender.checkpoint.key, sender.cursor.position))
        measured: dict[SubscriptionKey, PartitionLag] = {}
        for queue, positions in behind.items():
            measured |= await self._runtime.read(lambda q=queue, p=positions: _measure(q, p))  # type: ignore[misc]
        self._measured = measured


def _measure(
    queue: Queue, positions: Sequence[tuple[SubscriptionKey, int]]
) -> dict[SubscriptionKey, PartitionLag]:
    measured = {}
    for key, message_id in positions:
        try:
            lag = queue.lag({key.partition: MessageID.from_int(message_id)})
        except HQueueError as exc:
            logger.debug("can't measure a subscriber's lag: %s", exc)
            break
        measured[key] = lag[key.partition]
    return measured
