"""Kafka's library for Python that is written in Python: kafka-python."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from .confluent import create_topic, delete_topic
from .library import A_BATCH

__all__ = ["KafkaPython", "KafkaPythonLog"]

WAIT_S = 120


class KafkaPython:
    """The library against a broker."""

    name = "kafka-python"
    share = 0.1

    def __init__(self, address: str) -> None:
        self._address = address

    def fresh(self, partitions: int = 4, *, on_disk: bool = False) -> KafkaPythonLog:
        """A new topic."""
        return KafkaPythonLog(self._address, partitions, on_disk=on_disk)


class KafkaPythonLog:
    """A topic."""

    def __init__(self, address: str, partitions: int, *, on_disk: bool) -> None:
        self._address = address
        self._topic = create_topic(address, partitions, on_disk=on_disk)
        # Both values are its own documentation's for throughput; its defaults are slower.
        self._buffering = KafkaProducer(
            bootstrap_servers=address, acks="all", linger_ms=5, batch_size=256 * 1024
        )
        self._prompt = KafkaProducer(bootstrap_servers=address, acks="all", linger_ms=0)
        # The last fetch of a read would else hold up the next read's first for half a second.
        self._consumer = KafkaConsumer(
            bootstrap_servers=address, max_poll_records=10_000, fetch_max_wait_ms=10
        )
        self._partitions = [TopicPartition(self._topic, number) for number in range(partitions)]
        self._last = 0
        self._buffering.partitions_for(self._topic)  # Connected before anything is timed.
        self._prompt.partitions_for(self._topic)

    def put_batches(self, values: Sequence[bytes], a_batch: int = A_BATCH) -> int:
        return self.put_each(values)

    def put_each(self, values: Sequence[bytes]) -> int:
        for value in values:
            self._buffering.send(self._topic, value)
        self._buffering.flush(WAIT_S)
        return len(values)

    def put_one(self, value: bytes) -> None:
        self._last = self._prompt.send(self._topic, value, partition=0).get(WAIT_S).offset

    def read(self, count: int) -> int:
        self._consumer.assign(self._partitions)
        self._consumer.seek_to_beginning()
        return self._read(count)

    def read_last(self) -> None:
        self._consumer.assign(self._partitions[:1])
        self._consumer.seek(self._partitions[0], self._last)
        self._read(1)

    @contextlib.contextmanager
    def deliver(
        self, handle: Callable[[Iterable[bytes]], object]
    ) -> Iterator[Callable[[bytes], object]]:
        ended, assigned = threading.Event(), threading.Event()
        consumer = KafkaConsumer(
            self._topic,
            bootstrap_servers=self._address,
            group_id=f"bench-{uuid.uuid4().hex[:12]}",
            auto_offset_reset="earliest",
        )

        def poll() -> None:
            while not ended.is_set():
                for records in consumer.poll(100).values():
                    handle([record.value for record in records])
                if consumer.assignment():
                    assigned.set()

        thread = threading.Thread(target=poll, name="kafka-poll")
        thread.start()
        try:
            if not assigned.wait(WAIT_S):
                raise TimeoutError("the consumer got no partitions")
            yield lambda value: self._prompt.send(self._topic, value)
            self._prompt.flush(WAIT_S)
        finally:
            ended.set()
            thread.join()
            consumer.close()

    def close(self) -> None:
        for client in (self._buffering, self._prompt, self._consumer):
            client.close()
        delete_topic(self._address, self._topic)

    def _read(self, count: int) -> int:
        read, deadline = 0, time.monotonic() + WAIT_S
        while read < count:
            for records in self._consumer.poll(1_000, max_records=10_000).values():
                read += sum(len(record.value) >= 0 for record in records)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{read} messages were read of {count}")
        return read
