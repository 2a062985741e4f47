"""A queue in an event loop."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import TYPE_CHECKING, overload

from hqueue.aio.dead_letters import DeadLetters
from hqueue.aio.loops import AT_ONCE, collected
from hqueue.aio.producer import Producer
from hqueue.aio.scanner import Scanner
from hqueue.aio.skipped_batches import SkippedBatches
from hqueue.aio.subscriber import Subscriber
from hqueue.aio.topic_scanner import TopicScanner
from hqueue.consume.scan import Scan
from hqueue.consume.scanners import BYTES_MAX, ScannerOptions
from hqueue.consume.topic_ranges import TopicRanges
from hqueue.consume.topic_scans import moved_since, topic_scans
from hqueue.errors import ClosedError, InvalidInputError
from hqueue.format.header import Header
from hqueue.handle.queue_log import QueueLog
from hqueue.log.expiry import PartitionExpiry
from hqueue.log.lag import PartitionLag
from hqueue.log.offsets import PartitionOffsets
from hqueue.log.topic_lag import TopicLag
from hqueue.log.verify import PartitionVerification
from hqueue.message import Message
from hqueue.message_id import MessageID, MessageIDs
from hqueue.metadata import Coordinate
from hqueue.metadata.managers import LogRange, RangesOf
from hqueue.position import Position
from hqueue.produce.producer_options import ProducerOptions
from hqueue.push.listener import Listener
from hqueue.push.subscriber import SubscriberOptions
from hqueue.push.subscription import Subscription
from hqueue.runtime.iteration import Iteration
from hqueue.runtime.per_loop import PerLoop
from hqueue.settings.attributes import QueueDescription, check_partition
from hqueue.settings.keyword_options import Unpack, check_options
from hqueue.settings.kinds import listed

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Queue"]

DIRECT_PUTS = 4
"""While this many puts of single messages are under way in a loop, further ones are gathered."""
BUFFER_BYTES_MAX = 4 * 1024 * 1024
"""While gathered messages of this size wait, more puts wait for room: each is bounded in time."""


class Queue:
    """An open queue, for event loops. Like `hqueue.Queue`, with the same guarantees.
    Made by `Client.queue` and `Client.create_queue`.

    Args:
        log: the queue's log.
        coordinate: opens a session with the coordination service.
        ranges_of: asks where the messages of a topic with an owner lie.
    """

    def __init__(
        self,
        log: QueueLog,
        coordinate: Coordinate,
        ranges_of: RangesOf,
    ) -> None:
        self._log = log
        self._coordinate = coordinate
        self._ranges_of = ranges_of
        self._appender = log.loop_appender
        self._reader = log.loop_reader
        self._puts = PerLoop(functools.partial(_Puts, log), _dropped, _dropped)

    async def __aenter__(self) -> Queue:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

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

    async def close(self) -> None:
        """Refuse further puts and scans through this object. Like `hqueue.Queue.close`. Puts
        that are under way are not affected.
        """
        self._log.close()

    def choose_partition(self, partition: int | None, key: str | bytes | None) -> int | None:
        """The partition that `put` would choose. Like `hqueue.Queue.choose_partition`."""
        return self._appender.choose_partition(partition, key)

    async def describe(self) -> QueueDescription:
        """The attributes of the queue, as HBase has them now."""
        return await self._log.describe.in_loop()

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
            BufferFullError: other tasks' puts filled the buffer for ``operation_timeout_ms``. The
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

    @property
    def skipped_batches(self) -> SkippedBatches:
        """The unreadable batches that readers skip. Like `hqueue.Queue.skipped_batches`."""
        return SkippedBatches(self._log.reader.skipping)

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
            raise InvalidInputError("give partition or partitions, not both")
        if partitions is not None:
            chosen: Iterable[int] = listed(partitions, "partitions")
        elif partition is not None:
            chosen = [check_partition(partition, self.partitions)]
        else:
            chosen = range(self.partitions)
        return Scanner(self._reader, dict.fromkeys(chosen, wanted), **options)

    async def scan_topic(
        self,
        topic: str,
        *,
        start: Position | None = None,
        stop: Position | None = None,
        bytes_max: int = BYTES_MAX,
        whole: bool = False,
    ) -> TopicScanner:
        """Open a scanner over a topic that hubs own: it reads all ranges of the topic, in the order
        of IDs. Like `hqueue.Queue.scan_topic`. Iterate over the scanner, and close it.
        """
        work = topic_scans(topic, self._ranges_of, start, stop, whole=whole)
        scans = await self._reader.do_long(work)
        ranges = TopicRanges(self._log.reader.reading, scans, whole=whole)
        return TopicScanner(self._reader, ranges, bytes_max=bytes_max)

    def queue_scanner(self, scan: Scan | None = None, **options: Unpack[ScannerOptions]) -> Scanner:
        """Open a scanner over all partitions. Its options are those of `scan`."""
        check_options("QueueScanner", options, ScannerOptions.__annotations__)
        scans = dict.fromkeys(range(self.partitions), scan or Scan())
        return Scanner(self._reader, scans, **options)

    def partition_scanner(
        self, partition: int, scan: Scan | None = None, **options: Unpack[ScannerOptions]
    ) -> Scanner:
        """Open a scanner over one partition. Its options are those of `scan`."""
        check_options("PartitionScanner", options, ScannerOptions.__annotations__)
        number = check_partition(partition, self.partitions)
        return Scanner(self._reader, {number: scan or Scan()}, **options)

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

    async def topic_lags(
        self, topic: str, positions: Mapping[str, MessageID]
    ) -> dict[str, TopicLag]:
        """The lag of readers of a topic that continue at these IDs, by name. Like
        `hqueue.Queue.topic_lags`.
        """
        return await self._reader.topic_lags(topic, self._ranges_of, positions)

    async def count_before(self, partition: int, message_id: MessageID) -> int:
        """The number of messages that a partition ever had before an ID. Like
        `hqueue.Queue.count_before`.
        """
        return await self._reader.count_before(partition, message_id)

    async def id_at(self, partition: int, ordinal: int) -> MessageID:
        """An ID before which a partition ever had `ordinal` messages. Like `hqueue.Queue.id_at`."""
        return await self._reader.id_at(partition, ordinal)

    async def expiry(
        self, partition: int, guess: MessageID, *, exact_ms: int = 60_000
    ) -> PartitionExpiry:
        """The ID up to which a partition's messages have expired. Like `hqueue.Queue.expiry`."""
        return await self._reader.expiry(partition, guess, exact_ms)

    def headers(
        self, partition: int, start: Position = 0, stop: Position | None = None
    ) -> AsyncIterator[Header]:
        """The headers of the batches that have messages in ``[start, stop)``, ascending. Like
        `hqueue.Queue.headers`. An iteration whose task is cancelled loses nothing: it can go on.
        """
        at, given, ended = start, 0, False

        async def headers() -> AsyncGenerator[Header, None]:
            nonlocal at, given, ended
            if ended:
                return
            async for header in self._reader.headers(partition, at, stop):
                given += 1
                if not given % AT_ONCE:
                    await asyncio.sleep(0)
                at = MessageID.from_int(header.end)
                yield header
            ended = True

        return Iteration(headers)

    async def topics(self, start: Position = 0, *, topics_max: int = 1_000) -> list[str]:
        """The topics of the messages that were written since a time, sorted. Like
        `hqueue.Queue.topics`.
        """
        return await self._reader.topics(start, topics_max)

    def verify(
        self,
        partitions: Sequence[int] | None = None,
        *,
        ranges: Mapping[str, Sequence[LogRange]] | None = None,
    ) -> AsyncIterator[PartitionVerification]:
        """Verify the log from its first batch to its last. Like `hqueue.Queue.verify`: iterate with
        ``async for``. A thread verifies large batches. An iteration whose task is cancelled can't
        go on: begin another one.

        Raises:
            ClosedError: the iteration was cancelled or has failed before.
            As `hqueue.Queue.verify`.
        """
        verified = self._reader.verify(
            partitions,
            now_ms=self._log.appender.store_clock().now_ms,
            ranges=ranges,
            moved=moved_since(self._ranges_of, ranges),
        )
        begun = ended = False

        async def results() -> AsyncGenerator[PartitionVerification, None]:
            nonlocal begun, ended
            if begun and not ended:
                raise ClosedError("the verification was cancelled or failed: begin another one")
            begun = True
            async for result in verified:
                yield result
            ended = True

        return Iteration(results)


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
