"""A partition with its subscribers, in memory and in stepped time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, cast

from hqueue import Queue, Scan
from hqueue.consume.polling import fetch
from hqueue.engine import Fetch, LoopReader, PartitionCursor
from hqueue.log import Batch
from hqueue.log.ports import ReadPort
from hqueue.runtime.clock import Clock, Deadline, drive, drive_each
from hqueue_workers.delivery.cursor import SubscriberCursor
from hqueue_workers.delivery.poller import Poller
from hqueue_workers.delivery.scanner import MessageScanner, partition_opener
from hqueue_workers.delivery.segment import SubscriptionFilter
from hqueue_workers.delivery.wire import decode_messages
from hqueue_workers.node.runtime import Runtime
from tests.support.doubles import Rows
from tests.support.worker_doubles import SteppedRuntime, settle

__all__ = ["BYTES_MAX", "PUSHED_BYTES_MAX", "Scene", "Subscriber", "play", "until"]

BYTES_MAX = 20_000
PUSHED_BYTES_MAX = 1024 * 1024


class Partitions:
    """A queue of one partition in memory."""

    def __init__(self, runtime: Runtime) -> None:
        self.name = "q"
        self.rows = Rows()
        self.cursors: list[PartitionCursor] = []
        self._clock: Clock = runtime.clock
        self._runtime = runtime

    @property
    def port(self) -> ReadPort:
        return cast(ReadPort, self.rows)

    def cursor(self, partition: int, scan: Scan, bytes_max: int) -> PartitionCursor:
        cursor = PartitionCursor(
            partition,
            start=scan.start,
            topics=frozenset(scan.topics) if scan.topics else None,
            clock=self._clock,
            bytes_max=bytes_max,
        )
        self.cursors.append(cursor)
        return cursor

    async def read(self, cursor: PartitionCursor, deadline: Deadline) -> list[Batch]:
        return await self._runtime.read(lambda: drive(cursor.read(deadline), self.port, deadline))

    async def release(self, cursor: PartitionCursor) -> None:
        drive(cursor.release(), self.port, Deadline(self._clock, 0))

    async def fetch(
        self,
        fetches: Sequence[Fetch[PartitionCursor]],
        bytes_max: int,
        *,
        deadline: Callable[[], Deadline],
    ) -> AsyncIterator[list[Batch]]:
        came: list[list[Batch]] = []
        error: list[BaseException] = []

        def ask() -> None:
            try:
                came.extend(drive_each(fetch(fetches, deadline, bytes_max), self.port, self._clock))
            except BaseException as exc:
                error.append(exc)

        await self._runtime.read(ask)
        for each in came:
            yield each
        if error:
            raise error[0]


class Subscriber:
    """One that takes what its cursor gives, as often as it is let."""

    def __init__(
        self,
        scene: Scene,
        name: str,
        position: int = 0,
        calls: int = 10**9,
        topics: frozenset[str] | None = None,
    ) -> None:
        self.got: list[bytes] = []
        self.calls = calls
        self.may_go_on = asyncio.Event()
        filter_ = SubscriptionFilter(name, topics, 1_000, 2_000)
        self.cursor = SubscriberCursor(
            scene.queue,
            filter_,
            position,
            shared=scene.shared,
            alone=scene.scanner,
            runtime=scene.runtime,
        )
        scene.runtime.start(self._run())

    async def _run(self) -> None:
        while True:
            await self.cursor.ready()
            while self.calls <= 0:
                self.may_go_on.clear()
                await self.may_go_on.wait()
            call = await self.cursor.take(None, lambda _: True)
            if call is None:  # It went out of memory while this one waited.
                continue
            self.calls -= 1
            assert call.start == self.cursor.position
            self.got += [m.value for m in decode_messages(b"".join(call.parts))]
            self.cursor.advance(call.end)

    def let(self, calls: int = 10**9) -> None:
        self.calls = calls
        self.may_go_on.set()


class Scene:
    """A partition with its shared scanner.

    Args:
        pushed_bytes_max: as the poller takes it.
        runtime: one whose time passes by itself; one whose time is stepped if None.
    """

    def __init__(
        self, pushed_bytes_max: int = PUSHED_BYTES_MAX, runtime: Runtime | None = None
    ) -> None:
        self.runtime = runtime or SteppedRuntime()
        self.partition = Partitions(self.runtime)
        self.queue = cast(Queue, self.partition)
        log = cast(LoopReader, self.partition)
        self.poller = Poller(self.queue, log, self.runtime, 1_000, pushed_bytes_max)
        self.runtime.start(self.poller.run())
        self.opener = partition_opener(log, 0)
        self.scanners: list[MessageScanner] = []
        self.shared = MessageScanner(
            self.queue, self.opener, self.runtime, lambda: BYTES_MAX, poller=self.poller
        )

    def scanner(self) -> MessageScanner:
        self.scanners.append(
            MessageScanner(self.queue, self.opener, self.runtime, lambda: BYTES_MAX)
        )
        return self.scanners[-1]

    def append(self, *values: bytes, topic: str = "t") -> None:
        for value in values:
            self.partition.rows.append(0, value, topic=topic)
            self.poller.notify(0)

    def push(self, number: int) -> None:
        """Report a row that was appended, and bring it along."""
        self.poller.push(self.partition.rows.rows[0][number])
        self.poller.notify(0)


def play(scene: Callable[[Scene], Any], *, threads: int | None = None, **options: int) -> None:
    """Let a scene happen: in stepped time, or with so many threads in real time."""

    async def run() -> None:
        it = Scene(**options, runtime=None if threads is None else Runtime(threads))
        await scene(it)
        await it.runtime.close()

    asyncio.run(run())


async def until(condition: Callable[[], object]) -> None:
    for _ in range(2_000):
        if condition():
            return
        await settle()
    raise AssertionError("this is never called")
