"""A whole queue, put to and scanned through hubs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

from hqueue.consume.scan_reading import interrupted_scan
from hqueue.errors import ClosedError, HQueueError
from hqueue.message import Message, ReceivedMessage
from hqueue.message_id import MessageID
from hqueue.position import Position
from hqueue.topics.api_calls import ApiCalls
from hqueue.topics.hub_scan import HubScan
from hqueue.topics.queue_requests import QueueRequests

__all__ = ["HubQueue", "HubScanner"]


class HubScanner:
    """Reads a queue, or one of its partitions, through hubs. Made by `HubQueue.scan`.

    Iterate over it, or call `next` until it returns None. Use it as a context manager, or close it
    if you leave it before its end: a hub has room for a limited number of scanners. After an error
    every further call raises that error; it never ends as if it had read everything. Not
    thread-safe.

    Args:
        scan: reads the messages to return.
        queue: the queue, which the scanner keeps alive.
    """

    def __init__(self, scan: HubScan, queue: HubQueue) -> None:
        self._scan = scan
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
            NotAllowedError: the caller may not read these topics, or not all topics of the queue.
            HubUnavailableError: no hub answered for ``operation_timeout_ms``.
            ClosedError: the scanner or the client was closed.
        """
        if self._closed:
            raise ClosedError("the scanner was closed")
        if self._failure is not None:
            raise self._failure
        try:
            return self._next()
        except BaseException as exc:
            self._failure = exc if isinstance(exc, HQueueError) else interrupted_scan(exc)
            raise

    def _next(self) -> ReceivedMessage | None:
        while (message := self._scan.take()) is None and not self._scan.at_end:
            self._scan.fetch()
        return message

    def close(self) -> None:
        """End the scan, and close its scanners at the hubs."""
        self._closed = True
        self._scan.close()


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
        self._requests = QueueRequests(name, calls)
        self._client = client

    @property
    def partitions(self) -> int:
        """The number of partitions.

        Raises:
            QueueStateError: the queue does not exist, or can't be used.
            HubUnavailableError: no hub answered in time.
        """
        return self._requests.partitions()

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

        The batch is written exactly once as long as this process lives: a put whose answer was
        lost is repeated for ``operation_timeout_ms``, at any hub, and the hub looks it up in the
        log. With an idempotency key it is written exactly once for good, as `Queue.put` says.

        Args:
            messages: at most 65,536 messages, 8 MiB and 262,144 headers. Only `Queue.put` takes
                Arrow batches.
            partition: the partition. If None, the messages' own keys choose it; without keys each
                put takes one at random.
            key: puts with the same key go to the same partition, as for `Queue.put`.
            idempotency_key: identifies this batch in its partition, so `partition` or `key` must be
                given. Always use the same idempotency key for the same messages.
            since: a position before the first put with this idempotency key. The log is searched
                from there on; from its oldest header on if None.

        Returns:
            The ID of the one message, or the IDs in the order of the messages.

        Raises:
            InvalidInputError: an argument is out of range, or the messages' keys belong to several
                partitions. Nothing was written.
            MessageTooLargeError: the batch is too large. Nothing was written.
            NotAllowedError: the caller may not put a message of one of these topics. Nothing was
                written.
            QueueStateError: the queue does not exist, or can't be used.
            HubUnavailableError: no hub carried out the call within ``operation_timeout_ms``. The
                error's outcome says whether the put is not applied or unknown.
            HubError: the hub can't write: its clock is off, or HBase refuses the
                request.
            IdempotencyKeyReusedError: the batch with this idempotency key has other messages.
            IdempotencyKeyTooOldError: some of the log's headers since `since` were deleted already.
            ClosedError: the client was closed.
        """
        return self._requests.put(messages, partition, key, idempotency_key, since)

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
        return HubScanner(HubScan(self._requests, partition, start, stop, topics), self)
