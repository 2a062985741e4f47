"""CheckpointUpdater: writes how far each subscriber is, every so often and at each orderly stop."""

from __future__ import annotations

from hqueue import HQueueError, MessageID
from hqueue.errors import CheckpointMovedError
from hqueue.metadata import Checkpoint, Checkpoints, SubscriptionKey
from hqueue.runtime.logs import Log
from hqueue_workers.node.runtime import Runtime

__all__ = ["CheckpointUpdater"]

logger = Log(__name__)


class CheckpointUpdater:
    """The checkpoint of one subscriber in one partition.

    It only moves ahead, and only from where this worker left it. When somebody else moved it,
    this worker is not in charge any more, and writes nothing further.

    Args:
        key: whose it is, and where.
        known: the checkpoint from which the delivery began.
        port: where checkpoints are kept.
        runtime: what the worker runs on.
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
        self._writing = False

    @property
    def written(self) -> int:
        """The checkpoint as it was written last, as an integer ID."""
        return int(self._known.next)

    @property
    def due(self) -> bool:
        """Whether there is anything to be written."""
        return self._done > self.written and not self.moved_by_others

    def advance(self, message_id: int) -> None:
        """Everything below this ID is delivered."""
        self._done = message_id

    async def write(self) -> None:
        """Write it now, if it moved. What can't be written now is written later."""
        if self._writing or not self.due:
            return
        self._writing = True
        known, done = self._known, MessageID.from_int(self._done)
        try:
            self._known = await self._port.compare_and_set.in_loop(self.key, known, done)
        except CheckpointMovedError as exc:
            self.moved_by_others = True
            logger.warning("this worker does not own the partition any more: %s", exc)
        except HQueueError as exc:
            text = "checkpoints can't be written now, and will be written later: %s"
            self._runtime.faults.met("writing checkpoints", text, exc)
        else:
            self._runtime.faults.over("writing checkpoints", "checkpoints are written again")
        finally:
            self._writing = False
