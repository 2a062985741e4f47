"""Kafka's library for Python that is written in C: confluent-kafka."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from .library import A_BATCH, Keyed, batches

__all__ = ["Confluent", "ConfluentLog", "create_topic", "delete_topic", "group_consumer"]

WAIT_S = 120
QUIET = {"log_level": 0}


class Confluent:
    """The library against a broker.

    Args:
        address: the broker's.
        compression: the producers' codec.
    """

    share = 1.0

    def __init__(self, address: str, compression: str = "none") -> None:
        self.name = "confluent-kafka" + (f", {compression}" if compression != "none" else "")
        self.address = address
        self._compression = compression

    def fresh(self, partitions: int = 4, *, on_disk: bool = False) -> ConfluentLog:
        """A new topic."""
        return ConfluentLog(self.address, partitions, self._compression, on_disk=on_disk)


class ConfluentLog:
    """A topic."""

    def __init__(self, address: str, partitions: int, compression: str, *, on_disk: bool) -> None:
        self._address = address
        self._topic = create_topic(address, partitions, on_disk=on_disk)
        options = {
            "bootstrap.servers": address,
            "acks": "all",
            "compression.type": compression,
            # More than its default of 100,000, or a batch would be refused while one is under way.
            "queue.buffering.max.messages": 1_000_000,
            **QUIET,
        }
        self._buffering = Producer(options)
        self._prompt = Producer({**options, "linger.ms": 0})
        # The last fetch of a read would else hold up the next read's first for half a second.
        self._consumer = _consumer(address, **{"fetch.wait.max.ms": 10})
        self._partitions = [
            TopicPartition(self._topic, partition, OFFSET_BEGINNING)
            for partition in range(partitions)
        ]
        self._turns = itertools.cycle(range(partitions))
        self._last = TopicPartition(self._topic, 0, OFFSET_BEGINNING)
        for client in (self._buffering, self._prompt, self._consumer):
            client.list_topics(self._topic, timeout=WAIT_S)  # Connected before anything is timed.

    @property
    def name(self) -> str:
        """The topic's."""
        return self._topic

    def put_batches(self, values: Sequence[bytes], a_batch: int = A_BATCH) -> int:
        for batch in batches(values, a_batch):
            taken = self._buffering.produce_batch(
                self._topic, [{"value": value} for value in batch], partition=next(self._turns)
            )
            if taken < len(batch):
                raise BufferError(f"{taken} messages were taken of {len(batch)}")
        return self._flushed(self._buffering, len(values))

    def put_keyed(self, keyed: Iterable[Keyed]) -> int:
        """Write them message by message, as its batches have no headers; batches in turn."""
        count = 0
        for batch in keyed:
            partition = next(self._turns)
            for value, key, headers in zip(*batch, strict=True):
                self._buffering.produce(self._topic, value, key, partition, headers=list(headers))
            count += len(batch.values)
        return self._flushed(self._buffering, count)

    def put_each(self, values: Sequence[bytes]) -> int:
        for value in values:
            self._buffering.produce(self._topic, value)
        return self._flushed(self._buffering, len(values))

    def put_one(self, value: bytes) -> None:
        self._prompt.produce(self._topic, value, partition=0, on_delivery=self._note)
        self._flushed(self._prompt, 1)

    def read(self, count: int) -> int:
        self._consumer.assign(self._partitions)
        return self._read(count)

    def read_keyed(self, count: int) -> int:
        """As `read`; keys and headers are looked at too."""
        self._consumer.assign(self._partitions)
        return self._read(count, keyed=True)

    def read_last(self) -> None:
        self._consumer.assign([self._last])
        self._read(1)

    @contextlib.contextmanager
    def deliver(
        self, handle: Callable[[Iterable[bytes]], object]
    ) -> Iterator[Callable[[bytes], object]]:
        ended, assigned = threading.Event(), threading.Event()
        consumer = _consumer(self._address, **{"auto.offset.reset": "earliest"})
        consumer.subscribe([self._topic], on_assign=lambda *_: assigned.set())

        def poll() -> None:
            while not ended.is_set():
                message = consumer.poll(0.1)
                if message is not None and message.error() is None:
                    handle((message.value(),))

        def publish(value: bytes) -> None:
            self._prompt.produce(self._topic, value)
            self._prompt.poll(0)

        thread = threading.Thread(target=poll, name="kafka-poll")
        thread.start()
        try:
            if not assigned.wait(WAIT_S):
                raise TimeoutError("the consumer got no partitions")
            yield publish
            self._flushed(self._prompt, 0)
        finally:
            ended.set()
            thread.join()
            consumer.close()

    def close(self) -> None:
        self._buffering.close()
        self._prompt.close()
        self._consumer.close()
        delete_topic(self._address, self._topic)

    def _note(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise KafkaException(error)
        self._last.offset = message.offset()

    def _read(self, count: int, *, keyed: bool = False) -> int:
        read, deadline = 0, time.monotonic() + WAIT_S
        while read < count:
            messages = self._consumer.consume(min(10_000, count - read), timeout=1)
            read += sum(
                len(message.value()) >= 0
                and (not keyed or (message.key() is not None and len(message.headers()) > 0))
                for message in messages
            )
            if time.monotonic() > deadline:
                raise TimeoutError(f"{read} messages were read of {count}")
        self._consumer.unassign()
        return read

    @staticmethod
    def _flushed(producer: Producer, sent: int) -> int:
        if left := producer.flush(WAIT_S):
            raise TimeoutError(f"{left} messages were not acknowledged")
        return sent


def create_topic(address: str, partitions: int, *, on_disk: bool) -> str:
    """Create a topic of a new name."""
    name = f"bench-{uuid.uuid4().hex[:12]}"
    config = {"flush.messages": "1"} if on_disk else {}
    admin = AdminClient({"bootstrap.servers": address, **QUIET})
    admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(WAIT_S)
    return name


def delete_topic(address: str, name: str) -> None:
    """Delete a topic."""
    admin = AdminClient({"bootstrap.servers": address, **QUIET})
    admin.delete_topics([name])[name].result(WAIT_S)


def group_consumer(address: str, group: str) -> Consumer:
    """A consumer of a group, which begins with the oldest message."""
    return _consumer(address, **{"group.id": group, "auto.offset.reset": "earliest"})


def _consumer(address: str, **options: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": address,
            "group.id": f"bench-{uuid.uuid4().hex[:12]}",
            # As its default waits for a second whenever its buffer of 100,000 is full.
            "queued.min.messages": 1_000_000,
            "fetch.queue.backoff.ms": 5,
            **QUIET,
            **options,
        }
    )
