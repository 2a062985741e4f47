"""MessageSender: delivers a partition's messages to one subscriber, at least once and in order."""

from __future__ import annotations

import asyncio

from hqueue import DeadLetter, HQueueError, Queue
from hqueue.message_id import timestamp_of
from hqueue.metadata import DeliveryOptions
from hqueue.push import Status
from hqueue_workers.delivery.checkpoint import CheckpointUpdater
from hqueue_workers.delivery.connection_pool import ConnectionPool, NoAnswerError
from hqueue_workers.delivery.cursor import Call, SubscriberCursor
from hqueue_workers.delivery.wire import Reply, decode_messages
from hqueue_workers.node.lease import Lease
from hqueue_workers.node.metrics import DeliveryMetrics
from hqueue_workers.node.runtime import Runtime

__all__ = ["MessageSender", "backoff_ms", "status_of"]

PAUSE_MS_MIN, PAUSE_MS_MAX = 1_000.0, 30_000.0
"""The pauses after a failure that is none of the subscriber's."""


class MessageSender:
    """Takes calls from a cursor, makes them, and moves the checkpoint on.

    One call at a time, and the next only when this one is done or its messages lie with the dead
    letters. A call that is to be made once more is put together again, of the same messages: while
    it waits for that it holds nothing.

    Args:
        queue: the queue.
        cursor: what comes next.
        pool: the connections to the subscriber.
        checkpoint: how far it is.
        options: how it wants to be delivered to.
        lease: whether this worker may act.
        runtime: what the worker runs on.
        metrics: where is counted what happens.
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
        self.ordinal: int | None = None
        """How many messages the partition had before what is delivered next, if that is known."""
        self._queue = queue
        self._pool = pool
        self._options = options
        self._lease = lease
        self._runtime = runtime
        self._metrics = metrics
        self._attempts = 0
        self._failures = 0
        self._reason = ""
        """What the subscriber said last of why the messages that come next are not done."""
        self._repeat_to: int | None = None
        self._behind_ms = float("-inf")
        """What the monotonic clock is behind the newest message's time, when it came."""
        self._calling = self._stopping = False
        self._task = runtime.start(self._run())

    async def stop(self, grace_ms: float) -> None:
        """End: a call under way has so long for its answer. Writes the checkpoint."""
        self._stopping = True
        if not self._calling:
            self._task.cancel()
        _, running = await asyncio.wait({self._task}, timeout=grace_ms / 1e3)
        for task in running:
            task.cancel()
            await asyncio.wait({task})
        await self.checkpoint.write()
        self._metrics.close()

    def cut_short(self) -> None:
        """Let `stop` wait no longer."""
        self._task.cancel()

    def abandon(self) -> None:
        """End at once, and write nothing: this worker is not in charge any more."""
        self._task.cancel()
        self.checkpoint.moved_by_others = True
        self._metrics.close()

    async def _run(self) -> None:
        pause_ms = PAUSE_MS_MIN
        try:
            while not self._stopping and not self.checkpoint.moved_by_others:
                try:
                    await self._deliver()
                    pause_ms = PAUSE_MS_MIN
                    self._over("delivering", "delivery to subscriber %s of %s goes on")
                except HQueueError as exc:
                    self._met("delivering", "delivery to subscriber %s of %s waits: %s", exc)
                    await self._runtime.sleep_ms(pause_ms)
                    pause_ms = min(2 * pause_ms, PAUSE_MS_MAX)
        finally:
            self.cursor.close()

    def _met(self, fault: str, text: str, error: Exception) -> None:
        """Something is wrong with the subscriber, in whichever of its partitions."""
        subscriber, queue = self.checkpoint.key.subscriber, self.checkpoint.key.queue
        self._runtime.faults.met(f"{fault} {subscriber} {queue}", text, subscriber, queue, error)

    def _over(self, fault: str, text: str) -> None:
        subscriber, queue = self.checkpoint.key.subscriber, self.checkpoint.key.queue
        self._runtime.faults.over(f"{fault} {subscriber} {queue}", text, subscriber, queue)

    async def _deliver(self) -> None:
        """Make one call, and do what its answer says."""
        first = await self.cursor.ready()
        if not self._is_due(first):
            due_ms = timestamp_of(first) + self._options.delay_ms
            await self._runtime.sleep_ms(due_ms - self._now_ms())
        await self._lease.wait()
        pause_ms = 0.0
        self._calling = True
        try:
            async with self._pool.connection() as connection:
                call = await self.cursor.take(self._repeat_to, self._is_due)
                reply = Reply(Status.DONE)
                if call is not None and call.count:
                    reply = await connection.call(call, self._options.timeout_ms / 1e3)
            if call is not None:
                pause_ms = await self._answered(call, reply)
        except NoAnswerError as exc:
            pause_ms = self._unanswered(call, exc)
        finally:
            self._calling = False
        if pause_ms and not self._stopping:
            del call
            await self._runtime.sleep_ms(pause_ms)

    def _is_due(self, message_id: int) -> bool:
        """Whether a message that was read is old enough. None waits here for longer than the delay,
        however wrong this machine's clock is: it was written before it was read.
        """
        if not self._options.delay_ms:
            return True
        written_ms = timestamp_of(message_id)
        if written_ms > self._now_ms():
            self._behind_ms = written_ms - self._runtime.clock.monotonic_ms()
        return written_ms + self._options.delay_ms <= self._now_ms()

    def _now_ms(self) -> float:
        """The time, by this machine's clock, or by a message that was written after that."""
        clock = self._runtime.clock
        return max(clock.wall_ms(), clock.monotonic_ms() + self._behind_ms)

    async def _answered(self, call: Call, reply: Reply) -> float:
        """Take in an answer; the pause until the call is made again, 0 if it is not."""
        self._failures = 0
        self._over("calling", "subscriber %s of %s answers again")
        status = status_of(reply)
        if status is Status.DONE:
            if call.count:
                self._metrics.delivered(call.count, self._age_ms(call))
            self._pass(call)
            return 0.0
        self._attempts += 1
        if status is Status.REJECT:
            await self._dead_letter(call, "rejected by the subscriber", reply.reason)
            return 0.0
        self._reason = reply.reason or self._reason
        self._metrics.retried(call.count)
        attempts_max = self._options.attempts_max
        if attempts_max is not None and self._attempts >= attempts_max:
            await self._dead_letter(call, "the subscriber's attempts are used up", self._reason)
            return 0.0
        self._repeat_to = call.end
        return self._backoff_ms(self._attempts)

    def _unanswered(self, call: Call | None, error: NoAnswerError) -> float:
        """Take in that there was no answer; the pause until the call is made again."""
        self._failures += 1
        self._metrics.unanswered()
        if self._lease.holds:
            self._met("calling", "subscriber %s of %s gives no answer: %s", error)
        self._repeat_to = self._repeat_to if call is None else call.end
        return self._backoff_ms(self._failures)

    def _backoff_ms(self, times: int) -> float:
        return backoff_ms(self._options, times)

    def _age_ms(self, call: Call) -> float:
        return max(0, self._runtime.clock.wall_ms() - timestamp_of(call.first))

    def _pass(self, call: Call) -> None:
        """Go on after a call that is done with."""
        self._attempts, self._reason, self._repeat_to = 0, "", None
        self.ordinal = call.ordinal
        self.checkpoint.advance(call.end)
        self.cursor.advance(call.end)

    async def _dead_letter(self, call: Call, why: str, said: str) -> None:
        """Put the messages of a call to the dead letters; then go on after it.

        Args:
            call: the call.
            why: why they go there.
            said: what the subscriber said of it; empty if nothing.

        Raises:
            HQueueError: they could not be written. The call will be made again.
        """
        subscriber = self.checkpoint.key.subscriber
        reason = f"{why}: {said}" if said else why
        letters = [
            DeadLetter(message, subscriber, reason, self._attempts)
            for message in decode_messages(b"".join(call.parts))
        ]
        self._repeat_to = call.end
        await self._lease.wait()
        await self._runtime.read(lambda: self._queue.dead_letters.put(letters))
        self._metrics.rejected(call.count)
        self._pass(call)
        await self.checkpoint.write()


def backoff_ms(options: DeliveryOptions, times: int) -> float:
    """The pause before a call is made again that failed so many times."""
    doubled: int = options.backoff_ms_min * 2 ** min(times - 1, 40)
    return min(doubled, options.backoff_ms_max)


def status_of(reply: Reply) -> Status:
    """A reply's status; what is none means that the call is to be made again."""
    try:
        return Status(reply.status)
    except ValueError:
        return Status.RETRY
