"""Scans a queue through hubs: reads messages of its partitions, in the order of IDs."""

from __future__ import annotations

import collections
import contextlib
import heapq
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from hqueue.consume.scan import Scan
from hqueue.errors import HQueueError, HubUnavailableError
from hqueue.message import ReceivedMessage
from hqueue.message_id import MessageID
from hqueue.position import Position
from hqueue.push.service import received_message
from hqueue.runtime.clock import Patience
from hqueue.runtime.loop import computing, is_much
from hqueue.runtime.memory import uncollected
from hqueue.runtime.steps import Work
from hqueue.runtime.stepwise import Stepwise, stepwise
from hqueue.settings.addresses import Address
from hqueue.settings.limits import MESSAGE_ID_MAX, PARTITIONS_MAX
from hqueue.settings.numbers import check_whole
from hqueue.topics.exchanges import HubMethod
from hqueue.topics.queue_requests import QueueRequests

__all__ = ["HubScan"]

MESSAGES_MAX = 1_000
"""How many messages are requested at a time."""


class HubScan(Stepwise):
    """Decides what to request from hubs, and sorts the messages. Not thread-safe.

    `take` returns the next message without a request. When it has none, `fetch` makes the missing
    requests, until `at_end`. After an interruption messages are fetched again, so none is lost.

    Args:
        requests: the requests of the queue.
        partition: the partition; all if None.
        start, stop, topics: as for `HubQueue.scan`.

    Raises:
        InvalidInputError: an argument is out of range.
    """

    def __init__(
        self,
        requests: QueueRequests,
        partition: int | None,
        start: Position | None,
        stop: Position | None,
        topics: Iterable[str],
    ) -> None:
        self._requests = requests
        self._scan = Scan(start, stop, topics)
        if partition is not None:
            partition = check_whole(partition, 0, PARTITIONS_MAX - 1, option="partition")
        self._partition = partition
        self._parts: list[_PartitionScan] | None = None
        """The partitions' scans; None until the number of partitions is known."""
        self._unsorted: list[_PartitionScan] = []
        """The scans whose next message is not in `_heads`."""
        self._heads: list[tuple[MessageID, int, ReceivedMessage, _PartitionScan]] = []

    @property
    def at_end(self) -> bool:
        """Whether all messages were taken."""
        return self._parts is not None and not self._unsorted and not self._heads

    def take(self) -> ReceivedMessage | None:
        """The next message; None if it must be fetched, or at the end."""
        if self._unsorted or not self._heads:
            return None
        _, number, message, part = self._heads[0]
        if part.messages:
            following = part.messages.popleft()
            heapq.heapreplace(self._heads, (following.id, number, following, part))
        else:
            heapq.heappop(self._heads)
            if not part.ended:
                self._unsorted.append(part)
        return message

    @stepwise
    def fetch(self) -> Work[Any, None]:
        """Fetch what `take` needs for the next message.

        Raises:
            HQueueError: as `HubScanner.next`.
        """
        if self._parts is None:
            numbers: Sequence[int]
            if self._partition is not None:
                numbers = [self._partition]
            else:
                numbers = range((yield from self._requests.partitions.steps()))
            self._parts = [_PartitionScan(self._requests, each, self._scan) for each in numbers]
            self._unsorted = [*self._parts]
        while self._unsorted:
            part = self._unsorted[-1]
            if not part.messages:
                yield from part.fetch()
            self._unsorted.pop()
            if part.messages:
                message = part.messages.popleft()
                heapq.heappush(self._heads, (message.id, part.partition, message, part))

    @stepwise
    def close(self) -> Work[Any, None]:
        """Close the scanners at the hubs."""
        self._unsorted, self._heads = [], []
        for part in self._parts or ():
            part.messages.clear()
            yield from part.close()


class _PartitionScan:
    """The scan of one partition. When its hub ends, another continues after the last message."""

    def __init__(self, requests: QueueRequests, partition: int, scan: Scan) -> None:
        self.messages: collections.deque[ReceivedMessage] = collections.deque()
        """The messages that came and were not taken."""
        self.ended = False
        self._requests = requests
        self._calls = requests.calls
        self.partition = partition
        self._scan = scan
        self._position = scan.start
        self._scanner: tuple[bytes, Address] | None = None
        self._patience = Patience(self._calls.deadline)

    def fetch(self) -> Work[Any, None]:
        """Fetch some messages, unless none follows."""
        while self._position < self._scan.stop:
            scanner, self._scanner = self._scanner, None
            try:
                if scanner is None:
                    scanner = yield from self._open()
                came = yield from self._next(*scanner)
            except HubUnavailableError as exc:
                # The scanner may have passed messages that never came: another one takes its place.
                self._patience.bear(exc)
                continue
            self._scanner = scanner
            self._patience.renew()
            if not came:
                break
            read = partial(_received, came)
            messages = (
                (yield computing(uncollected(read))) if is_much(len(came), lambda: 0) else read()
            )
            self.messages.extend(messages)
            self._position = int(messages[-1].id) + 1
            return
        self.ended = True
        yield from self.close()

    def close(self) -> Work[Any, None]:
        """Close the scanner at the hub, if there is one."""
        scanner, self._scanner = self._scanner, None
        if scanner is None:
            return
        token, at = scanner
        with contextlib.suppress(HQueueError):  # Without an answer the scanner expires.
            yield self._calls.call_at.asked(
                at,
                self._requests.name,
                HubMethod("messageScannerClose", (token,), only_reads=True),
                self._calls.deadline(),
            )

    def _open(self) -> Work[Any, tuple[bytes, Address]]:
        stop, id_struct = self._scan.stop, self._requests.id_struct
        scan = self._calls.idl.TMessageScan(
            startMessageID=id_struct(self._position),
            stopMessageID=None if stop > MESSAGE_ID_MAX else id_struct(stop),
            topics=sorted(topic.encode() for topic in self._scan.topics),
        )
        name = self._requests.name
        given = name, self.partition, scan
        method = HubMethod("messageScannerOpen", given, only_reads=True)
        opened: tuple[bytes, Address] = yield self._calls.call.asked(name, method)
        return opened

    def _next(self, scanner: bytes, at: Address) -> Work[Any, Sequence[Any]]:
        method = HubMethod("messageScannerGetList", (scanner, MESSAGES_MAX), only_reads=True)
        name, deadline = self._requests.name, self._calls.deadline()
        found: Sequence[Any] = yield self._calls.call_at.asked(at, name, method, deadline)
        return found


def _received(structs: Sequence[Any]) -> list[ReceivedMessage]:
    return [received_message(each) for each in structs]
