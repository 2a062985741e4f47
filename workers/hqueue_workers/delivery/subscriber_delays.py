"""SubscriberDelays: the delayed messages of one subscriber in one partition."""

from __future__ import annotations

import asyncio
import contextlib
from bisect import bisect_right
from collections.abc import AsyncIterator, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from hqueue.errors import CheckpointMovedError
from hqueue.metadata import Checkpoints, SubscriptionKey
from hqueue.metadata.delay_records import Addition
from hqueue.metadata.delays import DELAYED_TOGETHER_MAX, DELAYS_MAX, Delay, Delayed
from hqueue.metadata.ports import Version
from hqueue_workers.node.runtime import Runtime

__all__ = ["DueMessages", "SubscriberDelays"]

DUE_TOGETHER_MAX = 500
RECORDS_TOGETHER_MAX = 16
"""The most records from which due messages are put back at a time."""


class DueMessages(NamedTuple):
    """Messages that are due, and what remains in the records that have them."""

    messages: Sequence[Delayed]
    """The messages, in the order of their times."""
    left: Sequence[tuple[Delay, Sequence[Delayed], Version]]
    """Each record, with its messages that are not due yet, and its version."""


class SubscriberDelays:
    """Keeps delayed messages in records. A record counts as soon as the checkpoint names it; before
    that the messages are in memory, and the stored checkpoint lies before them.

    A message is removed from its record after it was put back into the log. A worker that lost the
    partition meanwhile may remove it, too, because it has been put back.

    Args:
        key: the subscription.
        named: the records that the checkpoint names.
        port: where checkpoints are kept.
        runtime: what the worker runs on.
    """

    def __init__(
        self,
        key: SubscriptionKey,
        named: tuple[Delay, ...],
        port: Checkpoints,
        runtime: Runtime,
    ) -> None:
        self.named = named
        """The records that the checkpoint names, or will name after the next write."""
        self.changed = asyncio.Event()
        """Set when a message comes that may be due before all others."""
        self._records = port.delays(key)
        self._runtime = runtime
        self._met: list[Delayed] = []
        """The messages that no record has yet."""
        self._busy: set[str] = set()
        """Records whose due messages are being put back. They are not merged meanwhile."""
        self._changing = asyncio.Lock()

    @property
    def due_ms(self) -> int | None:
        """When the next message is due; None if there is none."""
        waiting = [*(each.due_ms for each in self.named), *(each.due_ms for each in self._met)]
        return min(waiting, default=None)

    @property
    def room(self) -> int:
        """How many more messages may be added now."""
        if len(self.named) >= DELAYS_MAX:
            return 0
        return max(0, DELAYED_TOGETHER_MAX - len(self._met))

    def add(self, delayed: Iterable[Delayed]) -> None:
        """Keep messages. The next write of the checkpoint will name them."""
        self._met += delayed
        self.changed.set()

    @contextlib.asynccontextmanager
    async def added(self) -> AsyncIterator[tuple[Delay, ...]]:
        """Write records of all messages that have none. The block writes the checkpoint, which
        must name the given records.

        Raises:
            HQueueError: the records can't be written now.
        """
        async with self._changing:
            met, addition = list(self._met), Addition(self.named)
            if met:
                busy = tuple(each for each in self.named if each.name in self._busy)
                free = tuple(each for each in self.named if each.name not in self._busy)
                add = partial(self._records.add, free, met)
                addition = await self._runtime.coordinate(add)
                addition = addition._replace(delays=(*busy, *addition.delays))
            try:
                yield addition.delays
            except CheckpointMovedError:
                await self._records.refused.in_loop(addition.made)
                raise
            del self._met[: len(met)]
            self.named = addition.delays
            await self._records.written.in_loop([each.name for each in self.named])

    async def take_due(self, now_ms: float) -> DueMessages:
        """Due messages from the records, some hundreds at most. They stay in their records until
        `remove`. Call `let_go` in any case.

        Raises:
            HQueueError: the records can't be read now.
        """
        messages: list[Delayed] = []
        left: list[tuple[Delay, Sequence[Delayed], Version]] = []
        async with self._changing:
            for delay in sorted(self.named, key=lambda each: each.due_ms)[:RECORDS_TOGETHER_MAX]:
                room = DUE_TOGETHER_MAX - len(messages)
                if room <= 0 or delay.due_ms > now_ms:
                    break
                read = partial(self._records.read, delay.name)
                waiting, version = await self._runtime.coordinate(read)
                due = waiting[: bisect_right(waiting, now_ms, key=lambda each: each.due_ms)][:room]
                if version is None or not due:  # A crash came before the checkpoint's write.
                    self._replace(delay, waiting)
                    continue
                messages += due
                left.append((delay, waiting[len(due) :], version))
            self._busy = {delay.name for delay, _, _ in left}
        return DueMessages(sorted(messages), left)

    async def remove(self, due: DueMessages) -> None:
        """Remove messages that were put back into the log from their records.

        Raises:
            HQueueError: the records can't be changed now. The messages will be put back again.
        """
        async with self._changing:
            for delay, left, version in due.left:
                shorten = partial(self._records.shorten, delay.name, left, version)
                await self._runtime.coordinate(shorten)
                self._replace(delay, left)

    def let_go(self) -> None:
        """Allow the records from which messages were taken to be merged again."""
        self._busy = set()

    def _replace(self, delay: Delay, left: Sequence[Delayed]) -> None:
        """A record has these messages now."""
        kept = [each for each in self.named if each.name != delay.name]
        if left:
            kept.append(Delay(delay.name, left[0].due_ms, len(left)))
        self.named = tuple(kept)
