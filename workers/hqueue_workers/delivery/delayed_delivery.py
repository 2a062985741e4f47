"""DelayedDelivery: puts delayed messages back into the log when they are due.

Each becomes a redrive, like a dead letter that is put back: only its subscriber gets it, at its new
place in the log, and like any other message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from hqueue import DeadLetter, HQueueError, MessageID, Queue, ReceivedMessage
from hqueue.engine import near
from hqueue.metadata.delays import Delayed
from hqueue_workers.delivery.checkpoint import CheckpointUpdater
from hqueue_workers.node.lease import Lease
from hqueue_workers.node.runtime import RETRIES, Runtime

__all__ = ["DelayedDelivery", "originals"]

LOOK_MS_MAX = 60_000.0
"""How long to wait before the clock is read again: it may have been set."""
REASON = "due"


class DelayedDelivery:
    """Puts one subscriber's delayed messages of one partition back when they are due.

    Args:
        queue: the queue.
        checkpoint: the subscriber's, with its delayed messages.
        lease: whether this worker may act.
        runtime: what the worker runs on.
    """

    def __init__(
        self, queue: Queue, checkpoint: CheckpointUpdater, lease: Lease, runtime: Runtime
    ) -> None:
        self._queue = queue
        self._checkpoint = checkpoint
        self._lease = lease
        self._runtime = runtime
        self._putting = self._stopping = False
        self._task: asyncio.Task[None] | None = None

    def look(self) -> None:
        """Begin to wait for delayed messages, if there are any."""
        idle = self._task is None and not self._stopping
        if idle and self._checkpoint.delays.due_ms is not None:
            self._task = self._runtime.start(self._run())

    def stop(self) -> set[asyncio.Task[None]]:
        """Put no more messages back. Returns the task that is still under way, if any."""
        self._stopping = True
        if self._task is None:
            return set()
        if not self._putting:
            self._task.cancel()
        return {self._task}

    def abandon(self) -> None:
        """End at once."""
        self._stopping = True
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        pauses = RETRIES.pauses()
        delays = self._checkpoint.delays
        try:
            while not (self._stopping or self._checkpoint.moved_by_others):
                due_ms = delays.due_ms
                if due_ms is None:
                    return
                delays.changed.clear()
                left_ms = due_ms - self._runtime.clock.wall_ms()
                if left_ms > 0:
                    await self._runtime.wait(delays.changed, min(left_ms, LOOK_MS_MAX))
                    continue
                done = False
                self._putting = True  # A clean stop does not cancel it meanwhile.
                try:
                    done = await self._put_back()
                    self._over()
                except HQueueError as exc:
                    self._met(exc)
                finally:
                    self._putting = False
                if done:
                    pauses = RETRIES.pauses()
                elif not self._stopping:
                    await self._runtime.sleep_ms(next(pauses))
        finally:
            self._task = None

    async def _put_back(self) -> bool:
        """Put due messages back. Returns whether there were any."""
        delays, key = self._checkpoint.delays, self._checkpoint.key
        await self._checkpoint.write()  # Then messages that were read just now have a record.
        due = await delays.take_due(self._runtime.clock.wall_ms())
        try:
            if not due.messages:
                return False
            await self._lease.wait()
            await self._runtime.read(
                lambda: self._queue.dead_letters.redrive(
                    DeadLetter(message, key.subscriber, REASON, 0)
                    for message in originals(self._queue, key.partition, due.messages)
                )
            )
            await delays.remove(due)
            return True
        finally:
            delays.let_go()

    def _met(self, error: HQueueError) -> None:
        subscriber, queue = self._checkpoint.key.subscriber, self._checkpoint.key.queue
        text = "delayed messages for subscriber %s of %s can't be put back now: %s"
        self._runtime.faults.met(f"delays {subscriber} {queue}", text, subscriber, queue, error)

    def _over(self) -> None:
        subscriber, queue = self._checkpoint.key.subscriber, self._checkpoint.key.queue
        text = "delayed messages for subscriber %s of %s are put back again"
        self._runtime.faults.over(f"delays {subscriber} {queue}", text, subscriber, queue)


def originals(
    queue: Queue, partition: int, messages: Sequence[Delayed]
) -> Iterator[ReceivedMessage]:
    """The messages that lie in the log, in the given order. Expired ones are left out.

    Raises:
        As `Queue.scan`.
    """
    found: dict[int, ReceivedMessage] = {}
    wanted = {each.id for each in messages}
    for begin, end in near((each, each + 1) for each in wanted):
        start, stop = MessageID.from_int(begin), MessageID.from_int(end)
        with queue.scan(partition=partition, start=start, stop=stop) as scanner:
            found.update((int(each.id), each) for each in scanner if int(each.id) in wanted)
    return (found[each.id] for each in messages if each.id in found)
