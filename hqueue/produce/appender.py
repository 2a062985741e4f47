"""Appending to a queue, into one partition, or into any: for threads, and for an event loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from hqueue.format.header import Bodies
from hqueue.log import Appended
from hqueue.log.context import QueueContext
from hqueue.log.skew import StoreClock
from hqueue.log.table_ports import AsyncLogPort, LogPort
from hqueue.message import Message
from hqueue.message_id import MessageID, MessageIDs
from hqueue.position import Position
from hqueue.produce.appending import Given, QueueAppending
from hqueue.produce.batch_writer import WriteInLoop
from hqueue.produce.delivery import PendingBatch
from hqueue.produce.encode import encode_given, taken
from hqueue.produce.owned_log import LoopOwnedLog, OwnedLog
from hqueue.runtime.clock import do_step, do_step_in_loop, drive, drive_in_loop
from hqueue.runtime.loop import HERE_BYTES, computed, is_much
from hqueue.runtime.steps import carry_out, carry_out_in_loop
from hqueue.watching.observers import OBSERVERS, putting, writing

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Appender", "BatchAppender", "LoopAppender"]


class Appender:
    """The part of a queue's log that writes. Thread-safe, and usable in a forked child.

    Args:
        context: the queue.
        appending: decides what to ask for.
        port: its rows.
        append_in_loop: appends a producer's batches, in event loops; None if that keeps a thread
            waiting.
    """

    def __init__(
        self,
        context: QueueContext,
        appending: QueueAppending,
        port: LogPort,
        append_in_loop: WriteInLoop[int] | None,
    ) -> None:
        self.queue = context.name
        self.partitions = context.partitions
        self.choose_partition = appending.choose_partition
        self.partition_of_keys = appending.partition_of_keys
        self._context = context
        self._appending = appending
        self._port = port
        self.append_in_loop = append_in_loop

    def put(
        self,
        messages: Message | Sequence[Message] | Iterator[Message] | pa.RecordBatch | pa.Table,
        *,
        partition: int | None = None,
        key: str | bytes | None = None,
        idempotency_key: str | bytes | None = None,
        since: Position | None = None,
    ) -> MessageID | MessageIDs:
        """Like `Queue.put`."""
        if OBSERVERS:
            with putting(
                self.queue, taken(messages), partition, changeable=idempotency_key is None
            ) as put:
                given = self._appending.given(put.messages, partition, key, idempotency_key, since)
                put.ids = ids = given.ids(self._append(given))
                return ids
        given = self._appending.given(messages, partition, key, idempotency_key, since)
        return given.ids(self._append(given))

    def put_system(self, messages: Sequence[Message], partition: int) -> None:
        """Write messages of the system's own, under topics and headers that `put` refuses.

        Raises:
            As `Queue.put`, but for names.
        """
        self._append(self._appending.given_by_system(messages, partition))

    def append(self, bodies: Bodies, partition: int | None) -> Appended:
        """Append an encoded batch, which is not compressed; to any partition if None.

        Raises:
            As `Queue.put`.
        """
        return self._append(Given(bodies, partition))

    def open_owned(
        self,
        partition: int,
        on_fence: Callable[[str, int], None],
        on_settled: Callable[[int | None], None] = lambda first: None,
    ) -> OwnedLog:
        """A partition, to be written by the owner of topics. Asks nothing.

        Args:
            partition: the partition.
            on_fence, on_settled: as `OwnedPartition` takes them.

        Raises:
            InvalidInputError: the queue has no such partition.
        """
        owned = self._appending.owned(partition, on_fence, on_settled)
        return OwnedLog(owned, self._port)

    def claim_epoch(self, producer: str, epoch: int) -> MessageID:
        """Like `Queue.claim_epoch`."""
        deadline = self._context.deadline()
        work = self._appending.claim_epoch(producer, epoch, deadline)
        return drive(work, self._port, deadline)

    def current_epoch(self, producer: str) -> tuple[int, MessageID] | None:
        """Like `Queue.current_epoch`."""
        deadline = self._context.deadline()
        return drive(self._appending.current_epoch(producer, deadline), self._port, deadline)

    def store_clock(self) -> StoreClock:
        """Tells the time by the store's clock."""
        return StoreClock(self._context.clock)

    def expired_ms(self) -> int | None:
        """Like `OpenLog.expired_ms`."""
        do = partial(do_step, self._port, self._context.clock)
        return carry_out(self._appending.expired_ms(), do)

    def _append(self, given: Given) -> Appended:
        deadline = self._context.deadline()
        return drive(self._appending.append(given, deadline), self._port, deadline)


class _InLoop:
    """What both that write in event loops have."""

    def __init__(
        self, context: QueueContext, appending: QueueAppending, port: AsyncLogPort
    ) -> None:
        self.queue = context.name
        self.partitions = context.partitions
        self.choose_partition = appending.choose_partition
        self.partition_of_keys = appending.partition_of_keys
        self._context = context
        self._appending = appending
        self._port = port


