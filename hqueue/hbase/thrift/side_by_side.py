"""Requests side by side: a gateway's connection does one at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from hqueue.errors import ClosedError, HQueueError
from hqueue.runtime.fork import register
from hqueue.runtime.thread_pool import ThreadPool
from hqueue.runtime.waiting import Condition

__all__ = ["THREADS", "SideBySide"]

THREADS = 8
"""Requests that are under way at once for all callers together."""

ALONE_MAX = 2
"""So few are made by the caller's thread: a further one would cost more."""

Input = TypeVar("Input")
Result = TypeVar("Result")


class SideBySide:
    """Makes requests in threads of its own. Thread-safe, and usable in a forked child."""

    def __init__(self) -> None:
        self._closed = False
        self.after_fork_in_child()
        register(self)

    def after_fork_in_child(self) -> None:
        self._lock = threading.RLock()
        self._pool: ThreadPool | None = None

    def close(self) -> None:
        """Begin no more threads. Never raises."""
        with self._lock:
            self._closed = True
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False)

    def each(
        self, inputs: Sequence[Input], work: Callable[[Input], Result], alone_max: int = ALONE_MAX
    ) -> list[Result]:
        """Do something for each, several at a time, and return what came of each.

        Raises:
            ClosedError: this was closed.
            Exception: the first that one raised. After it no further one is begun; those under
                way have ended, unless a handler of a signal raised it here.
        """
        results: dict[int, Result] = {}
        errors: list[BaseException] = []
        numbered = iter(enumerate(inputs))
        lock = threading.RLock()
        changed = Condition(lock)
        begun = ended = 0

        def run() -> None:
            nonlocal begun, ended
            while True:
                with lock:
                    number, item = next(numbered, (-1, None)) if not errors else (-1, None)
                    if item is None:
                        return
                    begun += 1
                try:
                    results[number] = work(item)
                except BaseException as exc:
                    errors.append(exc)
                finally:
                    with lock:
                        ended += 1
                        changed.notify_all()

        try:
            if len(inputs) <= alone_max or not self._submit(run, min(THREADS, len(inputs))):
                run()
            with lock:
                changed.wait_for(lambda: ended == begun and (errors or begun == len(inputs)))
        except BaseException as exc:
            errors.append(exc)
            raise
        if errors:
            raise errors[0]
        return [results[number] for number in range(len(inputs))]

    def _submit(self, run: Callable[[], None], threads: int) -> bool:
        """Let this many threads do it; false if not all can be started, and perhaps none does."""
        pool = self._threads()
        try:
            for _ in range(threads):
                pool.submit(run)
        except HQueueError:
            return False
        return True

    def _threads(self) -> ThreadPool:
        with self._lock:
            if self._closed:
                raise ClosedError("the client is closed")
            if self._pool is None:
                self._pool = ThreadPool(THREADS, "hqueue-records")
            return self._pool
