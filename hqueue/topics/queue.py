"""A whole queue, by way of hubs."""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Generator, Iterable, Sequence
from typing import Any

from hqueue.consume.scan import Scan
from hqueue.errors import HQueueError, HubUnavailableError, InvalidInputError
from hqueue.message import Message, ReceivedMessage
from hqueue.message_id import MessageID
from hqueue.moment import Moment
from hqueue.push.service import received_message
from hqueue.runtime.clock import Deadline
from hqueue.settings.addresses import Address
from hqueue.settings.kinds import listed
from hqueue.settings.limits import MESSAGE_ID_MAX, PARTITIONS_MAX
from hqueue.settings.numbers import check_whole
from hqueue.settings.reserved import check_topic
from hqueue.topics.api_calls import ApiCalls
from hqueue.topics.structs import check_sent, message_struct

__all__ = ["HubQueue"]

MESSAGES_MAX = 1_000
"""Asked for at a time."""


class HubQueue:
    """A queue that is put to and scanned by way of hubs. Made by `HubClient.queue`. Thread-safe.

    Hubs serve this by their Thrift API, where their setting ``api_port`` is given. It is for
    programs that can't reach HBase: a `Queue` does more, and returns IDs.

    Args:
        name: the queue.
        calls: calls the API.
        client: what it is made from, which it keeps.
    """

    def __init__(self, name: str, calls: ApiCalls, client: object = None) -> None:
        self.name = name
        self._calls = calls
        self._client = client

    @property
    def partitions(self) -> int:
        """How many partitions the queue has.

        Raises:
            QueueStateError: the queue is not there, or can't be used.
            HubUnavailableError: no hub did it in time.
        """
        found, _ = self._calls.call(
            self.name, lambda client: client.getQueueLocations(self.name), repeatable=True
        )
        return len(found)

    def put(self, messages: Message | Sequence[Message], *, partition: int | None = None) -> None:
        """Write one message, or a sequence of them as one batch: all or none, in their order. When
        this returns they are durable, and every reader will see them.

        Where nothing was done for certain it is tried again, until ``operation_timeout_ms`` is
        over.

        Args:
            messages: at most 65,536, and 8 MiB, with 262,144 headers.
            partition: the partition. If None, the one of the messages' own keys; any if they have
                none.

        Raises:
            InvalidInputError: an argument is out of range, or keys belong to several partitions.
                Nothing was done.
            MessageTooLargeError: the batch is too large. Nothing was done.
            QueueStateError: the queue is not there, or can't be used.
            HubUnavailableError: no hub did it in time. With outcome *unknown* they may be in the
                log, or come to be.
            ClosedError: the client was closed.
        """
        batch = [messages] if isinstance(messages, Message) else listed(messages, "messages")
        if not batch or not all(isinstance(each, Message) for each in batch):
            raise InvalidInputError("what is put is a Message, or a sequence of at least one")
        check_sent(batch)
        for each in batch:
            check_topic(each.topic)
        structs = [message_struct(each, each.topic.encode()) for each in batch]
        if partition is None:
            self._calls.call(
                self.name, lambda client: client.putMessages(self.name, structs), repeatable=False
            )
            return
        partition = check_whole(partition, 0, PARTITIONS_MAX - 1, option="partition")
        self._calls.call(
            self.name,
            lambda client: client.putMessagesWithPid(self.name, partition, structs),
            repeatable=False,
        )

    def scan(
        self,
        *,
        partition: int | None = None,
        start: Moment | None = None,
        stop: Moment | None = None,
        topics: Iterable[str] = (),
    ) -> Generator[ReceivedMessage, None, None]:
        """The messages of a partition, or of all of them in the order of their IDs, up to the end
        of the log. Each comes once: where a hub ends another goes on behind the last that came.

        Close the iterator if it is not exhausted (`contextlib.closing`): hubs have room for so many
        scanners.

        Args:
            partition: the partition; all if None.
            start: where to begin: a `MessageID`, an aware datetime, or milliseconds since the
                epoch. The oldest message if None.
            stop: the first that is not wanted any more. If None, the end of the log.
            topics: the topics wanted; all if empty.

        Raises:
            InvalidInputError: an argument is out of range. At once; the others when it is iterated.
            QueueStateError: the queue is not there, or can't be used.
            HubUnavailableError: no hub answered for ``operation_timeout_ms``.
            ClosedError: the client was closed.
        """
        wanted = Scan(start, stop, topics)
        if partition is not None:
            partition = check_whole(partition, 0, PARTITIONS_MAX - 1, option="partition")
            return self._scan_partition(partition, wanted)
        return self._scan_all(wanted)

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
