"""Consumers of a group in one process: ``python -m tests.faults.consumer SPECIFICATION``."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import hqueue
import hqueue.aio
from hqueue import (
    Client,
    CommitFailedError,
    ConsumedMessage,
    Consumer,
    HQueueError,
    MessageID,
    PartitionKey,
    Queue,
)

from .group_history import GroupRecorder
from .group_witness import GroupWitness
from .reader import noted
from .record_files import now_s
from .specification import CONSUMED, Specification

__all__ = ["GROUP", "STYLES"]

GROUP = "consumers"
STYLES = ("polling", "iterating", "restless", "asyncio")
"""A ``polling`` one commits now and then; an ``iterating`` one leaves that to its consumer; a
``restless`` one commits beside what it does, leaves its group again and again, and comes back; an
``asyncio`` one does so in an event loop, and has its calls cancelled."""

POLL_MS = 200.0
PAUSE_S = 0.5
MESSAGES_MAX = 50
COMMITS = 0.2
STAYS_S = (2.0, 10.0)
AUTO_COMMIT_MS = 300
WORK_S = 0.02
LOOK_EVERY_S = 2.0
SKEW_MS_MAX = 600_000
CANCELLED_S = (0.0, 0.005, 0.1)
"""When a call that is cancelled is."""
CANCELS = 0.2

Answer = TypeVar("Answer")
Committed = Callable[[Iterable[tuple[str, int]]], Mapping[PartitionKey, MessageID]]


class _Process:
    """As many consumers as are wanted, each with a session and a thread of its own."""

    def __init__(self, specification: Specification) -> None:
        self._specification = specification
        path = specification.folder / f"{specification.name}.consumer.jsonl"
        self._recorder = GroupRecorder(path)
        self._witness = GroupWitness(self._recorder)
        self._drain = _Drain(specification)

    def run(self) -> None:
        count = self._specification.consumers
        with (
            self._witness,
            # A producer writes on with a clock that is minutes ahead, and so offsets are, too.
            hqueue.connect(
                self._specification.client_settings(clock_skew_ms_max=SKEW_MS_MAX)
            ) as client,
            ThreadPoolExecutor(count) as pool,
        ):
            for ended in [pool.submit(self._consume, client, number) for number in range(count)]:
                ended.result()

    def _consume(self, client: Client, number: int) -> None:
        chance = random.Random(f"{self._specification.seed} {number}")
        first = STYLES.index(self._specification.style)
        style = STYLES[(first + number) % len(STYLES)]
        if style == "asyncio":
            asyncio.run(self._consume_in_loop(client, chance))
            return
        while True:  # Ends when all was consumed; the run ends this process if it never is.
            stays_s = chance.uniform(*STAYS_S) if style == "restless" else float("inf")
            try:
                with Consumer(
                    group=GROUP,
                    client=client,
                    auto_commit=style == "iterating",
                    auto_commit_interval_ms=AUTO_COMMIT_MS,
                ) as consumer:
                    one = _Consuming(self._specification, consumer, style, chance)
                    if one.run(client, self._recorder, self._witness, self._drain, stays_s):
                        return
            except HQueueError as exc:
                print(repr(exc), file=sys.stderr)
                time.sleep(PAUSE_S)

    async def _consume_in_loop(self, client: Client, chance: random.Random) -> None:
        while True:
            stays_s = chance.uniform(*STAYS_S)
            try:
                async with hqueue.aio.Consumer(
                    group=GROUP, client=hqueue.aio.Client(client), auto_commit=False
                ) as consumer:
                    one = _ConsumingInLoop(self._specification, consumer, chance)
                    if await one.run(client, self._recorder, self._witness, self._drain, stays_s):
                        return
            except HQueueError as exc:
                print(repr(exc), file=sys.stderr)
                await asyncio.sleep(PAUSE_S)


class _Consuming:
    """A consumer for as long as it is in its group."""

    def __init__(
        self, specification: Specification, consumer: Consumer, style: str, chance: random.Random
    ) -> None:
        self._specification = specification
        self._consumer = consumer
        self._style = style
        self._chance = chance
        self._claims: dict[int, int] = {}
        self._messages: Iterator[ConsumedMessage] | None = None

    def run(
        self,
        client: Client,
        recorder: GroupRecorder,
        witness: GroupWitness,
        drain: _Drain,
        stays_s: float,
    ) -> bool:
        """Consume, for so long; whether all was consumed."""
        consumer, name = self._consumer, self._specification.queue
        ends_s = time.monotonic() + stays_s

        def on_assigned(partitions: Sequence[PartitionKey]) -> None:
            for _, partition in partitions:
                self._claims[partition] = witness.claim(consumer.consumer_id, partition)

        consumer.subscribe(name, on_assigned=on_assigned)
        while time.monotonic() < ends_s:
            began_s = now_s()
            messages = self._next()
            if messages:
                claim = self._claims[messages[0].partition]
                recorder.handed(consumer.consumer_id, claim, began_s, map(noted, messages))
                time.sleep(self._chance.random() * WORK_S)
                if self._chance.random() < COMMITS:
                    self._commit()
            elif self._specification.drained():
                self._commit()
                if drain.is_over(client, consumer.committed):
                    return True
        return False

    def _next(self) -> list[ConsumedMessage]:
        if self._style == "iterating":
            if self._messages is None:
                self._messages = self._consumer.messages(idle_ms_max=POLL_MS)
            for message in self._messages:
                return [message]
            self._messages = None
            return []
        return self._consumer.poll(POLL_MS, self._chance.randint(1, MESSAGES_MAX))

    def _commit(self) -> None:
        try:
            if self._style == "polling":
                self._consumer.commit()
            elif self._style == "restless":
                self._consumer.commit_async()
        except CommitFailedError:
            pass  # It stood still, and others have its partitions.


class _ConsumingInLoop:
    """A consumer in an event loop, for as long as it is in its group."""

    def __init__(
        self, specification: Specification, consumer: hqueue.aio.Consumer, chance: random.Random
    ) -> None:
        self._specification = specification
        self._consumer = consumer
        self._chance = chance
        self._claims: dict[int, int] = {}
        self._messages = consumer.messages(idle_ms_max=POLL_MS) if chance.random() < 0.5 else None

    async def run(
        self,
        client: Client,
        recorder: GroupRecorder,
        witness: GroupWitness,
        drain: _Drain,
        stays_s: float,
    ) -> bool:
        """Consume, for so long; whether all was consumed."""
        consumer, name = self._consumer, self._specification.queue
        ends_s = time.monotonic() + stays_s

        async def on_assigned(partitions: Sequence[PartitionKey]) -> None:
            await asyncio.sleep(0)
            for _, partition in partitions:
                self._claims[partition] = witness.claim(consumer.consumer_id, partition)

        await consumer.subscribe(name, on_assigned=on_assigned)
        partitions = [(name, number) for number in range(client.queue(name).partitions)]
        while time.monotonic() < ends_s:
            began_s = now_s()
            messages = await self._cancelled_now_and_then(self._next()) or []
            if messages:
                claim = self._claims[messages[0].partition]
                recorder.handed(consumer.consumer_id, claim, began_s, map(noted, messages))
                await asyncio.sleep(self._chance.random() * WORK_S)
                if self._chance.random() < COMMITS:
                    await self._commit()
            elif self._specification.drained():
                await self._commit()
                committed = await consumer.committed(partitions)
                if await asyncio.to_thread(drain.is_over, client, lambda _, c=committed: c):
                    return True
        return False

    async def _next(self) -> list[ConsumedMessage]:
        if self._messages is None:
            return await self._consumer.poll(POLL_MS, self._chance.randint(1, MESSAGES_MAX))
        try:
            return [await anext(self._messages)]
        except StopAsyncIteration:
            self._messages = self._consumer.messages(idle_ms_max=POLL_MS)
            return []

    async def _commit(self) -> None:
        with contextlib.suppress(CommitFailedError):  # Others have its partitions by now.
            await self._cancelled_now_and_then(self._consumer.commit())

    async def _cancelled_now_and_then(self, call: Awaitable[Answer]) -> Answer | None:
        """Its answer; None if it was cancelled."""
        cancelled = self._chance.random() < CANCELS
        timeout_s = self._chance.choice(CANCELLED_S) if cancelled else None
        try:
            return await asyncio.wait_for(call, timeout_s)
        except asyncio.TimeoutError:
            return None


class _Drain:
    """Finds out when a group is done with all there is: a process that does tells all others.

    Args:
        specification: of the process.
    """

    def __init__(self, specification: Specification) -> None:
        self._specification = specification
        self._looking = threading.Lock()
        self._look_s = 0.0
        self._left: set[int] | None = None
        """The partitions that are not consumed to the end."""

    def is_over(self, client: Client, committed: Committed) -> bool:
        """Whether no more will come, and the group is done with all there is.

        Args:
            client: a client.
            committed: the group's offsets in partitions at least.
        """
        over = self._specification.consumed()
        if not over and self._looking.acquire(blocking=False):
            try:
                if time.monotonic() >= self._look_s:
                    self._look(client.queue(self._specification.queue), committed)
                    self._look_s = time.monotonic() + LOOK_EVERY_S
            finally:
                self._looking.release()
        return over

    def _look(self, queue: Queue, committed: Committed) -> None:
        if self._left is None:
            self._left = set(range(queue.partitions))
        known = committed([(queue.name, partition) for partition in self._left])
        begins = {k.partition: place for k, place in known.items() if k.partition in self._left}
        for partition in self._left - begins.keys():
            begins[partition] = MessageID(0)
        self._left = {number for number, lag in queue.lag(begins).items() if lag.messages}
        if not self._left:
            (self._specification.folder / CONSUMED).touch()


if __name__ == "__main__":
    _Process(Specification.begin(sys.argv[1])).run()
