"""Appending to a queue: into one partition, or into any."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from hqueue.errors import InvalidInputError
from hqueue.format.compression import CODECS, compressed
from hqueue.format.header import FORMAT_1, Bodies
from hqueue.log import Appended, PartitionWriter
from hqueue.log.context import QueueContext
from hqueue.log.ports import WritePort
from hqueue.log.skew import SkewGuard, StoreClock
from hqueue.message import Message, encoded_key, partition_of_key
from hqueue.message_id import MessageID, MessageIDs
from hqueue.moment import Moment
from hqueue.produce.encode import encode_batch, encode_given, keys_of, taken
from hqueue.produce.header_reaper import HeaderReaper
from hqueue.produce.idempotency import ProducerEpochs, Search, search_for
from hqueue.produce.owned import OwnedLog, OwnedPartition
from hqueue.produce.writer_pool import WriterPool
from hqueue.runtime.clock import drive
from hqueue.runtime.fork import register

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Appender"]


class Appender:
    """The part of a queue's log that writes. Thread-safe, and usable in a forked child.

    Args:
        context: the queue.
        port: its rows.
        on_append: called after each append with the partition, what was appended, and the bodies
            as they lie in the store. Must be quick, and must not raise.
    """

    def __init__(
        self,
        context: QueueContext,
        port: WritePort,
        on_append: Callable[[int, Appended, Bodies], None],
    ) -> None:
        self.partitions = context.partitions
        self._context = context
        self._port = port
        self._on_append = on_append
        self._codec = CODECS[context.settings.codec]
        self._skew_ms_max = context.settings.clock_skew_ms_max
        self._skew = SkewGuard(self._skew_ms_max, context.clock)
        self._epochs = ProducerEpochs(port, context.clock)
        self.after_fork_in_child()
        register(self)

    def after_fork_in_child(self) -> None:
        self._writers = WriterPool(self.partitions, self._open_writer)
        self._reaper = HeaderReaper(self._port, self.expired_ms, self._context.clock)

    def put(
        self,
        messages: Message | Sequence[Message] | Iterator[Message] | pa.RecordBatch | pa.Table,
        *,
        partition: int | None = None,
        key: str | bytes | None = None,
        idempotency_key: str | bytes | None = None,
        since: Moment | None = None,
    ) -> MessageID | MessageIDs:
        """As `Queue.put`."""
        partition = self.choose_partition(partition, key)
        if type(messages) is not Message:
            messages = taken(messages)
        bodies = encode_given(messages)
        if isinstance(messages, Message):
            if partition is None and messages.key is not None:
                partition = partition_of_key(messages.key, self.partitions)
        elif partition is None and bodies.version != FORMAT_1:
            partition = self.partition_of_keys(messages)
        search = None
        if idempotency_key is not None or since is not None:
            search = search_for(
                idempotency_key, since, self._skew_ms_max, anywhere=partition is None
            )
        appended = self.append(bodies, partition, search)
        if isinstance(messages, Message):
            return int.__new__(MessageID, appended.base)
        return MessageIDs(appended.base, appended.count)

    def put_system(self, messages: Sequence[Message], partition: int) -> None:
        """Write messages of the system's own, under topics and headers that `put` refuses.

        Raises:
            As `Queue.put`, but for names.
        """
        partition = self._context.check_partition(partition)
        self.append(encode_batch(messages), partition)

    def choose_partition(self, partition: int | None, key: str | bytes | None) -> int | None:
        """As `Queue.choose_partition`."""
        if key is not None:
            if partition is not None:
                raise InvalidInputError("give a partition or a key, not both")
            return partition_of_key(encoded_key(key), self.partitions)
        return None if partition is None else self._context.check_partition(partition)

    def partition_of_keys(
        self, messages: Sequence[Message] | pa.RecordBatch | pa.Table
    ) -> int | None:
        """The partition that the keys of a batch belong to; None if it has none.

        Raises:
            InvalidInputError: they belong to several.
        """
        partitions = {partition_of_key(key, self.partitions) for key in keys_of(messages)}
        if len(partitions) > 1:
            raise InvalidInputError(
                "the keys of these messages belong to several partitions, and a batch lies in one: "
                "choose one, or send them one by one with a Producer",
                partitions=sorted(partitions)[:10],
            )
        return partitions.pop() if partitions else None

    def append(
        self, bodies: Bodies, partition: int | None, search: Search | None = None
    ) -> Appended:
        """Append an encoded batch.

        Without a partition it goes to one that no other thread of this process is writing to,
        and to another as soon as some other writer is met there. So writers spread over the
        partitions by themselves.

        Args:
            bodies: the batch, not compressed.
            partition: the partition; any if None.
            search: what to look for in the log before, if it may be there already.

        Raises:
            As `Queue.put`.
        """
        self._context.check_open()
        bodies = compressed(bodies, self._codec)
        deadline = self._context.deadline()

        def append(writer: PartitionWriter) -> tuple[PartitionWriter, Appended]:
            if not self._skew.is_good:
                drive(self._skew.check(deadline), self._port, deadline)
            if search is None:
                work = writer.append(bodies, deadline)
            else:
                work = writer.append_once(bodies, deadline, search.nonce, search.since)
            appended = drive(work, self._port, deadline)
            self._on_append(writer.partition, appended, bodies)
            return writer, appended

        writer, appended = self._writers.use(partition, deadline, append)
        self._reaper.collect_if_due(writer)
        if partition is None and appended.contended:
            self._writers.move_on()
        return appended

    def open_owned(
        self,
        partition: int,
        on_fence: Callable[[str, int], None],
        on_settled: Callable[[int | None], None] = lambda first: None,
    ) -> OwnedLog:
        """A partition, to be written by the owner of topics. Asks nothing.

        Args:
            partition: the partition.
            on_fence, on_settled: as `OwnedLog` takes them.

        Raises:
            InvalidInputError: the queue has no such partition.
        """
        return OwnedLog(self.owned_partition(partition, on_fence, on_settled), self._port)

    def owned_partition(
        self,
        partition: int,
        on_fence: Callable[[str, int], None],
        on_settled: Callable[[int | None], None],
    ) -> OwnedPartition:
        """What decides for an `OwnedLog`; the arguments are those of `open_owned`."""
        return OwnedPartition(
            self._context.check_partition(partition),
            self._context,
            skew=self._skew,
            reaper=self._reaper,
            on_append=self._on_append,
            on_fence=on_fence,
            on_settled=on_settled,
        )

    def claim_epoch(self, producer: str, epoch: int) -> MessageID:
        """As `Queue.claim_epoch`."""
        self._context.check_open()
        deadline = self._context.deadline()
        drive(self._skew.check(deadline), self._port, deadline)
        return self._epochs.claim(producer, epoch, deadline)

    def store_clock(self) -> StoreClock:
        """Tells the time by the store's clock."""
        return StoreClock(self._context.clock)

    def current_epoch(self, producer: str) -> tuple[int, MessageID] | None:
        """As `Queue.current_epoch`."""
        self._context.check_open()
        return self._epochs.current(producer, self._context.deadline())

    def expired_ms(self) -> int | None:
        """Up to when messages were written that have expired, by a clock that was found good; None
        if they are kept for ever.

        Raises:
            ClockSkewError, StoreUnavailableError, QueueStateError: that is not known now.
        """
        ttl_seconds = self._context.describe().ttl_seconds
        if ttl_seconds is None:
            return None
        deadline = self._context.deadline()
        return drive(self._skew.now_ms(deadline), self._port, deadline) - ttl_seconds * 1_000

    def _open_writer(self, partition: int) -> PartitionWriter:
        return PartitionWriter(partition, self._context.clock, self._skew_ms_max)
