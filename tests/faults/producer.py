"""A producer process: ``python -m tests.faults.producer SPECIFICATION``."""

from __future__ import annotations

import asyncio
import dataclasses
import random
import sys
import threading
import time
from collections.abc import Sequence

import hqueue.aio
from hqueue import HQueueError, Message, MessageID, Outcome, Queue
from hqueue.connecting import open_client

from . import history
from .clock import SettableClock
from .history import Put, Recorder, now_s
from .messages import KEYS, made, token_of
from .specification import Specification

__all__ = ["FILLING", "STYLES"]

STYLES = ("single", "batch", "keyed", "free", "careless", "buffered", "asyncio")
"""``single`` messages, ``batch`` es, ``keyed`` ones, ``free`` to go to any partition; a
``careless`` one writes on when its clock is set, which the others refuse; ``buffered`` by a
`Producer`; ``asyncio`` by several tasks of an event loop, some of which are cancelled. A
``filling`` one is started by the nemesis now and then."""

FILLING = "filling"
PAUSE_S = 0.08
FILLING_MESSAGES = 32
FILLING_BYTES = 256 * 1024
HOW = ("partition", "key", "any")
TASKS = 6
CANCELLED_S = (0.0, 0.002, 0.02)
"""When a put that is cancelled is."""


class _Process:
    def __init__(self, specification: Specification) -> None:
        self._specification = specification
        self._style = specification.style
        folder, name = specification.folder, specification.name
        self._recorder = Recorder(folder / f"{name}.producer.jsonl")
        self._random = random.Random(specification.seed)
        self._number = 0
        self._lock = threading.Lock()
        changes = {"clock_skew_ms_max": 600_000} if self._style == "careless" else {}
        self._client = open_client(
            specification.client_settings(**changes), SettableClock(folder / f"{name}.clock")
        )

    def run(self) -> None:
        while not self._specification.stopped():  # The queue may be disabled just now.
            try:
                queue = self._client.queue(self._specification.queue)
            except HQueueError:
                time.sleep(PAUSE_S)
                continue
            write = {"buffered": self._send, "asyncio": self._run_tasks, FILLING: self._fill}
            write.get(self._style, self._write)(queue)
            return

    def _next(
        self, count: int, partition: int | None, size: int, keys: Sequence[bytes | None]
    ) -> tuple[Put, list[Message]]:
        name = self._specification.name
        names = [f"{name}-{self._number}-{index}" for index in range(count)]
        messages = made(names, size, keys, self._random)
        put = Put(name, self._number, [*map(token_of, messages)], partition, now_s())
        self._number += 1
        return put, messages

    def _size(self) -> int:
        return self._random.choice((0, 10, 100, 1_000))

    def _write(self, queue: Queue) -> None:
        while not self._specification.stopped():
            how = {"keyed": "key", "free": "any"}.get(self._style, "partition")
            partition, key, keys = self._target(queue, how)
            count = 1 if self._style == "single" else self._random.choice((1, 2, 5, 30))
            put, messages = self._next(count, partition, self._size(), keys)
            self._put(queue, put, messages, key)
            time.sleep(self._random.random() * PAUSE_S)

    def _fill(self, queue: Queue) -> None:
        """Write megabytes into one partition, and end."""
        for _ in range(FILLING_MESSAGES):
            put, messages = self._next(1, self._specification.partition, FILLING_BYTES, KEYS)
            self._put(queue, put, messages, None)

    def _put(self, queue: Queue, put: Put, messages: list[Message], key: bytes | None) -> None:
        self._recorder.invoke(put)
        try:
            if key is None:
                ids = queue.put(messages, partition=put.partition)
            else:
                ids = queue.put(messages, key=_routing(messages[0], key))
        except HQueueError as exc:
            self._recorder.complete(put.number, _outcome(exc), [], str(exc))
        else:
            self._recorder.complete(put.number, "ok", map(int, ids))

    def _send(self, queue: Queue) -> None:
        with queue.producer(buffer_bytes_max=1024 * 1024, linger_ms=10) as producer:
            while not self._specification.stopped():
                how = self._random.choice(HOW)
                partition, key, keys = self._target(queue, how)
                put, (message,) = self._next(1, partition, self._size(), keys)

                def done(
                    message_id: int | None, error: BaseException | None, number: int = put.number
                ) -> None:
                    with self._lock:
                        if error is None:
                            self._recorder.complete(number, "ok", [int(message_id or 0)])
                        else:
                            self._recorder.complete(number, _outcome(error), [], str(error))

                with self._lock:
                    self._recorder.invoke(put)
                try:
                    chosen = partition if key is None else None
                    producer.send(
                        message, partition=chosen, key=_routing(message, key), callback=done
                    )
                except HQueueError as exc:
                    done(None, exc)
                time.sleep(self._random.random() * PAUSE_S / 2)

    def _run_tasks(self, queue: Queue) -> None:
        asyncio.run(self._write_in_loop(queue.name))

    async def _write_in_loop(self, name: str) -> None:
        queue = await hqueue.aio.Client(self._client).queue(name)
        async with queue.producer(buffer_bytes_max=1024 * 1024, linger_ms=10) as producer:
            tasks = [self._put_in_loop(queue) for _ in range(TASKS)]
            await asyncio.gather(*tasks, self._send_in_loop(queue, producer))

    async def _put_in_loop(self, queue: hqueue.aio.Queue) -> None:
        while not self._specification.stopped():
            partition, key, keys = self._target(queue, self._random.choice(HOW))
            count = self._random.choice((1, 1, 1, 5))
            put, messages = self._next(count, partition, self._size(), keys)
            given = messages[0] if count == 1 else messages
            chosen = partition if key is None else None
            timeout_s = self._random.choice((None, None, None, *CANCELLED_S))
            # Between tasks, and after one that was cancelled, no order is promised.
            self._recorder.invoke(dataclasses.replace(put, partition=None))
            try:
                putting = queue.put(given, partition=chosen, key=_routing(messages[0], key))
                ids = await asyncio.wait_for(putting, timeout_s)
            except asyncio.TimeoutError:
                self._recorder.complete(put.number, "unknown", [], "cancelled")
            except HQueueError as exc:
                self._recorder.complete(put.number, _outcome(exc), [], str(exc))
            else:
                found = [ids] if isinstance(ids, MessageID) else ids
                self._recorder.complete(put.number, "ok", map(int, found))
            await asyncio.sleep(self._random.random() * PAUSE_S)

    async def _send_in_loop(self, queue: hqueue.aio.Queue, producer: hqueue.aio.Producer) -> None:
        while not self._specification.stopped():
            partition, key, keys = self._target(queue, self._random.choice(HOW))
            put, (message,) = self._next(1, partition, self._size(), keys)
            chosen = partition if key is None else None
            self._recorder.invoke(put)
            try:
                message_id = await (
                    await producer.send(message, partition=chosen, key=_routing(message, key))
                )
            except HQueueError as exc:
                self._recorder.complete(put.number, _outcome(exc), [], str(exc))
            else:
                self._recorder.complete(put.number, "ok", [int(message_id)])

    def _target(
        self, queue: Queue | hqueue.aio.Queue, how: str
    ) -> tuple[int | None, bytes | None, Sequence[bytes | None]]:
        """A partition of choice, that of a key, or any; the key; and the messages' own keys."""
        if how == "key":
            key = b"key-%d" % self._random.randrange(20)
            return queue.choose_partition(None, key), key, (key,)
        if how == "any":
            return None, None, (None,)
        return self._random.randrange(queue.partitions), None, KEYS


def _routing(message: Message, key: bytes | None) -> bytes | None:
    """The key that a put gets: none where the message's own chooses."""
    return key if message.key is None else None


def _outcome(error: BaseException) -> history.Outcome:
    if isinstance(error, HQueueError) and error.outcome is Outcome.NOT_APPLIED:
        return "fail"
    return "unknown"


if __name__ == "__main__":
    _Process(Specification.begin(sys.argv[1])).run()
