"""A queue in an event loop."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, overload

from hqueue.aio.dead_letters import DeadLetters
from hqueue.aio.loops import collected
from hqueue.aio.producer import Producer
from hqueue.aio.scanner import Scanner
from hqueue.aio.subscriber import Subscriber
from hqueue.consume.scan import Scan
from hqueue.consume.scanners import ScannerOptions
from hqueue.errors import InvalidInputError
from hqueue.handle.queue_log import QueueLog
from hqueue.log.lag import PartitionLag
from hqueue.log.offsets import PartitionOffsets
from hqueue.message import Message
from hqueue.message_id import MessageID, MessageIDs
from hqueue.metadata import Coordination
from hqueue.position import Position
from hqueue.produce.producer_options import ProducerOptions
from hqueue.push.listener import Listener
from hqueue.push.subscriber import SubscriberOptions
from hqueue.push.subscription import Subscription
from hqueue.runtime.loop import in_thread
from hqueue.runtime.per_loop import PerLoop
from hqueue.settings.attributes import QueueDescription, check_partition
from hqueue.settings.kinds import listed
from hqueue.settings.options import Unpack, check_options

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Queue"]

DIRECT_PUTS = 4
"""While this many puts of single messages are under way in a loop, further ones are gathered."""
BUFFER_BYTES_MAX = 4 * 1024 * 1024
"""While gathered messages of this size wait, more puts wait for room: each is bounded in time."""


class Queue:
    """An open queue, for one event loop. Like `hqueue.Queue`, with the same guarantees.
    Made by `Client.queue` and `Client.create_queue`.

    Args:
        log: the queue's log.
        coordinate: opens a session with the coordination service.
    """

    def __init__(self, log: QueueLog, coordinate: Callable[[], Coordination]) -> None:
        self._log = log
        self._coordinate = coordinate
        self._appender = log.loop_appender
        self._reader = log.loop_reader
        self._puts = PerLoop(functools.partial(_Puts, log), _dropped, _dropped)

    def __repr__(self) -> str:
        return f"Queue({self.name!r}, partitions={self.partitions})"

    @property
    def name(self) -> str:
        """The queue's name."""
        return self._log.name

    @property
    def partitions(self) -> int:
        """The number of partitions. They are numbered from 0."""
        return self._log.partitions

    def choose_partition(self, partition: int | None, key: str | bytes | None) -> int | None:
        """The partition that `put` would choose. Like `hqueue.Queue.choose_partition`."""
        return self._appender.choose_partition(partition, key)

    async def describe(self) -> QueueDescription:
        """The attributes of the queue, as HBase has them now."""
        return await in_thread(self._log.describe)

    @overload
    async def put(
        self,
        messages: Message,
        *,
        partition: int | None = None,
        key: str | bytes | None = None,
        idempotency_key: str | bytes | None = None,
        since: Position | None = None,
    ) -> MessageID: ...
    @overload
    async def put(
        self,
        messages: Sequence[Message] | Iterator[Message] | pa.RecordBatch | pa.Table,
        *,
        partition: int | None = None,
        key: str | bytes | None = None,
        idempotency_key: str | bytes | None = None,
        since: Position | None = None,
    ) -> MessageIDs: ...
    async def put(
        self,
        messages: Message | Sequence[Message] | Iterator[Message] | pa.RecordBatch | pa.Table,
        *,
        partition: int | None = None,
        key: str | bytes | None = None,
        idempotency_key: str | bytes | None = None,
        since: Position | None = None,
    ) -> MessageID | MessageIDs:
        """Write one message, or several as one batch: all or none of them, in their order. Like
        `hqueue.Queue.put`. A thread encodes and compresses a large batch.

        If many tasks put single messages at the same time, one batch takes the messages of several
        tasks. Such a put waits for the appends of the messages before it, about 4 MiB at most.
        While HBase is unavailable, it may take a few times ``operation_timeout_ms``.

        A caller that is cancelled does not learn the outcome: the messages may be in the log, now
        or a moment later. With an `idempotency_key` they can be put again.

        Args:
            messages, partition, key, idempotency_key, since: as for `hqueue.Queue.put`.

        Returns:
            The ID of the one message, or the IDs in the order of the messages.

        Raises:
            BufferFullError: puts of other tasks took all room for ``operation_timeout_ms``. The
                message was not written.
            As `hqueue.Queue.put`.
        """
        puts = self._puts.here() if type(messages) is Message else None
        if puts is None or idempotency_key is not None or since is not None:
            return await self._appender.put(
                await collected(messages),
                partition=partition,
                key=key,
                idempotency_key=idempotency_key,
                since=since,
            )
        assert isinstance(messages, Message)
        if puts.direct >= DIRECT_PUTS:
            return await (await puts.gathered.send(messages, partition=partition, key=key))
        puts.direct += 1
        try:
            return await self._appender.put(messages, partition=partition, key=key)
        finally:
            puts.direct -= 1

    async def claim_epoch(self, producer: str, epoch: int = 0) -> MessageID:
        """Claim an epoch of a producer. Like `hqueue.Queue.claim_epoch`."""
        return await self._appender.claim_epoch(producer, epoch)

    async def current_epoch(self, producer: str) -> tuple[int, MessageID] | None:
        """The latest epoch of a producer. Like `hqueue.Queue.current_epoch`."""
        return await self._appender.current_epoch(producer)

    def producer(self, **options: Unpack[ProducerOptions]) -> Producer:
        """Open a `Producer` for this queue. Call it in the event loop that uses the producer.

        Args:
            options: see `ProducerOptions`.

        Raises:
            InvalidInputError: an option is unknown or out of range.
        """
        check_options("Producer", options, ProducerOptions.__annotations__)
        return Producer(self._log.batch_appender, **options)

    def subscriber(
        self,
        subscription: Subscription,
        listeners: Sequence[Listener] | Listener,
        **options: Unpack[SubscriberOptions],
    ) -> Subscriber:
        """Make a `Subscriber` of this queue, which the caller starts. Call it in the event loop
        that uses the subscriber.

        Args:
            subscription, listeners: as for `hqueue.Queue.subscriber`. Listeners may be coroutine
                functions.
            options: see `SubscriberOptions`.

        Raises:
            InvalidInputError: an option is unknown, or an argument is out of range.
        """
        check_options("Subscriber", options, SubscriberOptions.__annotations__)
        return Subscriber(
            self._log, subscription, listeners, coordinate=self._coordinate, **options
        )

    @property
    def dead_letters(self) -> DeadLetters:
        """The messages that subscribers of this queue failed to process. Like
        `hqueue.Queue.dead_letters`.
        """
        return DeadLetters(self._log)

    def scan(
        self,
        *,
        partition: int | None = None,
        partitions: Iterable[int] | None = None,
        start: Position | None = None,
        stop: Position | None = None,
        topics: Iterable[str] = (),
        **options: Unpack[ScannerOptions],
    ) -> Scanner:
        """Open a scanner over one partition, several, or all. Iterate over it, and close it. Sends
        no request.

        Args:
            partition, partitions, start, stop, topics: as for `hqueue.Queue.scan`.
            options: see `ScannerOptions`.

        Raises:
            InvalidInputError: an option is unknown, or an argument is out of range.
        """
        check_options("Scanner", options, ScannerOptions.__annotations__)
        wanted = Scan(start, stop, topics)
        if partition is not None and partitions is not None:
            raise InvalidInputError("give a partition or several, not both")
        if partitions is not None:
            chosen: Iterable[int] = listed(partitions, "partitions")
        elif partition is not None:
            chosen = [check_partition(partition, self.partitions)]
        else:
            chosen = range(self.partitions)
        return Scanner(self._reader, dict.fromkeys(chosen, wanted), **options)

    def combined_partition_scanner(
        self, scans: Mapping[int, Scan], **options: Unpack[ScannerOptions]
    ) -> Scanner:
        """Open a scanner over some partitions, each with a `Scan` of its own. Its options are those
        of `scan`.
        """
        check_options("CombinedPartitionScanner", options, ScannerOptions.__annotations__)
        return Scanner(self._reader, scans, **options)

    async def offsets(self, partitions: Sequence[int] | None = None) -> list[PartitionOffsets]:
        """The beginning and the end of each partition now. Like `hqueue.Queue.offsets`."""
        return await self._reader.offsets(partitions)

    async def appended_since(self, offsets: Sequence[PartitionOffsets]) -> list[int]:
        """The partitions that got a batch since these offsets were taken. Like
        `hqueue.Queue.appended_since`.
        """
        return await self._reader.appended_since(offsets)

    async def lag(self, positions: Mapping[int, MessageID]) -> dict[int, PartitionLag]:
        """The lag of a reader that continues at these IDs, by partition. Like
        `hqueue.Queue.lag`.
        """
        return await self._reader.lag(positions)

    async def count_before(self, partition: int, message_id: MessageID) -> int:
        """The number of messages that a partition ever had before an ID. Like
        `hqueue.Queue.count_before`.
        """
        return await self._reader.count_before(partition, message_id)

    async def id_at(self, partition: int, ordinal: int) -> MessageID:
        """An ID before which a partition ever had `ordinal` messages. Like `hqueue.Queue.id_at`."""
        return await self._reader.id_at(partition, ordinal)


class _Puts:
    """The puts of single messages that are under way in one event loop."""

    def __init__(self, log: QueueLog) -> None:
        self.direct = 0
        """How many have a batch of their own."""
        self.gathered = Producer(
            log.batch_appender,
            linger_ms=0,
            appends_max=min(log.partitions, 256),
            buffer_bytes_max=BUFFER_BYTES_MAX,
            block_ms_max=log.settings.operation_timeout_ms,
        )
        """Writes the others."""


def _dropped(puts: _Puts) -> None:
    """Nothing is left to do: each put waits for its message."""
