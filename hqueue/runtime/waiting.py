"""Conditions, events and futures that a handler of a signal may interrupt anywhere.

Those of `threading` and of `concurrent.futures` are written in Python, so a handler that raises may
end them between any two steps. Behind the step that takes their lock it stays taken for ever: the
next `set` of an event, or a thread that has a result, waits for it. Behind the step that releases
it for a wait, the block around finds it released, and raises a `RuntimeError` instead of what the
handler raised. Here each of these steps is noted by the call that does it.

And the collector calls a `__del__` of the program in any thread, so in one of ours, too, which it
must not keep waiting for what that thread itself does when it returns (`carrying`).
"""

from __future__ import annotations

import _thread
import concurrent.futures
import contextlib
import threading
import time
from collections.abc import Iterable, Iterator
from itertools import starmap
from typing import Any, TypeVar

from hqueue.errors import InvalidInputError
from hqueue.runtime.fork import register

__all__ = [
    "Condition",
    "Event",
    "InterruptibleFuture",
    "carries_others",
    "carrying",
    "check_may_wait",
    "wait_for_all",
]

Result = TypeVar("Result")

_ONCE = ((),)
"""The arguments of one call without any, for ``done.extend(starmap(call, _ONCE))``: that calls and
notes that it did in one step."""


class _Here(threading.local):
    carries = False

    def after_fork_in_child(self) -> None:
        self.carries = False


_here = _Here()
register(_here)


@contextlib.contextmanager
def carrying() -> Iterator[None]:
    """Work that others wait for is carried by this thread meanwhile: in it nobody waits for such
    work, for it would never be done.
    """
    carries, _here.carries = _here.carries, True
    try:
        yield
    finally:
        _here.carries = carries


def carries_others() -> bool:
    """Whether the caller's thread is `carrying`: then a `__del__` has called."""
    return _here.carries


def check_may_wait() -> None:
    """See that the caller may wait for work that threads of the library do.

    Raises:
        InvalidInputError: the caller is a `__del__` in a thread that is `carrying`.
    """
    if _here.carries:
        raise InvalidInputError(
            "a __del__ that runs in a thread of the library can't wait for that thread's work: "
            "call this in a thread of the program"
        )


class Condition(threading.Condition):
    """A condition of an `RLock`. ``with condition:`` is as safe as ``with lock:``.

    Args:
        lock: its lock; one of its own if None.
        carried: whether it comes of what threads do that are `carrying`. They don't wait for it:
            `wait` and `wait_for` raise `InvalidInputError` there.
    """

    __slots__ = ("__enter__", "__exit__")

    def __init__(self, lock: threading.RLock | None = None, *, carried: bool = False) -> None:
        lock = threading.RLock() if lock is None else lock
        super().__init__(lock)
        self._carried = carried
        # The `with` statement looks them up in the class, finds the slots, and calls what lies
        # there, which is written in C.
        self.__enter__ = lock.__enter__  # type: ignore[method-assign]
        self.__exit__ = lock.__exit__  # type: ignore[method-assign]

    def is_held(self) -> bool:
        """Whether the caller's thread holds the lock. In a signal's handler that is the interrupted
        thread.
        """
        held: bool = self._is_owned()  # type: ignore[attr-defined]
        return held

    def wait(self, timeout: float | None = None) -> bool:
        """Like `threading.Condition.wait`; what a handler raises passes through, with the lock held
        as before.
        """
        if not self.is_held():
            raise RuntimeError("hold the condition's lock when you wait for it")
        if self._carried and (timeout is None or timeout > 0):
            check_may_wait()
        waiter = _thread.allocate_lock()
        waiter.acquire()
        saved: list[Any] = []
        notified = False
        try:
            self._waiters.append(waiter)  # type: ignore[attr-defined]
            saved.extend(starmap(self._release_save, _ONCE))  # type: ignore[attr-defined]
            notified = waiter.acquire(timeout=-1 if timeout is None else max(0.0, timeout))
        finally:
            if saved:
                self._acquire_restore(saved[0])  # type: ignore[attr-defined]
            if not notified:
                self._drop(waiter)
        return notified

    def _drop(self, waiter: _thread.LockType) -> None:
        try:
            self._waiters.remove(waiter)  # type: ignore[attr-defined]
        except ValueError:  # It was notified a moment too late.
            pass


class Event:
    """A flag that threads wait for. As `threading.Event`.

    Args:
        carried: as for `Condition`; `wait` does not wait there.
    """

    def __init__(self, *, carried: bool = False) -> None:
        self._carried = carried
        self._changed = Condition(carried=carried)
        self._is_set = False

    def is_set(self) -> bool:
        """Whether it is set."""
        return self._is_set

    def set(self) -> None:
        """Set it, and wake all that wait for it."""
        with self._changed:
            self._is_set = True
            self._changed.notify_all()

    def clear(self) -> None:
        """Have those that come wait again."""
        self._is_set = False

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it is set, no longer than this many seconds. Returns whether it is set."""
        if self._carried and _here.carries:
            return self._is_set
        with self._changed:
            return self._changed.wait_for(self.is_set, timeout_s)


class InterruptibleFuture(concurrent.futures.Future[Result]):
    """A future. As `concurrent.futures.Future`.

    Args:
        carried: as for `Condition`; `wait` does not wait there, and `result` and `exception` raise
            `InvalidInputError` while it is not done.
    """

    def __init__(self, *, carried: bool = False) -> None:
        super().__init__()
        self._carried = carried
        self._condition = Condition(carried=carried)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it is done, no longer than this many seconds. Returns whether it is done. As
        `concurrent.futures.wait`, which leaves its lock taken where it is interrupted.
        """
        if self._carried and _here.carries:
            return self.done()
        with self._condition:
            return self._condition.wait_for(self.done, timeout_s)


def wait_for_all(futures: Iterable[InterruptibleFuture[Any]], timeout_s: float) -> None:
    """Wait until all are done, no longer than this many seconds together. As
    `concurrent.futures.wait`, which leaves their locks taken where it is interrupted: then the
    thread that has a result for one waits for ever.
    """
    ends_s = time.monotonic() + timeout_s
    for future in futures:
        future.wait(max(0.0, ends_s - time.monotonic()))
