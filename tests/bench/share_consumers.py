"""``python -m tests.bench.share_consumers``: a consumer of a work queue, in a process of its own.

Arguments: a file with a number of eight bytes for each such process, and which of them is its own:
there it counts the messages that it got. It takes commands as lines of JSON, and answers each with
one. ``{"do": "open", "system": "hqueue", ...}`` makes a consumer of hqueue or of another system,
``{"do": "begin"}`` lets it take messages, ``{"do": "end"}`` lets it stop: the answer says when all
that it took was acknowledged, by `time.monotonic`, which all processes of a machine share, and how
long messages took that have the time of their sending as a value.
"""

from __future__ import annotations

import functools
import json
import mmap
import os
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import hqueue
from hqueue.typing import AcquiredMessage

__all__ = ["AT_ONCE", "WorkQueue", "open_queue"]

AT_ONCE = 500
"""How many messages a consumer has at a time: what it prefetches, or asks for."""
LOOK_S = 0.02
"""How often a consumer that gets nothing looks whether it shall stop."""
JOIN_S = 3.0
"""How long a consumer of Kafka may take to join its group: some heartbeats."""
COMMIT_S = 60.0


class WorkQueue(Protocol):
    """A consumer of a work queue."""

    def batches(self, ends: threading.Event) -> Iterator[Sequence[bytes]]:
        """What comes, until it ends. Asking for more acknowledges what was given before."""

    def end(self) -> None:
        """Acknowledge the last ones too; return when the server has made all that durable."""

    def close(self) -> None:
        """Free everything."""


class Shared:
    """A `hqueue.ShareConsumer`.

    Args:
        address: ZooKeeper's.
        queue: the queue.
        group: the share group.
        how: ``polled`` or ``iterated``.
        start: where the group begins, if it is new.
    """

    def __init__(self, address: str, queue: str, group: str, how: str, start: str) -> None:
        client = _client(address)
        self._consumer = hqueue.ShareConsumer(queue, group=group, client=client, start=start)
        if start == "latest":
            self._consumer.poll()  # So that it is clear from now on where it begins.
        self._last: Sequence[AcquiredMessage] = ()
        self._iterated = how == "iterated"

    def batches(self, ends: threading.Event) -> Iterator[Sequence[bytes]]:
        while not ends.is_set():
            if self._iterated:
                for message in self._consumer.messages(idle_ms_max=LOOK_S * 1e3, prefetch=AT_ONCE):
                    self._last = (message,)
                    yield (message.value,)
                    if ends.is_set():
                        break
            else:
                self._last = self._consumer.poll(LOOK_S * 1e3, AT_ONCE)
                yield [message.value for message in self._last]

    def end(self) -> None:
        self._consumer.acknowledge(*self._last)
        self._consumer.commit()

    def close(self) -> None:
        self._consumer.close()


@functools.cache
def _client(address: str) -> hqueue.Client:
    return hqueue.connect(hbase="native", zookeeper=address)


class Kafka:
    """A share consumer of Kafka, by confluent-kafka. When it is made, it joins its group: the topic
    must be empty until then.

    Args:
        address: the broker's.
        queue: the topic.
        group: the share group.
    """

    def __init__(self, address: str, queue: str, group: str) -> None:
        from confluent_kafka import ShareConsumer  # noqa: PLC0415

        self._consumer = ShareConsumer({"bootstrap.servers": address, "group.id": group})
        self._consumer.subscribe([queue])
        if len(self._consumer.poll(JOIN_S)):
            raise ValueError(f"topic {queue} has messages already")

    def batches(self, ends: threading.Event) -> Iterator[Sequence[bytes]]:
        while not ends.is_set():
            messages = self._consumer.poll(LOOK_S)
            if error := next(filter(None, (each.error() for each in messages)), None):
                raise RuntimeError(f"Kafka: {error}")
            yield [message.value() for message in messages]

    def end(self) -> None:
        failed = [each for each in self._consumer.commit_sync(COMMIT_S).values() if each]
        if failed:
            raise RuntimeError(f"Kafka did not take all acknowledgements: {failed}")

    def close(self) -> None:
        self._consumer.close()


