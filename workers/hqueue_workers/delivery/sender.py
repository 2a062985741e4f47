"""MessageSender: delivers a partition's messages to one subscriber, at least once and in order."""

from __future__ import annotations

import asyncio

from hqueue import HQueueError, Queue
from hqueue.message_id import timestamp_of
from hqueue.metadata import DeliveryOptions
from hqueue.metadata.unanswered_calls import UnansweredCalls
from hqueue.settings.limits import MESSAGE_ID_MAX
from hqueue_workers.delivery.caller import Caller
from hqueue_workers.delivery.checkpoint import CheckpointUpdater
from hqueue_workers.delivery.connection_pool import ConnectionPool, NoAnswerError
from hqueue_workers.delivery.cursor import SubscriberCursor
from hqueue_workers.delivery.delayed_delivery import DelayedDelivery
from hqueue_workers.delivery.suspects import messages_max
from hqueue_workers.delivery.tries import UNTRIED, Decision
from hqueue_workers.delivery.wire import Call
from hqueue_workers.node.lease import Lease
from hqueue_workers.node.metrics import DeliveryMetrics
from hqueue_workers.node.runtime import RETRIES, Runtime

__all__ = ["MessageSender"]

DELAYED_MAX = 1_000
"""The most delayed messages that one call leaves out."""
FULL_MS = 500.0
"""The pause while there is no room for more delayed messages."""


