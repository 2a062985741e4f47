"""Libraries in an event loop: `hqueue.aio`, aiokafka and confluent-kafka's asyncio classes.

Each has the same work to do, and one loop does the work of all of them, in turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import statistics
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

import pyarrow as pa
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as KafkaPartition
from confluent_kafka import OFFSET_BEGINNING, TopicPartition
from confluent_kafka.aio import AIOConsumer, AIOProducer

import hqueue.aio
from hqueue import Message, MessageID, Messages
from hqueue.settings.connection import Settings

from .confluent import QUIET, create_topic, delete_topic
from .library import A_BATCH, batches

__all__ = ["Aiokafka", "ConfluentInLoop", "HQueueInLoop", "Loop", "LoopLog"]

PARTITIONS = 4
TOPIC = "topic"

Result = TypeVar("Result")


class LoopLog(Protocol):
    """A queue or a topic, fresh, with the clients that write and read it."""

    async def put_batches(self, values: Sequence[bytes]) -> int:
        """Write them, as batches where the library has any; all are acknowledged on return."""

    async def put_each(self, values: Sequence[bytes]) -> int:
        """Write them one by one through a buffer; all are acknowledged on return."""

    async def put_one(self, value: bytes) -> None:
        """Write one message and wait for its acknowledgement."""

    async def put_at_once(self, values: Sequence[bytes]) -> int:
        """Write each in a task of its own, which waits for the acknowledgement."""

    async def read(self, count: int) -> int:
        """Read so many messages from the oldest on, each as the library's own object."""

    async def close(self) -> None:
        """Close the clients, and delete the queue or topic."""


class Loop:
    """An event loop that blocking code runs coroutines in."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run it to its end."""
        return self._loop.run_until_complete(work)

    def run_median(
        self, put: Callable[[bytes], Awaitable[object]], values: Sequence[bytes]
    ) -> float:
        """Put these one after the other; the median of what each took, in ms."""

        async def each() -> list[float]:
            took_s = []
            for value in values:
                start = time.perf_counter()
                await put(value)
                took_s.append(time.perf_counter() - start)
            return took_s

        return statistics.median(self.run(each())) * 1e3

    def close(self) -> None:
        """Close the loop, in which nothing may run any more."""
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


class HQueueInLoop:
    """`hqueue.aio` on a queue.

    Args:
        settings: of the cluster.
        name: a queue that is made for this.
    """

    def __init__(self, settings: Settings, name: str) -> None:
        self._client = hqueue.aio.connect(settings)
        self._name = name
        self._turns = itertools.cycle(range(PARTITIONS))
        self._last = MessageID(0)

    async def open(self) -> HQueueInLoop:
        """Make the queue."""
        self._queue = await self._client.create_queue(self._name, partitions=PARTITIONS)
        self._producer = self._queue.producer()
        return self

    async def put_batches(self, values: Sequence[bytes]) -> int:
        for batch in batches(values, A_BATCH):
            await self._producer.send_batch(Messages(TOPIC, batch), partition=next(self._turns))
        await self._producer.flush()
        return len(values)

    async def put_columns(self, values: Sequence[bytes]) -> int:
        """As `put_batches`, with record batches."""
        for batch in batches(values, A_BATCH):
            columns = pa.record_batch(
                [pa.repeat(TOPIC, len(batch)), pa.array(batch, pa.binary())],
                names=["topic", "value"],
            )
            await self._producer.send_batch(columns, partition=next(self._turns))
        await self._producer.flush()
        return len(values)

    async def put_each(self, values: Sequence[bytes]) -> int:
        for value in values:
            await self._producer.send(Message(TOPIC, value))
        await self._producer.flush()
        return len(values)

    async def put_one(self, value: bytes) -> None:
        self._last = await self._queue.put(Message(TOPIC, value), partition=0)

    async def put_at_once(self, values: Sequence[bytes]) -> int:
        await _at_once(lambda value: self._queue.put(Message(TOPIC, value)), values)
        return len(values)

    async def read(self, count: int) -> int:
        read = 0
        async with self._queue.scan() as scanner:
            async for message in scanner:
                read += len(message.value) >= 0
                if read == count:
                    break
        return read

    async def read_columns(self, count: int) -> int:
        """As `read`, as Arrow record batches."""
        read = 0
        async with self._queue.scan() as scanner:
            async for batch in scanner.arrow_batches():
                read += batch.num_rows
                if read >= count:
                    break
        return read

    async def close(self) -> None:
        await self._producer.close()
        await self._client.disable_queue(self._name)
        await self._client.delete_queue(self._name)
        await self._client.close()


