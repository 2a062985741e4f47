"""A few threads that work for many callers."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, ParamSpec, TypeVar

from hqueue.errors import BufferFullError, ClosedError, HQueueError
from hqueue.runtime.foreign import call_foreign
from hqueue.runtime.fork import register
from hqueue.runtime.threads import start
from hqueue.runtime.waiting import Condition, InterruptibleFuture

__all__ = ["ThreadPool"]

IDLE_S = 2.0
"""How long a thread waits for more work before it ends."""

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class _Work:
    """A call, and the future of its result."""

    __slots__ = ("_call", "future")

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self.future: InterruptibleFuture[Any] = InterruptibleFuture()

    def run(self, discard: Callable[[InterruptibleFuture[Any]], None]) -> None:
        future = self.future
        if not future.set_running_or_notify_cancel():
            discard(future)
            return
        try:
            result = self._call()
        except BaseException as exc:  # Whatever it is, its caller must learn it.
            discard(future)
            future.set_exception(exc)
        else:
            discard(future)
            future.set_result(result)


class ThreadPool(Executor):
    """Does work in a bounded number of threads, each call by a future. Thread-safe.

    `concurrent.futures.ThreadPoolExecutor` puts work into its queue and then starts a thread: where
    the system refuses that thread, `submit` raises, and another thread may still do the work later.
    Here a thread is started first. Work that is refused is never done; work that finds no further
    thread is left to those that run. Whatever the work, or a callback of its future, raises, the
    thread goes on.

    Threads are daemons, and end when there was no work for a moment, but for those that are kept:
    no new ones can be started when a process ends. In a forked child the pool is empty, and the
    parent's futures never end there.

    Args:
        threads_max: calls that are under way at a time.
        name: what the threads are called.
        unfinished_max: calls that wait or are under way; None for any number.
        wait_s: how long `submit` waits for room among them.
        kept: this many threads stay.
        idle_s: how long another one waits for more work before it ends.
    """

    def __init__(
        self,
        threads_max: int,
        name: str,
        *,
        unfinished_max: int | None = None,
        wait_s: float = 0.0,
        kept: int = 0,
        idle_s: float = IDLE_S,
    ) -> None:
        self._threads_max = threads_max
        self._name = name
        self._unfinished_max = unfinished_max
        self._wait_s = wait_s
        self._kept = kept
        self._idle_s = idle_s
        self._closed = False
        self.after_fork_in_child()
        register(self)

    def after_fork_in_child(self) -> None:
        self._lock = threading.RLock()
        self._changed = Condition(self._lock)
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._unfinished: set[InterruptibleFuture[Any]] = set()
        self._threads: set[int] = set()
        """Each enters itself: an interrupted `submit` leaves no thread that is counted wrongly."""
        self._starting: set[threading.Thread] = set()
        """Threads that have not got so far."""
        if self._closed:
            self._work.put(None)

    @property
    def threads(self) -> int:
        """How many threads there are."""
        return len(self._threads)

    @property
    def unfinished(self) -> int:
        """How many calls wait or are under way."""
        return len(self._unfinished)

    def submit(
        self,
        work: Callable[Parameters, Result],
        /,
        *arguments: Parameters.args,
        **named: Parameters.kwargs,
    ) -> Future[Result]:
        """Have a call made by one of the threads.

        Raises:
            ClosedError: the pool is closed, or the program is ending. Nothing was begun.
            BufferFullError: too many calls wait. Nothing was begun.
            HQueueError: no thread runs, and the system starts none. Nothing was begun.
        """
        item = _Work(lambda: work(*arguments, **named))
        with self._lock:
            if not self._changed.wait_for(self._has_room, self._wait_s):
                raise BufferFullError(
                    "too many requests are waiting: send fewer at a time",
                    waiting=self._unfinished_max,
                )
            if self._closed:
                raise ClosedError("the thread pool takes no more work: its owner was closed")
            threads = len(self._threads) + len(self._starting)
            if len(self._unfinished) >= threads < self._threads_max:
                self._start()
            try:
                self._unfinished.add(item.future)
                self._work.put(item)
            except BaseException:
                self._unfinished.discard(item.future)
                raise
        return item.future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more work; what was taken is done, unless it is cancelled.

        Args:
            wait: whether to return only when it is done.
            cancel_futures: cancel what has not begun.
        """
        with self._lock:
            self._closed = True
            unfinished = list(self._unfinished)
            self._work.put(None)
            self._changed.notify_all()
        if cancel_futures:
            for future in unfinished:
                future.cancel()
        if wait:
            _await(unfinished)

    def _has_room(self) -> bool:
        most = self._unfinished_max
        return self._closed or most is None or len(self._unfinished) < most

    def _start(self) -> None:
        try:
            # It begins when the lock is free.
            self._starting.add(start(self._run, name=self._name))
        except HQueueError:
            if not (self._threads or self._starting):
                raise

    def _run(self) -> None:
        if not self._enter():
            return
        while True:
            item = self._next()
            if item is not None:
                call_foreign("a callback of work in a thread", item.run, self._discard)
            elif self._leave():
                return
            del item  # What it refers to is not kept while the thread is idle.

    def _next(self) -> _Work | None:
        try:
            return self._work.get(timeout=self._idle_s)
        except queue.Empty:
            return None

    def _enter(self) -> bool:
        with self._lock:
            self._starting.discard(threading.current_thread())
            if len(self._threads) >= self._threads_max:
                return False
            self._threads.add(threading.get_ident())
        return True

    def _leave(self) -> bool:
        """End, if there is nothing to do. Returns whether that is so."""
        with self._lock:
            if self._closed:
                self._work.put(None)  # For the next one. All work came before the first.
            elif not self._work.empty() or len(self._threads) <= self._kept:
                return False
            self._threads.discard(threading.get_ident())
        return True

    def _discard(self, future: InterruptibleFuture[Any]) -> None:
        with self._lock:
            self._unfinished.discard(future)
            self._changed.notify_all()


def _await(unfinished: list[InterruptibleFuture[Any]]) -> None:
    for future in unfinished:
        future.wait()
