"""Appending a producer's batches in an event loop."""

from __future__ import annotations

from hqueue.errors import HQueueError
from hqueue.log.context import QueueContext
from hqueue.log.store import AsyncLogPort
from hqueue.message_id import MessageIDs
from hqueue.produce.appending import Given, QueueAppending
from hqueue.produce.delivery import PendingBatch
from hqueue.produce.loop_appender import HERE_BYTES
from hqueue.runtime.clock import drive_in_loop
from hqueue.runtime.loop import in_thread

__all__ = ["LoopBatches"]


class LoopBatches:
    """Appends batches. Used by any number of coroutines.

    Args:
        context: the queue.
        appending: decides what to ask for.
        port: its rows.
    """

    def __init__(
        self, context: QueueContext, appending: QueueAppending, port: AsyncLogPort
    ) -> None:
        self._context = context
        self._appending = appending
        self._port = port

    async def append(self, batch: PendingBatch[int]) -> MessageIDs:
        """Encode a batch, in a thread if it is large, and append it; its IDs.

        Raises:
            As `Queue.put`.
        """

        def ready() -> Given:
            return self._appending.compressed(Given(batch.encoded(), batch.target))

        if batch.buffered <= HERE_BYTES:
            given = ready()
        else:
            try:
                given = await in_thread(ready)
            except HQueueError:  # No thread can be had; or this raises that, too.
                given = ready()
        deadline = self._context.deadline()
        work = self._appending.append(given, deadline)
        appended = await drive_in_loop(work, self._port, deadline)
        return MessageIDs(appended.base, appended.count)
