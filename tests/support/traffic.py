"""Traffic through a queue for as long as a block of code takes: producers and readers of both
faces. Each reader must get each message once, and each call keep to its bound.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator

import hqueue
import hqueue.aio
from hqueue import Consumer, Message
from tests.support.waiting import wait_for

__all__ = ["Traffic"]

EVERY_S = 0.03
SLACK_S = 5.0
"""How much longer than its bound a call may take on a busy machine."""


class Traffic:
    """Both faces put into a queue. A consumer of a group reads it in a thread, and a scan in an
    event loop. When the block ends, both must have each message once.

    Args:
        connect: opens a client; each side has one of its own.
        name: the queue's name; it is new.
        to_read: opens the readers' clients; as the producers' if None.
    """

    def __init__(
        self,
        connect: Callable[[], hqueue.Client],
        name: str,
        to_read: Callable[[], hqueue.Client] | None = None,
    ) -> None:
        self._connect = connect
        self._to_read = to_read or connect
        self._name = name
        self._over = threading.Event()
        self._turn = threading.Lock()
        self.errors: list[BaseException] = []
        self.put: list[bytes] = []
        self.read: dict[str, list[bytes]] = {"consumer": [], "scan": []}
        self.longest_s = 0.0
        """What the longest put took."""
        self._producers = [
            threading.Thread(target=self._watched, args=(run,), daemon=True)
            for run in (self._put, lambda: asyncio.run(self._put_in_loop()))
        ]
        self._readers = [
            threading.Thread(target=self._watched, args=(run,), daemon=True)
            for run in (self._consume, lambda: asyncio.run(self._scan_in_loop()))
        ]
        self._last = uuid.uuid4().bytes

    def __enter__(self) -> Traffic:
        for thread in (*self._readers, *self._producers):
            thread.start()
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        self._over.set()
        for thread in self._producers:
            thread.join()
        with contextlib.closing(self._connect()) as client, client.queue(self._name) as queue:
            for partition in range(queue.partitions):
                queue.put(Message("last", self._last), partition=partition)
        for thread in self._readers:
            thread.join(60)
        if kind is None:
            assert not self.errors, self.errors
            wanted = Counter(self.put)
            assert {*wanted.values()} == {1}
            for reader, values in self.read.items():
                assert Counter(values) == wanted, f"{reader} has each message once"
            assert not any(thread.is_alive() for thread in self._readers)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """No put is under way meanwhile."""
        with self._turn:
            yield

    def await_passed(self, count: int) -> None:
        """Wait until both readers have so many more messages."""
        wanted = {reader: len(values) + count for reader, values in self.read.items()}

        def passed() -> bool:
            assert not self.errors, self.errors
            return all(len(self.read[reader]) >= least for reader, least in wanted.items())

        wait_for(passed, f"{count} messages pass")

    def _watched(self, run: Callable[[], object]) -> None:
        try:
            run()
        except BaseException as exc:
            self.errors.append(exc)

    def _put(self) -> None:
        with contextlib.closing(self._connect()) as client, client.queue(self._name) as queue:
            while not self._over.wait(EVERY_S):
                value = uuid.uuid4().bytes
                with self._turn, self._bounded(client):
                    queue.put(Message("t", value))
                self.put.append(value)

    async def _put_in_loop(self) -> None:
        with contextlib.closing(self._connect()) as client:
            queue = await hqueue.aio.Client(client).queue(self._name)
            while not self._over.is_set():
                await asyncio.sleep(EVERY_S)
                value = uuid.uuid4().bytes
                await asyncio.to_thread(self._turn.acquire)
                try:
                    with self._bounded(client):
                        await queue.put(Message("t", value))
                finally:
                    self._turn.release()
                self.put.append(value)

    @contextlib.contextmanager
    def _bounded(self, client: hqueue.Client) -> Iterator[None]:
        begun_s = time.monotonic()
        yield
        took_s = time.monotonic() - begun_s
        self.longest_s = max(self.longest_s, took_s)
        assert took_s <= client.settings.operation_timeout_ms / 1e3 + SLACK_S

    def _consume(self) -> None:
        with (
            contextlib.closing(self._to_read()) as client,
            contextlib.closing(Consumer(self._name, group=self._name, client=client)) as consumer,
        ):
            last, partitions = 0, client.describe_queue(self._name).partitions
            while last < partitions:
                for message in consumer.poll(100):
                    last += self._take("consumer", message.value)
                consumer.commit()

    async def _scan_in_loop(self) -> None:
        with contextlib.closing(self._to_read()) as client:
            queue = await hqueue.aio.Client(client).queue(self._name)
            last = 0
            async with queue.scan(follow=True) as messages:
                async for message in messages:
                    last += self._take("scan", message.value)
                    if last == queue.partitions:
                        return

    def _take(self, reader: str, value: bytes) -> bool:
        """Note what a reader got; whether it is the last of a partition."""
        if value == self._last:
            return True
        self.read[reader].append(value)
        return False