class Aiokafka:
    """aiokafka on a topic.

    Args:
        address: the broker's.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._topic = create_topic(address, PARTITIONS, on_disk=False)
        self._turns = itertools.cycle(range(PARTITIONS))

    async def open(self) -> Aiokafka:
        """Connect."""
        options = {"bootstrap_servers": self._address, "acks": "all"}
        self._buffering = AIOKafkaProducer(linger_ms=5, **options)
        self._prompt = AIOKafkaProducer(linger_ms=0, **options)
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=self._address,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=10,
        )
        for client in (self._buffering, self._prompt, self._consumer):
            await client.start()
        self._consumer.assign([KafkaPartition(self._topic, each) for each in range(PARTITIONS)])
        return self

    async def put_batches(self, values: Sequence[bytes]) -> int:
        sent = []
        for batch in batches(values, A_BATCH):
            partition = next(self._turns)
            building = self._buffering.create_batch()
            for value in batch:
                if building.append(key=None, value=value, timestamp=None) is None:
                    given = self._buffering.send_batch(building, self._topic, partition=partition)
                    sent.append(await given)
                    building = self._buffering.create_batch()
                    building.append(key=None, value=value, timestamp=None)
            given = self._buffering.send_batch(building, self._topic, partition=partition)
            sent.append(await given)
        await asyncio.gather(*sent)
        return len(values)

    async def put_each(self, values: Sequence[bytes]) -> int:
        sent = [await self._buffering.send(self._topic, value) for value in values]
        await self._buffering.flush()
        await sent[-1]
        return len(values)

    async def put_one(self, value: bytes) -> None:
        await self._prompt.send_and_wait(self._topic, value, partition=0)

    async def put_at_once(self, values: Sequence[bytes]) -> int:
        await _at_once(lambda value: self._prompt.send_and_wait(self._topic, value), values)
        return len(values)

    async def read(self, count: int) -> int:
        await self._consumer.seek_to_beginning()
        read = 0
        while read < count:
            found = await self._consumer.getmany(timeout_ms=1_000, max_records=A_BATCH)
            read += sum(len(each.value) >= 0 for several in found.values() for each in several)
        return read

    async def close(self) -> None:
        for client in (self._buffering, self._prompt, self._consumer):
            await client.stop()
        delete_topic(self._address, self._topic)


class ConfluentInLoop:
    """confluent-kafka's asyncio classes on a topic: threads below them call its C library.

    Args:
        address: the broker's.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._topic = create_topic(address, PARTITIONS, on_disk=False)
        self._beginnings = [
            TopicPartition(self._topic, each, OFFSET_BEGINNING) for each in range(PARTITIONS)
        ]

    async def open(self) -> ConfluentInLoop:
        """Connect."""
        options = {
            "bootstrap.servers": self._address,
            "acks": "all",
            "queue.buffering.max.messages": 1_000_000,
            **QUIET,
        }
        self._buffering = AIOProducer(options, buffer_timeout=0.005)
        self._prompt = AIOProducer({**options, "linger.ms": 0}, batch_size=1)
        self._consumer = AIOConsumer(
            {
                "bootstrap.servers": self._address,
                "group.id": str(uuid.uuid4()),
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 10,
                **QUIET,
            }
        )
        for client in (self._buffering, self._prompt, self._consumer):
            await client.list_topics(self._topic)
        return self

    async def put_batches(self, values: Sequence[bytes]) -> int:
        return await self.put_each(values)  # It has no batches of a caller.

    async def put_each(self, values: Sequence[bytes]) -> int:
        sent = [await self._buffering.produce(self._topic, value) for value in values]
        await self._buffering.flush()
        await asyncio.gather(*sent)
        return len(values)

    async def put_one(self, value: bytes) -> None:
        sent = await self._prompt.produce(self._topic, value, partition=0)
        await self._prompt.flush()  # Else it looks for the acknowledgement once a second.
        await sent

    async def put_at_once(self, values: Sequence[bytes]) -> int:
        async def put(value: bytes) -> None:
            await (await self._buffering.produce(self._topic, value))

        await _at_once(put, values)
        return len(values)

    async def read(self, count: int) -> int:
        await self._consumer.assign(self._beginnings)
        read = 0
        while read < count:
            for message in await self._consumer.consume(min(A_BATCH, count - read), 1.0):
                if message.error() is None:
                    read += len(message.value()) >= 0
        return read

    async def close(self) -> None:
        await self._buffering.close()
        await self._prompt.close()
        with contextlib.suppress(RuntimeError):  # One without a group raises when it is closed.
            await self._consumer.close()
        delete_topic(self._address, self._topic)


async def _at_once(put: Callable[[bytes], Awaitable[object]], values: Sequence[bytes]) -> None:
    await asyncio.gather(*map(put, values))