class RabbitMQ:
    """A consumer of a quorum queue, by pika.

    Args:
        address: the broker's URL.
        queue: the queue.
        how: ``each``: every message is acknowledged individually; ``batches``: many are together.
    """

    def __init__(self, address: str, queue: str, how: str) -> None:
        import pika  # noqa: PLC0415 - Only what is compared with needs it.

        self._connection = pika.BlockingConnection(pika.URLParameters(address))
        self._channel = self._connection.channel()
        self._channel.basic_qos(prefetch_count=AT_ONCE)
        self._queue = queue
        self._together = 1 if how == "each" else AT_ONCE // 2
        self._unanswered: list[int] = []

    def batches(self, ends: threading.Event) -> Iterator[Sequence[bytes]]:
        for method, _, body in self._channel.consume(self._queue, inactivity_timeout=LOOK_S):
            if method is not None:
                self._unanswered.append(method.delivery_tag)
                yield (body,)
            if method is None or len(self._unanswered) >= self._together:
                self._acknowledge()
            if ends.is_set():
                return

    def _acknowledge(self) -> None:
        if self._unanswered:
            self._channel.basic_ack(self._unanswered[-1], multiple=self._together > 1)
            self._unanswered = []

    def end(self) -> None:
        self._acknowledge()
        self._channel.queue_declare(self._queue, passive=True)  # Its answer comes after them.

    def close(self) -> None:
        self._connection.close()


class Postgres:
    """A consumer of a table of PostgreSQL: it deletes rows that no other has locked.

    Args:
        address: the database's.
        queue: the table.
    """

    def __init__(self, address: str, queue: str) -> None:
        import psycopg  # noqa: PLC0415 - Only what is compared with needs it.

        self._connection = psycopg.connect(address)
        self._take = (
            f"DELETE FROM {queue} WHERE id = ANY(ARRAY(SELECT id FROM {queue} ORDER BY id"
            f" LIMIT {AT_ONCE} FOR UPDATE SKIP LOCKED)) RETURNING value"
        )

    def batches(self, ends: threading.Event) -> Iterator[Sequence[bytes]]:
        while not ends.is_set():
            with self._connection.transaction():
                rows = self._connection.execute(self._take, binary=True).fetchall()
                yield [value for (value,) in rows]
            if not rows:
                ends.wait(LOOK_S)

    def end(self) -> None:
        """Each batch was committed before the next one."""

    def close(self) -> None:
        self._connection.close()


_SYSTEMS = {"hqueue": Shared, "kafka": Kafka, "rabbitmq": RabbitMQ, "postgres": Postgres}


def open_queue(system: str, **given: Any) -> WorkQueue:
    """A consumer of a system."""
    return _SYSTEMS[system](**given)


class _Taking:
    """A thread that takes messages from a consumer, and counts them.

    Args:
        queue: the consumer.
        counts: where it counts.
        place: the place of its number there.
    """

    def __init__(self, queue: WorkQueue, counts: memoryview, place: int) -> None:
        self._queue = queue
        self._counts = counts
        self._place = place
        self._ends = threading.Event()
        self._took_ms: list[float] = []
        self._ended_s = 0.0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def begin(self) -> None:
        self._counts[self._place] = 0
        self._thread.start()

    def end(self) -> dict[str, Any]:
        self._ends.set()
        self._thread.join()
        self._queue.close()
        return {"ended_s": self._ended_s, "took_ms": self._took_ms}

    def _run(self) -> None:
        try:
            self._take()
        except BaseException:
            traceback.print_exc()
            os._exit(1)  # Who waits for it sees that.

    def _take(self) -> None:
        for values in self._queue.batches(self._ends):
            if values and len(values[0]) < 100:  # It is the time when it was sent.
                now_ns = time.perf_counter_ns()
                self._took_ms += [(now_ns - int(value)) / 1e6 for value in values]
            self._counts[self._place] += len(values)
        self._queue.end()
        self._ended_s = time.monotonic()


def main(path: str, place: str) -> None:
    """Do what the lines of standard input say."""
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        counts = memoryview(mapped).cast("q")
        taking: _Taking | None = None
        for line in sys.stdin:
            command = json.loads(line)
            do = command.pop("do")
            answer: dict[str, Any] = {}
            if do == "open":
                taking = _Taking(open_queue(**command), counts, int(place))
            elif do == "begin":
                assert taking is not None
                taking.begin()
            else:
                assert taking is not None
                answer = taking.end()
            print(json.dumps(answer), flush=True)
        counts.release()


if __name__ == "__main__":
    main(*sys.argv[1:])
