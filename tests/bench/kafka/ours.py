"""This library: `Queue`, `Producer`, scans, and push through a worker and a subscriber."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa

from hqueue import Message, MessageID, Messages, ReceivedMessage, Subscription

from ..cases import Bench
from ..push import await_claims, running_worker
from .library import A_BATCH, batches

__all__ = ["HQueue", "HQueueLog"]

TOPIC = "topic"
WAIT_S = 120
REGIONS_MAX = 64
"""A local server's heap is small: more partitions than these share regions."""


class HQueue:
    """The library against the local HBase."""

    name = "hqueue"
    share = 1.0

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._numbers = itertools.count()

    def fresh(self, partitions: int = 4, *, on_disk: bool = False) -> HQueueLog:
        """A new queue."""
        attributes: dict[str, object] = {"durability": "FSYNC_WAL"} if on_disk else {}
        return HQueueLog(
            self._bench,
            f"kafka-{next(self._numbers)}",
            partitions,
            partitions_per_region=max(1, partitions // REGIONS_MAX),
            **attributes,
        )


class HQueueLog:
    """A queue."""

    def __init__(self, bench: Bench, name: str, partitions: int, **attributes: object) -> None:
        self._bench = bench
        self._queue = bench.queue(name, partitions, **attributes)
        self._turns = itertools.cycle(range(partitions))
        self._last = MessageID(0)
        self._producer = self._queue.producer()

    @property
    def name(self) -> str:
        """The queue's."""
        return self._queue.name

    def put_batches(self, values: Sequence[bytes], a_batch: int = A_BATCH) -> int:
        for batch in batches(values, a_batch):
            self._producer.send_batch(Messages(TOPIC, batch), partition=next(self._turns))
        return self._flushed(len(values))

    def put_columns(self, values: Sequence[bytes]) -> int:
        """As `put_batches`, with record batches."""
        for batch in batches(values, A_BATCH):
            columns = pa.record_batch(
                [pa.repeat(TOPIC, len(batch)), pa.array(batch, pa.binary())],
                names=["topic", "value"],
            )
            self._producer.send_batch(columns, partition=next(self._turns))
        return self._flushed(len(values))

    def put_prepared(self, batches: Iterable[Messages | pa.RecordBatch]) -> int:
        """Write batches, each to the next partition."""
        count = 0
        for batch in batches:
            self._producer.send_batch(batch, partition=next(self._turns))
            count += len(batch) if isinstance(batch, Messages) else batch.num_rows
        return self._flushed(count)

    def put_each(self, values: Sequence[bytes]) -> int:
        for value in values:
            self._producer.send_value(TOPIC, value)
        return self._flushed(len(values))

    def put_one(self, value: bytes) -> None:
        self._last = self._queue.put(Message(TOPIC, value), partition=0)

    def read(self, count: int) -> int:
        with self._queue.scan() as scanner:
            return _whole(
                sum(len(message.value) >= 0 for message in itertools.islice(scanner, count)), count
            )

    def read_keyed(self, count: int) -> int:
        """As `read`; keys and headers are looked at too."""
        with self._queue.scan() as scanner:
            return _whole(
                sum(
                    len(message.value) >= 0 and message.key is not None and len(message.headers) > 0
                    for message in itertools.islice(scanner, count)
                ),
                count,
            )

    def read_columns(self, count: int) -> int:
        """As `read`, as Arrow record batches."""
        read = 0
        with self._queue.scan() as scanner:
            for batch in scanner.arrow_batches():
                read += batch.num_rows
                if read >= count:
                    break
        return _whole(read, count)

    def read_last(self) -> None:
        with self._queue.scan(partition=0, start=self._last) as scanner:
            _whole(sum(1 for _ in scanner), 1)

    @contextlib.contextmanager
    def deliver(
        self, handle: Callable[[Iterable[bytes]], object]
    ) -> Iterator[Callable[[bytes], object]]:
        def listen(messages: Sequence[ReceivedMessage]) -> None:
            handle([message.value for message in messages])

        with (
            running_worker(self._bench),
            self._queue.subscriber(Subscription("bench", start="latest"), listen),
            self._queue.producer(linger_ms=0, appends_max=1) as producer,
        ):
            await_claims(self._bench.client, self._queue)
            yield lambda value: producer.send(Message(TOPIC, value))

    def close(self) -> None:
        name = self._queue.name
        self._producer.close()
        self._queue.close()
        self._bench.client.disable_queue(name)
        self._bench.client.delete_queue(name)

    def _flushed(self, sent: int) -> int:
        if not self._producer.flush(WAIT_S):
            raise TimeoutError("not all messages were acknowledged")
        return sent


def _whole(read: int, count: int) -> int:
    if read < count:
        raise AssertionError(f"{read} messages were read of {count}")
    return read
