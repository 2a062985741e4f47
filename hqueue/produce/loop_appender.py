"""Appending to a queue in an event loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from hqueue.log import Appended
from hqueue.log.context import QueueContext
from hqueue.log.store import AsyncLogPort
from hqueue.message import Message
from hqueue.message_id import MessageID, MessageIDs
from hqueue.moment import Moment
from hqueue.produce.appending import Given, QueueAppending
from hqueue.produce.owned import LoopOwnedLog
from hqueue.runtime.clock import drive_in_loop
from hqueue.runtime.loop import in_thread

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["LoopAppender"]

HERE_MESSAGES, HERE_BYTES = 100, 64 * 1024
"""What is encoded in the loop, at most, if its size is known: in a millisecond."""


class LoopAppender:
    """The part of a queue's log that writes, for coroutines of any event loop. Made by
    `OpenLog.in_loop`.

    It does what `Appender` does, by the same decisions, and takes turns with it. The outcome of
    what is cancelled is unknown, unless it has an idempotency key: then it can be put again.

    Args:
        context: the queue.
        appending: decides what to ask for.
        port: its rows.
    """

    def __init__(
        self, context: QueueContext, appending: QueueAppending, port: AsyncLogPort
    ) -> None:
        self.partitions = context.partitions
        self.choose_partition = appending.choose_partition
        self.partition_of_keys = appending.partition_of_keys
        self._context = context
        self._appending = appending
        self._port = port

    async def put(
        self,
        messages: Message | Sequence[Message] | Iterator[Message] | pa.RecordBatch | pa.Table,
        *,
        partition: int | None = None,
        key: str | bytes | None = None,
        idempotency_key: str | bytes | None = None,
        since: Moment | None = None,
    ) -> MessageID | MessageIDs:
        """As `Queue.put`. A thread encodes and compresses what would keep the loop."""
        give = partial(self._appending.given, messages, partition, key, idempotency_key, since)
        if _is_small(messages):
            given = give()
        else:
            given = await in_thread(lambda: self._appending.compressed(give()))
        return given.ids(await self._append(given))

    async def put_system(self, messages: Sequence[Message], partition: int) -> None:
        """As `Appender.put_system`."""
        await self._append(self._appending.given_by_system(messages, partition))

    def open_owned(
        self,
        partition: int,
        on_fence: Callable[[str, int], None],
        on_settled: Callable[[int | None], None] = lambda first: None,
    ) -> LoopOwnedLog:
        """As `OpenLog.own`."""
        owned = self._appending.owned(partition, on_fence, on_settled)
        return LoopOwnedLog(owned, self._port)

    async def claim_epoch(self, producer: str, epoch: int = 0) -> MessageID:
        """As `Queue.claim_epoch`."""
        deadline = self._context.deadline()
        work = self._appending.claim_epoch(producer, epoch, deadline)
        return await drive_in_loop(work, self._port, deadline)

    async def current_epoch(self, producer: str) -> tuple[int, MessageID] | None:
        """As `Queue.current_epoch`."""
        deadline = self._context.deadline()
        work = self._appending.current_epoch(producer, deadline)
        return await drive_in_loop(work, self._port, deadline)

    async def expired_ms(self) -> int | None:
        """As `OpenLog.expired_ms`."""
        return await in_thread(self._appending.expired_ms)

    async def _append(self, given: Given) -> Appended:
        deadline = self._context.deadline()
        return await drive_in_loop(self._appending.append(given, deadline), self._port, deadline)


def _is_small(messages: object) -> bool:
    """Whether encoding these takes no more than a moment; or iterates over what is the program's
    own, which belongs to its thread.
    """
    if isinstance(messages, Message):
        return messages.size <= HERE_BYTES
    if isinstance(messages, (list, tuple)):
        return (
            len(messages) <= HERE_MESSAGES
            and sum(each.size for each in messages if isinstance(each, Message)) <= HERE_BYTES
        )
    return isinstance(messages, Iterator)
