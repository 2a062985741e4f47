"""The queues that clients of the API use, opened once."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable

from hqueue import QueueStateError, StoreUnavailableError
from hqueue.engine import OpenLog
from hqueue.runtime.clock import Clock
from hqueue.runtime.loop import in_thread

__all__ = ["QueueCache"]

QUEUES_MAX = 1_024
FRESH_MS = 30_000.0
"""How long a queue's number of partitions is trusted: the queue may be deleted and made again."""


class _Known:
    """An open queue."""

    __slots__ = ("fresh_ms", "queue")

    def __init__(self, queue: OpenLog, fresh_ms: float) -> None:
        self.queue = queue
        self.fresh_ms = fresh_ms
        """Until when it is trusted; infinite while a caller checks it."""


class QueueCache:
    """Open queues by name. Used by the event loop.

    Args:
        open_queue: opens a queue; called by a thread.
        clock: the clock.
    """

    def __init__(self, open_queue: Callable[[str], OpenLog], clock: Clock) -> None:
        self._open_queue = open_queue
        self._clock = clock
        self._open: OrderedDict[str, _Known] = OrderedDict()

    async def get(self, name: str) -> OpenLog:
        """An open queue. One caller at a time checks whether it is still the same queue. If this
        can't be checked because HBase's master is away, the queue is trusted: puts and scans need
        no master.

        Raises:
            InvalidInputError: the name is not a valid queue name.
            QueueStateError: there is no such queue.
            StoreUnavailableError: HBase is not available.
        """
        now_ms = self._clock.monotonic_ms()
        known = self._open.get(name)
        if known is not None:
            self._open.move_to_end(name)
            if now_ms < known.fresh_ms:
                return known.queue
            known.fresh_ms = math.inf
            if await self._is_same(known):
                return known.queue
            self.drop(name)
        queue = await in_thread(self._open_queue, name)
        # Of several that opened it at once all go on with one: its writers take turns.
        opened = self._open.setdefault(name, _Known(queue, now_ms + FRESH_MS))
        self._open.move_to_end(name)
        if len(self._open) > QUEUES_MAX:
            self._open.popitem(last=False)
        return opened.queue

    def drop(self, name: str) -> None:
        """Ask for the queue again when it is used next: it was not what it was thought to be."""
        self._open.pop(name, None)

    async def _is_same(self, known: _Known) -> bool:
        try:
            now = await in_thread(known.queue.describe)
            return now.partitions == known.queue.partitions
        except QueueStateError:
            return False
        except StoreUnavailableError:
            return True
        finally:
            known.fresh_ms = self._clock.monotonic_ms() + FRESH_MS
