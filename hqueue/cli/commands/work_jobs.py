"""Runs processes for the messages of a share group, some at a time."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hqueue.aio.share_consumer import ShareConsumer
from hqueue.cli.commands.work_process import Retries, run, verdict
from hqueue.cli.exits import say
from hqueue.errors import BufferFullError
from hqueue.sharing.acquired_message import AcquiredMessage

if TYPE_CHECKING:
    from hqueue.metrics.work import WorkMetrics

__all__ = ["Jobs", "WorkPlan"]

WAITING_MAX = 1_000
"""How many messages may wait in the worker for their next try, where keys are kept in order or the
group has no room for more delayed messages."""
POLL_MS = 1_000.0


@dataclasses.dataclass(frozen=True)
class WorkPlan:
    """How a worker processes messages. Times are in milliseconds."""

    command: Sequence[str]
    jobs: int
    timeout_ms: int | None
    grace_ms: int
    retries: Retries
    ordered_by_key: bool
    limit: int | None
    idle_ms: int | None


class Jobs:
    """Runs a process for each message that a consumer returns, and answers when the process ends.

    The consumer renews the lock of a message while its process runs. After a stop, processes may go
    on for the plan's `grace_ms`. Messages without an answer are released when the consumer is
    closed.

    Args:
        consumer: returns the messages. Its `auto_acknowledge` is False, its `auto_renew` True.
        plan: how the messages are processed.
        metrics: counts processes that have ended; None for no metrics.
    """

    def __init__(
        self, consumer: ShareConsumer, plan: WorkPlan, metrics: WorkMetrics | None = None
    ) -> None:
        self._metrics = metrics
        self._consumer = consumer
        self._plan = plan
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[asyncio.Task[None], AcquiredMessage] = {}
        self._waiting: set[asyncio.Task[None]] = set()
        """Tasks whose processes have ended, and whose messages wait for their next try."""
        self._changed = asyncio.Event()
        self._stopping = False
        self._failure: BaseException | None = None

    def request_stop(self) -> None:
        """Take no further messages. Any thread may call this."""
        self._stopping = True
        self._consumer.request_stop()
        self._loop.call_soon_threadsafe(self._changed.set)

    async def run(self) -> None:
        """Process messages until a stop, or until the plan's limit or idle time is reached."""
        try:
            await self._take_on()
        finally:
            await self._finish()
        if self._failure is not None:
            raise self._failure

    async def _take_on(self) -> None:
        left = math.inf if self._plan.limit is None else self._plan.limit
        idle_s = math.inf if self._plan.idle_ms is None else self._plan.idle_ms / 1e3
        busy_s = time.monotonic()
        while left and not self._stopping:
            if self._tasks:
                busy_s = time.monotonic()
            room = min(left, self._plan.jobs - (len(self._tasks) - len(self._waiting)))
            if room <= 0 or len(self._waiting) >= WAITING_MAX:
                await self._wait(POLL_MS / 1e3)
                busy_s = time.monotonic()  # A process may have ended just now.
                continue
            until_idle_s = busy_s + idle_s - time.monotonic()
            if until_idle_s <= 0:
                return
            messages = await self._consumer.poll(min(POLL_MS, 1e3 * until_idle_s), int(room))
            for message in messages:
                task = asyncio.ensure_future(self._work(message))
                self._tasks[task] = message
                task.add_done_callback(self._done)
            left -= len(messages)

    async def _finish(self) -> None:
        """Let processes end, and answer for their messages. End processes that take too long."""
        ends_s = time.monotonic() + self._plan.grace_ms / 1e3
        for task in self._waiting:
            task.cancel()
        while self._tasks and (left_s := ends_s - time.monotonic()) > 0:
            await self._wait(left_s)
        left = dict(self._tasks)
        working = left.keys() - self._waiting
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        for task in working:
            if task.cancelled():  # Its command was ended, and has not failed.
                self._consumer.release(left[task], counts=False)

    async def _work(self, message: AcquiredMessage) -> None:
        plan = self._plan
        timeout_s = None if plan.timeout_ms is None else plan.timeout_ms / 1e3
        began_s = time.monotonic()
        ran = await run(plan.command, message, timeout_s)
        found = verdict(ran, message.deliveries, plan.retries)
        if self._metrics is not None:
            retried = "retried" if found.again_in_ms is not None else "rejected"
            self._metrics.ended("done" if found.done else retried, time.monotonic() - began_s)
        where = f"{message.queue} {message.partition} {message.id}"
        if found.done:
            self._consumer.acknowledge(message)
        elif found.again_in_ms is None:
            say(f"{where}: {found.reason}; becomes a dead letter.")
            self._consumer.reject(message, reason=found.reason, exhausted=found.exhausted)
        else:
            pause = datetime.timedelta(milliseconds=found.again_in_ms)
            say(f"{where}: {found.reason}; delivered again after {pause.total_seconds():g} s.")
            # Later messages of its key would overtake a delayed one.
            if plan.ordered_by_key or not self._is_released(message, pause):
                await self._wait_here(pause)
                self._consumer.release(message)

    def _is_released(self, message: AcquiredMessage, pause: datetime.timedelta) -> bool:
        """Release a message for later; whether the group has room for that."""
        try:
            self._consumer.release(message, until=pause)
        except BufferFullError:
            return False
        return True

    async def _wait_here(self, pause: datetime.timedelta) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._waiting.add(task)
        self._changed.set()
        await asyncio.sleep(pause.total_seconds())

    def _done(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        self._waiting.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = self._failure or error
            self._stopping = True
        self._changed.set()

    async def _wait(self, timeout_s: float) -> None:
        """Wait until a task's process has ended, or a stop was requested."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._changed.wait(), timeout_s)
        self._changed.clear()