class LoopAppender(_InLoop):
    """Appends to a queue's log, for coroutines of any event loop. Made by `OpenLog.in_loop`.

    It works like `Appender`, with the same decisions, and takes turns with it. The outcome of a put
    that is cancelled is unknown; with an idempotency key it can be put again.

    Args:
        context: the queue.
        appending: decides what to ask for.
        port: its rows.
    """

    async def put(
        self,
        messages: Message | Sequence[Message] | Iterator[Message] | pa.RecordBatch | pa.Table,
        *,
        partition: int | None = None,
        key: str | bytes | None = None,
        idempotency_key: str | bytes | None = None,
        since: Position | None = None,
    ) -> MessageID | MessageIDs:
        """Like `Queue.put`. A thread encodes and compresses large batches, which would block the
        loop.
        """
        messages = taken(messages)  # An iterator is the program's own, and belongs to its thread.
        if OBSERVERS:
            changeable = idempotency_key is None
            with putting(self.queue, messages, partition, changeable=changeable) as put:
                how = partition, key, idempotency_key, since
                put.ids = ids = await self._put(put.messages, *how)
                return ids
        return await self._put(messages, partition, key, idempotency_key, since)

    async def _put(
        self,
        messages: Message | Sequence[Message] | pa.RecordBatch | pa.Table,
        *how: Any,
    ) -> MessageID | MessageIDs:
        encode = partial(self._appending.given, messages, *how)
        deadline = self._context.deadline()
        work = self._appending.encode_and_append(encode, deadline, much=_are_much(messages))
        return await drive_in_loop(work, self._port, deadline)

    async def put_system(self, messages: Sequence[Message], partition: int) -> None:
        """Like `Appender.put_system`."""
        deadline = self._context.deadline()
        given = self._appending.given_by_system(messages, partition)
        await drive_in_loop(self._appending.append(given, deadline), self._port, deadline)

    def open_owned(
        self,
        partition: int,
        on_fence: Callable[[str, int], None],
        on_settled: Callable[[int | None], None] = lambda first: None,
    ) -> LoopOwnedLog:
        """Like `OpenLog.own`."""
        owned = self._appending.owned(partition, on_fence, on_settled)
        return LoopOwnedLog(owned, self._port)

    async def current_position(self) -> MessageID:
        """The position of this moment, by this machine's clock, which was compared with HBase's: a
        `since` for puts that are made after this call.

        Raises:
            ClockSkewError, StoreUnavailableError, QueueStateError: as `Queue.put`.
        """
        deadline = self._context.deadline()
        work = self._appending.current_position(deadline)
        return await drive_in_loop(work, self._port, deadline)

    async def claim_epoch(self, producer: str, epoch: int = 0) -> MessageID:
        """Like `Queue.claim_epoch`."""
        deadline = self._context.deadline()
        work = self._appending.claim_epoch(producer, epoch, deadline)
        return await drive_in_loop(work, self._port, deadline)

    async def current_epoch(self, producer: str) -> tuple[int, MessageID] | None:
        """Like `Queue.current_epoch`."""
        deadline = self._context.deadline()
        work = self._appending.current_epoch(producer, deadline)
        return await drive_in_loop(work, self._port, deadline)

    async def expired_ms(self) -> int | None:
        """Like `OpenLog.expired_ms`."""
        do = partial(do_step_in_loop, self._port, self._context.clock)
        return await carry_out_in_loop(self._appending.expired_ms(), do)


class BatchAppender(_InLoop):
    """The part of a queue's log that writes the batches of producers, in any event loop.

    Args:
        context: the queue.
        appending: decides what to ask for.
        port: its rows.
    """

    async def append(self, batch: PendingBatch[int]) -> MessageIDs:
        """Append a producer's batch.

        Raises:
            As `Queue.put`.
        """
        if OBSERVERS:
            with writing(self.queue, batch.taken, batch.bodies, batch.target) as put:
                put.ids = ids = await self._append_batch(batch)
                return ids
        return await self._append_batch(batch)

    async def _append_batch(self, batch: PendingBatch[int]) -> MessageIDs:
        deadline = self._context.deadline()
        work = self._appending.encode_and_append(
            lambda: Given(batch.encode_once(), batch.target),
            deadline,
            much=batch.buffered > HERE_BYTES,
        )
        ids = await drive_in_loop(work, self._port, deadline)
        assert isinstance(ids, MessageIDs)
        return ids

    async def encoded(self, messages: Sequence[Message] | pa.RecordBatch | pa.Table) -> Bodies:
        """Messages as a batch. A thread encodes what would keep the loop.

        Raises:
            InvalidInputError, MessageTooLargeError: as `Queue.put`.
        """
        if _are_much(messages):
            return await computed(encode_given, messages)
        return encode_given(messages)


def _are_much(messages: object) -> bool:
    """Whether to encode these takes more than a moment."""
    if isinstance(messages, Message):
        return messages.size > HERE_BYTES
    if isinstance(messages, (list, tuple)):
        return is_much(
            len(messages), lambda: sum(each.size for each in messages if isinstance(each, Message))
        )
    return True
