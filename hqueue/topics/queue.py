"""A whole queue, put to and scanned through hubs."""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any, overload

from hqueue.consume.scan import Scan
from hqueue.consume.scan_reading import interrupted_scan
from hqueue.errors import ClosedError, HQueueError, HubUnavailableError, InvalidInputError
from hqueue.message import Message, ReceivedMessage, encoded_key
from hqueue.message_id import MessageID, MessageIDs
from hqueue.position import Position, as_message_id
from hqueue.produce.idempotency import key_bytes
from hqueue.push.service import received_message
from hqueue.runtime.clock import Deadline
from hqueue.settings.addresses import Address
from hqueue.settings.kinds import listed
from hqueue.settings.limits import MESSAGE_ID_MAX, PARTITIONS_MAX
from hqueue.settings.numbers import check_whole
from hqueue.settings.reserved import check_topic
from hqueue.topics.api_calls import ApiCalls
from hqueue.topics.structs import check_sent, message_struct

__all__ = ["HubQueue", "HubScanner"]

MESSAGES_MAX = 1_000
"""Asked for at a time."""


class HubScanner:
    """Reads a queue, or one of its partitions, through hubs. Made by `HubQueue.scan`.

    Iterate over it, or call `next` until it returns None. Use it as a context manager, or close it
    if you leave it before its end: a hub has room for a limited number of scanners. After an error
    every further call raises that error; it never ends as if it had read everything. Not
    thread-safe.

    Args:
        messages: the messages to return.
        queue: the queue, which the scanner keeps alive.
    """

    def __init__(self, messages: Generator[ReceivedMessage, None, None], queue: HubQueue) -> None:
        self._messages = messages
        self._queue = queue
        self._closed = False
        self._failure: HQueueError | None = None

    def __enter__(self) -> HubScanner:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[ReceivedMessage]:
        while (message := self.next()) is not None:
            yield message

    def next(self) -> ReceivedMessage | None:
        """Return the next message; None at the end.

        Raises:
            QueueStateError: the queue does not exist, or can't be used.
            InvalidInputError: there is no such partition.
            HubUnavailableError: no hub answered for ``operation_timeout_ms``.
            ClosedError: the scanner or the client was closed.
        """
        if self._closed:
            raise ClosedError("the scanner was closed")
        if self._failure is not None:
            raise self._failure
        try:
            return next(self._messages, None)
        except BaseException as exc:
            self._failure = exc if isinstance(exc, HQueueError) else interrupted_scan(exc)
            raise

    def close(self) -> None:
        """End the scan, and close its scanners at the hubs."""
        self._closed = True
        self._messages.close()


