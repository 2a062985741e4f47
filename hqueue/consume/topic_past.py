"""Whether topics that have owners have messages after a position: thousands, at little cost."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Sequence

from hqueue.consume.queue_reader import QueueReader
from hqueue.consume.topic_scans import scans_of
from hqueue.errors import Outcome, StoreUnavailableError
from hqueue.log.newest import NewestMessages
from hqueue.metadata.managers import LogRange
from hqueue.position import Position
from hqueue.runtime.clock import Clock
from hqueue.runtime.held import Held

__all__ = ["TopicPast"]

TOPICS_MAX = 1 << 19
KEPT_MS = 60_000.0


@dataclasses.dataclass
class _PartitionPast:
    newest: NewestMessages
    used_ms: float
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)


class TopicPast:
    """Says whether a scan of a topic would find messages. Thread-safe. Made by
    `OpenLog.topic_past`.

    When a topic's hub has died, each of the topic's subscriptions may have missed messages. Hubs
    check thousands of topics at once, and most subscriptions missed nothing. So the headers of each
    partition are read once for all topics, and the result is kept for a minute after the last call.

    Args:
        reader: the reader of the queue.
        clock: the source of time.
        topics_max: the topics kept in memory at a time, of all partitions.
    """

    def __init__(self, reader: QueueReader, clock: Clock, topics_max: int = TOPICS_MAX) -> None:
        self._reader = reader
        self._clock = clock
        self._topics_max = topics_max
        self._lock = threading.RLock()
        self._known: dict[int, _PartitionPast] = {}
        """By partition; the one that was used last is the last."""

    def may_have(
        self, topic: str, ranges: Sequence[LogRange], start: Position, stop: Position
    ) -> bool:
        """Whether a topic may have messages with IDs in ``[start, stop)``. False is certain.

        Args:
            topic: the topic.
            ranges: the topic's ranges.
            start: an ID.
            stop: an ID. All messages of the topic below it were appended before this call.

        Raises:
            StoreUnavailableError: HBase was unavailable for ``operation_timeout_ms``.
        """
        deadline = self._reader.deadline()
        for partition, scan in scans_of(topic, ranges, start, stop):
            known = self._of(partition)
            late = functools.partial(
                StoreUnavailableError,
                "headers that others asked for did not come in time",
                outcome=Outcome.NOT_APPLIED,
                partition=partition,
            )
            with Held(known.lock, deadline.remaining_ms / 1e3, late):
                asked = functools.partial(known.newest.may_have, topic, scan.start, scan.stop)
                found = self._reader.do(asked, deadline)
            with self._lock:
                self._drop_oldest()
            if found:
                return True
        return False

    def drop_idle(self) -> bool:
        """Drop results that were not used recently. Returns whether any are left."""
        oldest_ms = self._clock.monotonic_ms() - KEPT_MS
        with self._lock:
            used = filter(lambda item: item[1].used_ms > oldest_ms, self._known.items())
            self._known = dict(used)
            return bool(self._known)

    def _of(self, partition: int) -> _PartitionPast:
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            known = self._known.pop(partition, None)
            if known is None:
                known = _PartitionPast(self._reader.newest_messages(partition), now_ms)
            known.used_ms = now_ms
            self._known[partition] = known
            return known

    def _drop_oldest(self) -> None:
        """The lock is held."""
        while sum(len(each.newest) for each in self._known.values()) > self._topics_max:
            del self._known[next(iter(self._known))]