class MessageSender:
    """Takes calls from a cursor, makes them, and moves the checkpoint on.

    It makes one call at a time, and the next only when the messages of this one are done or are
    dead letters. A call that is repeated is put together again from the same messages, so that it
    holds no memory while it waits.

    Args:
        queue: the queue.
        cursor: gives the next messages.
        pool: the connections to the subscriber.
        checkpoint: how far the subscriber is.
        options: the subscriber's delivery options.
        lease: whether this worker may act.
        runtime: the worker's runtime.
        metrics: the subscriber's metrics in this partition.
    """

    def __init__(
        self,
        queue: Queue,
        *,
        cursor: SubscriberCursor,
        pool: ConnectionPool,
        checkpoint: CheckpointUpdater,
        options: DeliveryOptions,
        lease: Lease,
        runtime: Runtime,
        metrics: DeliveryMetrics,
    ) -> None:
        self.cursor = cursor
        self.checkpoint = checkpoint
        self._caller = Caller(queue, options, lease, runtime)
        self._delayed = DelayedDelivery(queue, checkpoint, lease, runtime)
        self._pool = pool
        self._options = options
        self._lease = lease
        self._runtime = runtime
        self._metrics = metrics
        self.name = checkpoint.key.subscriber
        self.tries = UNTRIED
        self._behind_ms = float("-inf")
        """How far the monotonic clock was behind the newest message's time when it came."""
        self._as_of_ms = 0.0
        """When the next call was first tried: each try has the messages that were due then."""
        self._full = False
        """Whether the next message is delayed, and there is no room for it."""
        self._calling = self._stopping = False
        self._task = runtime.start(self._run())
        self._delayed.look()

    async def stop(self, grace_ms: float) -> None:
        """Stop, and write the checkpoint. A call under way may wait this long for its answer."""
        self._stopping = True
        if not self._calling:
            self._task.cancel()
        ending = {self._task, *self._delayed.stop()}
        _, running = await asyncio.wait(ending, timeout=grace_ms / 1e3)
        for task in running:
            task.cancel()
            await asyncio.wait({task})
        await self.checkpoint.write()
        self._metrics.close()

    def cut_short(self) -> None:
        """Make `stop` wait no longer for an answer."""
        self._task.cancel()
        self._delayed.abandon()

    def abandon(self) -> None:
        """Stop at once, and write nothing: this worker no longer owns the partition."""
        self._task.cancel()
        self._delayed.abandon()
        self.checkpoint.moved_by_others = True
        self._metrics.close()

    async def _run(self) -> None:
        pauses = RETRIES.pauses()
        try:
            while not self._stopping and not self.checkpoint.moved_by_others:
                try:
                    await self._deliver()
                    pauses = RETRIES.pauses()
                    self._over("delivering", "delivery to subscriber %s of %s goes on")
                except HQueueError as exc:
                    self._met("delivering", "delivery to subscriber %s of %s waits: %s", exc)
                    await self._runtime.sleep_ms(next(pauses))
        finally:
            self.cursor.close()

    def _met(self, fault: str, text: str, error: Exception) -> None:
        """Log a fault of the subscriber, once for all its partitions."""
        subscriber, queue = self.checkpoint.key.subscriber, self.checkpoint.key.queue
        self._runtime.faults.met(f"{fault} {subscriber} {queue}", text, subscriber, queue, error)

    def _over(self, fault: str, text: str) -> None:
        subscriber, queue = self.checkpoint.key.subscriber, self.checkpoint.key.queue
        self._runtime.faults.over(f"{fault} {subscriber} {queue}", text, subscriber, queue)

    async def _deliver(self) -> None:
        """Wait until a message is due, make one call, and pause as the answer demands."""
        first = await self.cursor.ready()
        if not self._is_due(first):
            due_ms = timestamp_of(first) + self._options.delay_ms
            await self._runtime.sleep_ms(due_ms - self._now_ms())
        await self._lease.wait()
        self._calling = True
        try:
            pause_ms = await self._caller.deliver(self._pool, self)
            if self._full:
                await self.checkpoint.write()
                pause_ms = 0.0 if self.checkpoint.delays.room else FULL_MS
        finally:
            self._calling = False
        if pause_ms and not self._stopping:
            await self._runtime.sleep_ms(pause_ms)

    def _is_due(self, message_id: int) -> bool:
        """Whether a message that was read is old enough. No message waits longer than the delay,
        however wrong this machine's clock is, because it was written before it was read.
        """
        if not self._options.delay_ms:
            return True
        written_ms = timestamp_of(message_id)
        if written_ms > self._now_ms():
            self._behind_ms = written_ms - self._runtime.clock.monotonic_ms()
        return written_ms + self._options.delay_ms <= self._now_ms()

    def _now_ms(self) -> float:
        """The time by this machine's clock, or by the newest message if that is later."""
        clock = self._runtime.clock
        return max(clock.wall_ms(), clock.monotonic_ms() + self._behind_ms)

    @property
    def unanswered_calls_max(self) -> int:
        """Like `Receiver`."""
        return self._options.unanswered_calls_max

    @property
    def suspected(self) -> UnansweredCalls | None:
        """Like `Receiver`."""
        return self.checkpoint.suspected

    @suspected.setter
    def suspected(self, unanswered: UnansweredCalls | None) -> None:
        self.checkpoint.suspected = unanswered

    async def is_connected(self) -> bool:
        """Like `Receiver`."""
        return not self._stopping and await self.checkpoint.is_connected()

    async def is_free(self) -> bool:
        """Like `Receiver`."""
        return await self.checkpoint.is_first_suspect(
            2 * (self._options.timeout_ms + self._options.backoff_ms_max)
        )

    async def keep_suspected(self) -> None:
        """Like `Receiver`."""
        await self.checkpoint.write_suspected()

    def halved(self) -> None:
        """Like `Receiver`."""
        self._metrics.halved()

    async def take(self) -> Call | None:
        """Like `Receiver`."""
        most = messages_max(self.suspected, self.cursor.position, MESSAGE_ID_MAX)
        if self.tries.end is None:
            self._as_of_ms = self._now_ms()
        room = min(self.checkpoint.delays.room, DELAYED_MAX)
        call = await self.cursor.take(self.tries.end, self._is_due, most, self._as_of_ms, room)
        self._full = call is None and not room
        return call

    def called(self, call: Call, decision: Decision, error: NoAnswerError | None) -> bool:
        """Like `Receiver`."""
        self.tries = decision.tries
        if error is not None:
            self._metrics.unanswered()
            if self._lease.holds:
                self._met("calling", "subscriber %s of %s gives no answer: %s", error)
        elif call.count:
            self._over("calling", "subscriber %s of %s answers again")
        self._metrics.answered(decision.retried, decision.rejected)
        return True

    async def passed(self, call: Call, decision: Decision) -> None:
        """Like `Receiver`."""
        buried = len(decision.dead)
        self._metrics.buried(buried)
        if call.count > buried:
            age_ms = self._runtime.clock.wall_ms() - timestamp_of(call.first)
            self._metrics.delivered(call.count - buried, max(0, age_ms))
        self.tries = decision.after
        if call.delayed:
            self.checkpoint.delays.add(call.delayed)
            self._delayed.look()
        self.checkpoint.advance(call.end)
        self.cursor.advance(call.end)
        if buried:
            await self.checkpoint.write()
