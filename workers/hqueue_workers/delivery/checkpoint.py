"""CheckpointUpdater: stores how far each subscriber is, regularly and at each clean stop."""

from __future__ import annotations

import asyncio

from hqueue import HQueueError, MessageID
from hqueue.errors import CheckpointMovedError
from hqueue.metadata import Checkpoint, Checkpoints, SubscriptionKey
from hqueue.metadata.ports import Version
from hqueue.runtime.logs import Log
from hqueue_workers.delivery.subscriber_delays import SubscriberDelays
from hqueue_workers.node.runtime import Runtime

__all__ = ["CheckpointUpdater"]

logger = Log(__name__)


class CheckpointUpdater:
    """The checkpoint of one subscriber in one partition.

    It only moves forward, and only from where this worker left it. If another process has moved
    it, this worker no longer owns the partition, and writes nothing more.

    Args:
        key: the subscription: queue, partition and subscriber.
        known: the checkpoint from which the delivery began.
        port: the store of checkpoints.
        runtime: the worker's runtime.
    """

    def __init__(
        self, key: SubscriptionKey, known: Checkpoint, port: Checkpoints, runtime: Runtime
    ) -> None:
        self.key = key
        self.moved_by_others = False
        self._known = known
        self._port = port
        self._runtime = runtime
        self._done = int(known.next)
        self._writing = asyncio.Lock()
        self.delays = SubscriberDelays(key, known.delays, port, runtime)
        """The delayed messages before the checkpoint."""
        self.suspected = known.unanswered
        """The calls after the checkpoint that had no answer. The next write stores them."""
        self._must_write = False
        self._seen: dict[SubscriptionKey, tuple[Version, float]] = {}
        """Checkpoints of lower partitions with suspected messages: the version of each, and since
        when this worker has seen it, in milliseconds."""

    @property
    def written(self) -> int:
        """The checkpoint that was last written, as an integer ID."""
        return int(self._known.next)

    @property
    def due(self) -> bool:
        """Whether there is anything to write."""
        changed = self._must_write or self.delays.named != self._known.delays
        return (self._done > self.written or changed) and not self.moved_by_others

    def advance(self, message_id: int) -> None:
        """Note that everything below this ID is delivered."""
        self._done = message_id

    async def is_connected(self) -> bool:
        """Whether the subscriber is registered; False if that can't be read now."""
        try:
            return await self._port.is_connected.in_loop(self.key)
        except HQueueError:
            return False

    async def is_first_suspect(self, patience_ms: float) -> bool:
        """Whether no lower partition of the subscriber has suspected messages now. Partitions with
        suspected messages take turns in their order. So only one worker sends such messages at a
        time, and if the subscriber's process ends, it is known which call ended it.

        Args:
            patience_ms: a checkpoint that has not changed for this long no longer counts: no worker
                serves its partition.

        Raises:
            HQueueError: the checkpoints can't be read now.
        """
        lower = [self.key._replace(partition=each) for each in range(self.key.partition)]
        if not lower:
            return True
        found, _ = await self._port.inspect.in_loop(lower)
        now_ms, seen = self._runtime.clock.monotonic_ms(), self._seen
        self._seen = {}
        for key, checkpoint in found.items():
            if checkpoint.unanswered is not None:
                before = seen.get(key)
                same = before is not None and before[0] == checkpoint.revision
                since_ms = before[1] if before is not None and same else now_ms
                self._seen[key] = checkpoint.revision, since_ms
        return all(now_ms - since_ms >= patience_ms for _, since_ms in self._seen.values())

    async def write_suspected(self) -> None:
        """Write the checkpoint now if the calls without an answer changed, even if it did not
        move.
        """
        self._must_write = self._must_write or self.suspected != self._known.unanswered
        await self.write()

    async def write(self) -> None:
        """Write the checkpoint now, if it is due. A write that fails is tried again later."""
        async with self._writing:
            if self.due:
                await self._write()

    async def _write(self) -> None:
        known, done, suspected = self._known, MessageID.from_int(self._done), self.suspected
        try:
            async with self.delays.added() as delays:
                self._known = await self._port.compare_and_set.in_loop(
                    self.key, known, done, suspected, delays
                )
        except CheckpointMovedError as exc:
            self.moved_by_others = True
            logger.warning("this worker does not own the partition any more: %s", exc)
        except HQueueError as exc:
            text = "checkpoints can't be written now, and will be written later: %s"
            self._runtime.faults.met("writing checkpoints", text, exc)
        else:
            self._must_write = self._must_write and self.suspected != suspected
            self._runtime.faults.over("writing checkpoints", "checkpoints are written again")