class HubQueue:
    """A queue to put messages into and to scan through hubs. Made by `HubClient.queue`.
    Thread-safe.

    Hubs serve it with their Thrift API, if their setting ``api_port`` is given. It is for programs
    that can't reach HBase; a `Queue` does more.

    Args:
        name: the queue.
        calls: calls the API.
        client: the client, which the queue keeps alive.
    """

    def __init__(self, name: str, calls: ApiCalls, client: object = None) -> None:
        self.name = name
        self._calls = calls
        self._client = client

    @property
    def partitions(self) -> int:
        """The number of partitions.

        Raises:
            QueueStateError: the queue does not exist, or can't be used.
            HubUnavailableError: no hub answered in time.
        """
        found, _ = self._calls.call(
            self.name, lambda client: client.getQueueLocations(self.name), repeatable=True
        )
        return len(found)

    @overload
    def put(
        self,
        messages: Message,
        *,
        partition: int | None = None,
        key: str | bytes | None = None,
        idempotency_key: str | bytes | None = None,
        since: Position | None = None,
    ) -> MessageID: ...
    @overload
    def put(
        self,
        messages: Sequence[Message] | Iterator[Message],
        *,
        partition: int | None = None,
        key: str | bytes | None = None,
        idempotency_key: str | bytes | None = None,
        since: Position | None = None,
    ) -> Sequence[MessageID]: ...
    def put(
        self,
        messages: Message | Sequence[Message] | Iterator[Message],
        *,
        partition: int | None = None,
        key: str | bytes | None = None,
        idempotency_key: str | bytes | None = None,
        since: Position | None = None,
    ) -> MessageID | Sequence[MessageID]:
        """Write one message, or several as one batch: all or none of them, in their order. When the
        call returns, the messages are durable and every reader will see them.

        A put that was certainly not applied is tried again for ``operation_timeout_ms``. With an
        idempotency key, a put whose answer was lost is tried again, too, and the batch is written
        exactly once for good, as `Queue.put` says. Without an idempotency key, such a put raises an
        error with an unknown outcome; `Queue.put` would look it up in the log.

        Args:
            messages: at most 65,536 messages, 8 MiB and 262,144 headers. Only `Queue.put` takes
                Arrow batches.
            partition: the partition. If None, the messages' own keys choose it; without keys any
                partition is taken.
            key: puts with the same key go to the same partition, as for `Queue.put`.
            idempotency_key: identifies this batch in its partition, so `partition` or `key` must be
                given. Always use the same idempotency key for the same messages.
            since: a position before the first put with this idempotency key. The log is searched
                from there on; all of it that is kept if None.

        Returns:
            The ID of the one message, or the IDs in the order of the messages.

        Raises:
            InvalidInputError: an argument is out of range, or the messages' keys belong to several
                partitions. Nothing was written.
            MessageTooLargeError: the batch is too large. Nothing was written.
            QueueStateError: the queue does not exist, or can't be used.
            HubUnavailableError: no hub did it in time. With the outcome *unknown* the messages may
                be in the log, now or later.
            HubError: the hub can't write: its clock is off, or HBase refuses.
            IdempotencyKeyReusedError: the batch with this idempotency key has other messages.
            IdempotencyKeyTooOldError: some of the log's headers since `since` were deleted already.
            ClosedError: the client was closed.
        """
        batch = [messages] if isinstance(messages, Message) else listed(messages, "messages")
        if not batch or not all(isinstance(each, Message) for each in batch):
            raise InvalidInputError("put takes a Message, or a sequence of at least one")
        check_sent(batch)
        for each in batch:
            check_topic(each.topic)
        if partition is not None:
            if key is not None:
                raise InvalidInputError("give a partition or a key, not both")
            partition = check_whole(partition, 0, PARTITIONS_MAX - 1, option="partition")
        put = self._calls.idl.TPut(
            queueName=self.name,
            messages=[message_struct(each, each.topic.encode()) for each in batch],
            partitionID=partition,
            key=None if key is None else encoded_key(key),
            idempotencyKey=None if idempotency_key is None else key_bytes(idempotency_key),
            since=None if since is None else self._id(int(as_message_id(since))),
        )
        answer, _ = self._calls.call(
            self.name, lambda client: client.put(put), repeatable=idempotency_key is not None
        )
        first = MessageID(answer.firstID.timestamp, answer.firstID.sequenceID)
        return first if isinstance(messages, Message) else MessageIDs(int(first), answer.count)

    def scan(
        self,
        *,
        partition: int | None = None,
        start: Position | None = None,
        stop: Position | None = None,
        topics: Iterable[str] = (),
    ) -> HubScanner:
        """Open a scanner over one partition, or over all in the order of IDs, up to the end of the
        log. Iterate over it, and close it. Each message comes once: when a hub ends, another
        continues after the last message.

        Args:
            partition: the partition; all if None.
            start: where to begin: a `MessageID`, an aware datetime, or milliseconds since the
                epoch. The oldest message if None.
            stop: where to end: the first position that is not read any more. If None, the end of
                the log.
            topics: the topics to read; all if empty.

        Raises:
            InvalidInputError: an argument is out of range.
        """
        wanted = Scan(start, stop, topics)
        if partition is None:
            return HubScanner(self._scan_all(wanted), self)
        partition = check_whole(partition, 0, PARTITIONS_MAX - 1, option="partition")
        return HubScanner(self._scan_partition(partition, wanted), self)

    def _scan_all(self, wanted: Scan) -> Generator[ReceivedMessage, None, None]:
        with contextlib.ExitStack() as stack:
            parts = [
                stack.enter_context(contextlib.closing(self._scan_partition(number, wanted)))
                for number in range(self.partitions)
            ]
            yield from heapq.merge(*parts, key=lambda each: (each.id, each.partition))

    def _scan_partition(
        self, partition: int, wanted: Scan
    ) -> Generator[ReceivedMessage, None, None]:
        position = wanted.start
        scanner: tuple[bytes, Address] | None = None
        failing: Deadline | None = None
        try:
            while position < wanted.stop:
                try:
                    if scanner is None:
                        scanner = self._open(partition, position, wanted)
                    came = self._next(*scanner)
                except HubUnavailableError:
                    # It may have gone on by what never came: another is opened in its place.
                    scanner = None
                    failing = failing or self._calls.deadline()
                    if failing.expired:
                        raise
                    continue
                failing = None
                if not came:
                    return
                for struct in came:
                    message = received_message(struct)
                    yield message
                    position = int(message.id) + 1
        finally:
            if scanner is not None:
                self._close(*scanner)

    def _open(self, partition: int, position: int, wanted: Scan) -> tuple[bytes, Address]:
        idl = self._calls.idl
        scan = idl.TMessageScan(
            startMessageID=self._id(position),
            stopMessageID=None if wanted.stop > MESSAGE_ID_MAX else self._id(wanted.stop),
            topics=sorted(topic.encode() for topic in wanted.topics),
        )
        opened, at = self._calls.call(
            self.name,
            lambda client: client.messageScannerOpen(self.name, partition, scan),
            repeatable=True,
        )
        return opened, at

    def _next(self, scanner: bytes, at: Address) -> Sequence[Any]:
        found: Sequence[Any] = self._calls.call_at(
            at,
            self.name,
            lambda client: client.messageScannerGetList(scanner, MESSAGES_MAX),
            self._calls.deadline(),
        )
        return found

    def _close(self, scanner: bytes, at: Address) -> None:
        with contextlib.suppress(HQueueError):  # Then it expires.
            self._calls.call_at(
                at,
                self.name,
                lambda client: client.messageScannerClose(scanner),
                self._calls.deadline(),
            )

    def _id(self, at: int) -> Any:
        found = MessageID.from_int(at)
        return self._calls.idl.subscriber.TMessageID(found.timestamp, found.sequence)
