"""What went into a queue and what came out of it, so that both can be compared."""

from __future__ import annotations

import hashlib
import statistics
import threading
import time
from typing import TYPE_CHECKING

from hqueue.errors import HQueueError
from hqueue.message_id import MessageID
from hqueue.runtime.threads import start
from hqueue.runtime.waiting import Condition

if TYPE_CHECKING:
    from hqueue.message import Message, ReceivedMessage
    from hqueue.queue import Queue

__all__ = ["Follower", "Reading", "Tally", "tally_of"]

AGES_MAX = 100_000


class Tally:
    """For each partition: how many messages, and a hash over all of them in their order."""

    def __init__(self, partitions: int) -> None:
        self.counts = [0] * partitions
        self.bytes = 0
        self.topics: dict[str, int] = {}
        self.first: list[MessageID | None] = [None] * partitions
        self.last: list[MessageID | None] = [None] * partitions
        self.disorder: list[str] = []
        """Messages whose ID was not above the one before."""
        self._hashes = [hashlib.blake2b(digest_size=16) for _ in range(partitions)]

    @property
    def total(self) -> int:
        """All messages."""
        return sum(self.counts)

    def add(self, partition: int, message: Message) -> None:
        """Count a message."""
        topic, value = message.topic, message.value
        self.counts[partition] += 1
        self.bytes += message.size
        self.topics[topic] = self.topics.get(topic, 0) + 1
        hashed = self._hashes[partition]
        hashed.update(b"%d %d %s" % (len(topic), len(value), topic.encode()))
        hashed.update(value)
        if message.key is not None or message.headers:
            hashed.update(repr((message.key, message.headers)).encode())

    def add_read(self, message: ReceivedMessage) -> None:
        """Count a message that was read, and check that its ID is above the one before."""
        partition, message_id = message.partition, message.id
        last = self.last[partition]
        if last is not None and message_id <= last:
            self.disorder.append(f"partition {partition}: {message_id} came after {last}")
        if self.first[partition] is None:
            self.first[partition] = message_id
        self.last[partition] = message_id
        self.add(partition, message)

    def differences(self, put: Tally, name: str) -> list[str]:
        """The differences between the messages that were read and those that were put."""
        found = [f"{name}: {text}" for text in self.disorder]
        for partition, (read, sent) in enumerate(zip(self.counts, put.counts, strict=True)):
            if read != sent:
                found.append(f"{name}: partition {partition}: {sent} were put, {read} were read")
            elif self._hashes[partition].digest() != put._hashes[partition].digest():
                found.append(f"{name}: partition {partition}: other messages, or in another order")
        return found


def tally_of(queue: Queue) -> tuple[Tally, float]:
    """Read a whole queue: what it holds, and how many seconds it took."""
    tally = Tally(queue.partitions)
    begun_s = time.monotonic()
    with queue.scan() as scanner:
        for message in scanner:
            tally.add_read(message)
    return tally, time.monotonic() - begun_s


class Reading:
    """What somebody reads while it is written, and how old it is then."""

    def __init__(self, queue: Queue) -> None:
        self.tally = Tally(queue.partitions)
        self.newest: ReceivedMessage | None = None
        self.newest_age_ms = 0
        self.error: HQueueError | None = None
        self._ages_ms: list[int] = []
        self._lock = threading.RLock()
        self._changed = Condition(self._lock)

    def take(self, message: ReceivedMessage) -> None:
        """Count a message that was read."""
        self.tally.add_read(message)
        self.newest_age_ms = max(0, time.time_ns() // 1_000_000 - message.timestamp)
        self.newest = message
        if len(self._ages_ms) < AGES_MAX:
            self._ages_ms.append(self.newest_age_ms)
        with self._lock:
            self._changed.notify_all()

    def fail(self, error: HQueueError) -> None:
        """Nothing more can be read."""
        self.error = error
        with self._lock:
            self._changed.notify_all()

    def wait(self, total: int, timeout_s: float) -> bool:
        """Wait until this many messages were read. Returns whether that was in time.

        Raises:
            HQueueError: reading failed.
        """
        with self._lock:
            self._changed.wait_for(
                lambda: self.tally.total >= total or self.error is not None, timeout_s
            )
        if self.error is not None:
            raise self.error
        return self.tally.total >= total

    @property
    def age_ms(self) -> float:
        """How old messages were when they were read: the median, in milliseconds."""
        return statistics.median(self._ages_ms) if self._ages_ms else 0.0


class Follower(Reading):
    """Reads a queue in a thread of its own, while it is written.

    Args:
        queue: the queue; it is read from its beginning on.
    """

    def __init__(self, queue: Queue) -> None:
        super().__init__(queue)
        self._scanner = queue.scan(follow=True)
        self._thread = start(self._run, name="hqueue-follower")

    def close(self) -> None:
        """End reading."""
        self._scanner.close()
        self._thread.join()

    def _run(self) -> None:
        try:
            for message in self._scanner:
                self.take(message)
        except HQueueError as exc:
            self.fail(exc)
