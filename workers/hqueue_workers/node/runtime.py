"""The runtime of a worker: one event loop, a few threads that wait for servers, and a clock."""

from __future__ import annotations

import asyncio
import contextvars
import math
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from hqueue import ClosedError, HQueueError
from hqueue.runtime.backoff import Backoff
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock
from hqueue.runtime.interrupts import is_interruption
from hqueue.runtime.logs import Log
from hqueue.runtime.seldom import FaultLog
from hqueue.runtime.thread_pool import ThreadPool

__all__ = ["RETRIES", "Runtime", "ready"]

logger = Log(__name__)
ready = Log("hqueue_workers.ready")
"""Where a worker and a hub say that they are ready, and where. The command line always shows it."""

FAULT_QUIET_MS = 1_000.0
READ_PATIENCE_MS = 2_000.0
"""A region that moves can't be read for about a second, and regions are moved all the time."""

RETRIES = Backoff(1_000.0, 30_000.0)
"""The pauses while servers fail."""

END_MS = 5_000.0
"""How long a clean end may take, besides the calls under way."""

_Result = TypeVar("_Result")


class Runtime:
    """Runs everything of a worker: on one event loop, and in threads where it waits for a server.

    So an idle partition or subscriber costs nothing. The threads are two bounded pools, so that
    waits for HBase do not hold up requests to ZooKeeper. Make and use it within the event loop.

    Args:
        threads: the most requests to HBase at a time, and the threads for other waits for it.
        clock: the clock.
        fault_quiet_ms: a fault that some partitions have, and others not, is over when no partition
            had it for this long.
    """

    def __init__(
        self, threads: int, clock: Clock = SYSTEM_CLOCK, fault_quiet_ms: float = FAULT_QUIET_MS
    ) -> None:
        self.clock = clock
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Ends with an unexpected error of a task, after which the worker can't go on."""
        self.faults = FaultLog(logger, clock, fault_quiet_ms)
        """Logs what fails, and when that is over: thousands of partitions log a common fault
        once.
        """
        self._reads = FaultLog(logger, clock, fault_quiet_ms, READ_PATIENCE_MS)
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self.requests = asyncio.Semaphore(threads)
        """Held while something is asked of HBase's rows in the loop itself."""
        self._reading = ThreadPool(threads, "hqueue-worker-read")
        self._coordinating = ThreadPool(4, "hqueue-worker-coordinate")
        self._tasks: set[asyncio.Task[Any]] = set()

    async def read(
        self, work: Callable[[], _Result], release: Callable[[_Result], object] | None = None
    ) -> _Result:
        """Do in a thread what waits for HBase, or takes more than a moment.

        Args:
            work: the work. A cancellation does not end it.
            release: called by the thread with the result of the work after a cancellation.
        """
        return await _done_by(self._reading, work, release)

    async def coordinate(
        self, work: Callable[[], _Result], release: Callable[[_Result], object] | None = None
    ) -> _Result:
        """Do in a thread what waits for the coordination service. The arguments are those of
        `read`.
        """
        return await _done_by(self._coordinating, work, release)

    async def unless(
        self, stopping: asyncio.Event, work: Coroutine[Any, Any, _Result]
    ) -> _Result | None:
        """Do the work that comes before the worker is ready. If `stopping` is set meanwhile, the
        work is cancelled, and this returns None.

        Waits of its threads are bounded, and this does not wait for them.
        """
        begun = asyncio.ensure_future(work)
        wanted = asyncio.ensure_future(stopping.wait())
        try:
            await asyncio.wait({begun, wanted}, return_when=asyncio.FIRST_COMPLETED)
            return begun.result() if begun.done() else None
        finally:
            wanted.cancel()
            begun.cancel()
            await asyncio.wait({begun})
            if not begun.cancelled():
                begun.exception()  # No caller waits for the error of abandoned work.

    def start(self, work: Coroutine[Any, Any, _Result]) -> asyncio.Task[_Result]:
        """Start a task in the background. An error that it raises ends the worker. The caller's
        time limits do not apply to it.
        """
        task = contextvars.Context().run(self._loop.create_task, work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def start_soon(self, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Like `start`, from any thread. Does not raise if the loop has ended."""
        if threading.get_ident() == self._thread:
            self.start(work())
        else:
            self.call(lambda: self.start(work()))

    def call(self, work: Callable[[], object]) -> None:
        """Make the event loop call something, from any thread. Does not raise if the loop has
        ended.
        """
        try:
            if threading.get_ident() == self._thread:
                self._loop.call_soon(work)
            else:
                self._loop.call_soon_threadsafe(work)
        except RuntimeError as exc:  # The loop has ended, and this comes too late.
            if is_interruption(exc):
                raise
            logger.debug("ignored a callback that came after the worker had ended")

    def submit(self, work: Coroutine[Any, Any, _Result]) -> Future[_Result]:
        """Like `start`, from any thread. The future has the result, or the error.

        Raises:
            ClosedError: the loop has ended.
        """
        try:
            run = asyncio.run_coroutine_threadsafe
            return contextvars.Context().run(run, work, self._loop)
        except RuntimeError as exc:
            work.close()
            if is_interruption(exc):
                raise
            raise ClosedError("this process is shutting down") from exc

    async def sleep_ms(self, duration_ms: float) -> None:
        """Wait."""
        await asyncio.sleep(duration_ms / 1e3)

    async def wait(self, changed: asyncio.Event, timeout_ms: float) -> None:
        """Wait until something has changed, or for this long; in both cases `changed` is set.

        Unlike `asyncio.wait_for` before Python 3.12, this never swallows a cancellation.
        """
        timer = None
        if not math.isinf(timeout_ms):
            timer = self._loop.call_later(max(0.0, timeout_ms) / 1e3, changed.set)
        try:
            await changed.wait()
        finally:
            if timer is not None:
                timer.cancel()

    def note_read(self, queue: str, error: HQueueError | None) -> None:
        """Log when a queue can't be read, and when it can be read again, once for all its
        partitions.
        """
        fault = f"reading {queue}"
        if error is not None:
            self._reads.met(fault, "queue %s can't be read now: %s", queue, error)
        else:
            self._reads.over(fault, "queue %s can be read again", queue)

    async def until(self, stopping: asyncio.Event) -> None:
        """Wait until `stopping` is set.

        Raises:
            BaseException: the error that ended the worker before.
        """
        wanted = asyncio.ensure_future(stopping.wait())
        self.failed.add_done_callback(lambda _: wanted.cancel())
        await asyncio.wait({wanted})
        if self.failed.done():
            self.failed.result()

    async def end(
        self, work: Coroutine[Any, Any, object], drain_ms: float, end_ms: float = END_MS
    ) -> None:
        """End the worker cleanly, but give up if this takes much longer than calls under way may
        take: then the servers are away, and other workers take over when the session ends.

        Args:
            work: what ends the worker.
            drain_ms: the time for calls under way.
            end_ms: the time for the rest.
        """
        ending = asyncio.ensure_future(work)
        try:
            await asyncio.wait({ending}, timeout=(drain_ms + end_ms) / 1e3)
            if ending.done():
                ending.result()
            else:
                logger.warning(
                    "servers don't answer; the remaining registrations end with the session"
                )
        finally:
            ending.cancel()

    def fail(self, error: BaseException) -> None:
        """End the worker with this error."""
        if not self.failed.done():
            self.failed.set_exception(error)

    async def close(self) -> None:
        """Cancel all tasks. Waits of threads are bounded, and this does not wait for them."""
        self.failed.cancel()  # What fails now fails because of the end.
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._reading.shutdown(wait=False, cancel_futures=True)
        self._coordinating.shutdown(wait=False, cancel_futures=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.fail(error)


async def _done_by(
    pool: ThreadPool, work: Callable[[], _Result], release: Callable[[_Result], object] | None
) -> _Result:
    future = pool.submit(work)

    def release_late(ended: Future[_Result]) -> None:
        if release is not None and not ended.cancelled() and ended.exception() is None:
            release(ended.result())

    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        future.add_done_callback(release_late)
        raise
