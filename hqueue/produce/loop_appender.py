"""Appending to a queue in an event loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from hqueue.log.context import QueueContext
from hqueue.log.store import AsyncLogPort
from hqueue.message import Message
from hqueue.message_id import MessageID, MessageIDs
from hqueue.moment import Moment
from hqueue.produce.appending import QueueAppending
from hqueue.produce.encode import taken
from hqueue.produce.owned import LoopOwnedLog
from hqueue.runtime.clock import drive_in_loop
from hqueue.runtime.loop import in_thread, is_much

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["LoopAppender"]


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
        messages = taken(messages)  # An iterator is the program's own, and belongs to its thread.
        encode = partial(self._appending.given, messages, partition, key, idempotency_key, since)
        deadline = self._context.deadline()
        work = self._appending.encode_and_append(encode, deadline, much=_are_much(messages))
        return await drive_in_loop(work, self._port, deadline)

    async def put_system(self, messages: Sequence[Message], partition: int) -> None:
        """As `Appender.put_system`."""
        deadline = self._context.deadline()
        given = self._appending.given_by_system(messages, partition)
        await drive_in_loop(self._appending.append(given, deadline), self._port, deadline)

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


def _are_much(messages: object) -> bool:
    """Whether to encode these takes more than a moment."""
    if isinstance(messages, Message):
        messages = (messages,)
    if isinstance(messages, (list, tuple)):
        given = [each for each in messages if isinstance(each, Message)]
        return is_much(len(messages), lambda: sum(each.size for each in given))
    return True
