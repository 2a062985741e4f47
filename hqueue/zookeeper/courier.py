"""The thread of a session that calls kazoo.

A handler of a signal runs in the main thread, in the middle of anything, and may raise. In the
middle of kazoo that leaves a request without the byte that has it sent, or a lock held that kazoo's
own threads wait for: then the session never answers again. So the program's threads call nothing of
kazoo, and wait only in what is written in C (`hqueue.zookeeper.waiting`).
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import queue
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from kazoo.handlers.threading import KazooTimeoutError

from hqueue.errors import ClosedError, Outcome, StoreUnavailableError
from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline
from hqueue.runtime.foreign import call_foreign
from hqueue.runtime.steps import Work as Waiting
from hqueue.runtime.stepwise import Stepwise, stepwise
from hqueue.runtime.threads import start
from hqueue.zookeeper.waiting import NEW_BOX, Box, take

__all__ = ["Courier", "Later"]

Result = TypeVar("Result")
Work = Callable[[], object]

SLOW_MS = 15_000.0
"""How long a call may wait for the courier, which itself waits for nobody."""


class Later:
    """A call that a courier makes later, unless it is cancelled."""

    def __init__(self, work: Work) -> None:
        self._work: Work | None = work

    def __call__(self) -> None:
        work = self._work
        if work is not None:
            work()

    def cancel(self) -> None:
        """Cancel the call. From any thread."""
        self._work = None


class Courier(Stepwise):
    """Calls what it is given, one after the other. Thread-safe.

    It waits for no answer of ZooKeeper: callers wait for theirs beside each other.
    """

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Work] = queue.SimpleQueue()
        self._due: list[tuple[float, int, Later]] = []
        """A heap of what is called later, by when. Only the thread itself uses it."""
        self._numbers = itertools.count()
        self._serving = threading.Lock()
        self._lock = threading.RLock()
        self._thread_id: int | None = None
        self._ended = False

    def begin(self) -> None:
        """Let there be the thread. Of several that an interrupted call started, one stays.

        Raises:
            As `hqueue.runtime.threads.start`.
        """
        if not self._serving.locked() and not self._ended:
            start(self._run, name="hqueue-session")

    def post(self, work: Work) -> None:
        """Have something called. What it raises is logged.

        Raises:
            ClosedError: the thread has ended.
        """
        with self._lock:
            if self._ended:
                raise ClosedError("the client is closed")
            self._work.put(work)

    def later(self, delay_ms: float, work: Work) -> Later:
        """Have something called later, unless the thread ends before."""
        due_ms, later = SYSTEM_CLOCK.monotonic_ms() + delay_ms, Later(work)
        entry = due_ms, next(self._numbers), later
        with contextlib.suppress(ClosedError):
            self.post(partial(heapq.heappush, self._due, entry))
        return later

    @stepwise
    def call(self, work: Callable[[], Result], bound_ms: float = SLOW_MS) -> Waiting[Any, Result]:
        """Have something called, and wait for what it returns or raises. An interrupted caller
        leaves it to its end.

        Raises:
            StoreUnavailableError: it is not done within the bound.
            ClosedError: the thread has ended.
        """
        if threading.get_ident() == self._thread_id:
            return work()
        done: Box = yield NEW_BOX
        self.post(partial(_do, work, done))
        came: tuple[Result | None, BaseException | None] | None = yield take(done, bound_ms)
        if came is None:
            raise StoreUnavailableError(
                "the session with ZooKeeper did not finish the request in time",
                outcome=Outcome.UNKNOWN,
            )
        value, error = came
        if error is not None:
            raise error
        return value  # type: ignore[return-value]

    def ask(
        self, requests: Sequence[Callable[[], Any]], bound_ms: float
    ) -> Waiting[Any, list[Any]]:
        """Send requests, all before the first answer, and wait for the answers.

        Args:
            requests: each sends one, and returns kazoo's asynchronous result.
            bound_ms: how long to wait for all of them.

        Returns:
            For each kazoo's result, or an error where there is none: `KazooTimeoutError` if it took
            too long.
        """
        came: Box = yield NEW_BOX
        self.post(partial(_send, requests, came))
        results: list[Any] = [KazooTimeoutError()] * len(requests)
        ends = Deadline(SYSTEM_CLOCK, bound_ms)
        for _ in requests:
            answer = yield take(came, ends.remaining_ms)
            if answer is None:
                break
            index, result = answer
            results[index] = result
        return results

    def end(self, work: Work, bound_ms: float) -> Waiting[Any, bool]:
        """Have something called as the last thing that is; returns whether it was in time. What is
        given meanwhile is called, too.
        """

        def finish() -> None:
            work()
            with self._lock:
                self._ended = True

        try:
            if self._serving.locked():
                yield from self.call.steps(finish, bound_ms)
            else:
                finish()
        except StoreUnavailableError:
            return False
        except ClosedError:
            return True
        return True

    def _run(self) -> None:
        if not self._serving.acquire(blocking=False):
            return
        self._thread_id = threading.get_ident()
        while not self._ended or not self._work.empty():
            call_foreign("what a session with ZooKeeper does", self._next())

    def _next(self) -> Work:
        """Wait for what is called next."""
        while True:
            left_ms = self._due[0][0] - SYSTEM_CLOCK.monotonic_ms() if self._due else None
            if left_ms is not None and left_ms <= 0:
                return heapq.heappop(self._due)[-1]
            try:
                return self._work.get(timeout=None if left_ms is None else left_ms / 1e3)
            except queue.Empty:
                pass


def _do(work: Work, done: Box) -> None:
    try:
        value = work()
    except BaseException as exc:
        done.put((None, exc))
    else:
        done.put((value, None))


def _send(requests: Sequence[Callable[[], Any]], came: Box) -> None:
    for index, request in enumerate(requests):
        try:
            request().rawlink(partial(_come, came, index))
        except BaseException as exc:
            came.put((index, exc))


def _come(came: Box, index: int, result: Any) -> None:
    came.put((index, result))
