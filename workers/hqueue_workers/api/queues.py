"""The queues that clients of the API use, opened once."""

from __future__ import annotations

import threading
from collections import OrderedDict

from hqueue import Client, Queue, QueueStateError
from hqueue.runtime.clock import Clock

__all__ = ["QueueCache"]

QUEUES_MAX = 1_024
FRESH_MS = 30_000.0
"""How long a queue's number of partitions is believed: one that was deleted may come again."""


class QueueCache:
    """Open queues by name. Thread-safe.

    Args:
        client: the connection.
        clock: where time comes from.
    """

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._lock = threading.Lock()
        self._open: OrderedDict[str, tuple[Queue, float]] = OrderedDict()

    def get(self, name: str) -> Queue:
        """An open queue.

        Raises:
            InvalidInputError: no queue has such a name.
            QueueStateError: there is no such queue.
            StoreUnavailableError: HBase stayed away.
        """
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            known = self._open.get(name)
            if known is not None:
                self._open.move_to_end(name)
        if known is not None and now_ms < known[1] + FRESH_MS:
            return known[0]
        if known is not None and self._is_same(known[0]):
            queue = known[0]
        else:
            queue = self._client.queue(name)
        with self._lock:
            # Of several that opened it at once all go on with one: its writers take turns.
            other = self._open.get(name)
            if other is not None and other is not known:
                return other[0]
            self._open[name] = queue, now_ms
            self._open.move_to_end(name)
            if len(self._open) > QUEUES_MAX:
                self._open.popitem(last=False)
        return queue

    def forget(self, name: str) -> None:
        """Ask for the queue again when it is used next: it was not what it was thought to be."""
        with self._lock:
            self._open.pop(name, None)

    def _is_same(self, queue: Queue) -> bool:
        try:
            return queue.describe().partitions == queue.partitions
        except QueueStateError:
            self.forget(queue.name)
            raise
