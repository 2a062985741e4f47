"""Locks that are waited for no longer than a bound, and never left behind by an interruption.

A handler of a signal runs in the main thread, between any two steps of it, and may raise: Ctrl-C
does, and the time limits of Celery and RQ do. Then

    lock.acquire(timeout=…)
    try:                        ← raised just before this line, the lock stays held for ever

CPython runs handlers after a call of a function that is written in C, where a function written in
Python begins, and where a loop goes on; not between the `__enter__` of a lock and the block, nor
before its `__exit__`, for these are written in C. So ``with lock:`` is safe, and so is `Held`: what
leaves it is the lock's own `__exit__`.

But for loops: on CPython 3.13 the jump back of a loop whose turn ends by a condition is guarded by
nothing, though it stands in a block: the compiler gives it no place in the table of handlers.
Raised there, an error passes ``with`` and ``finally`` by. These loops, and comprehensions with an
``if``, are in functions of their own: the call of one is guarded.

    with lock:                               with lock:
        while waits():                           self._await()
            changed.wait()

`tests/unit/runtime/test_guarded_loops.py` looks for them.

The `__enter__` of a semaphore is written in Python: ``with semaphore:`` is as unsafe as `acquire`.
So are conditions, events and futures of the standard library; `hqueue.runtime.waiting` has others.
`tests/unit/runtime/test_locks.py` looks for them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["Held", "NotHeldError", "if_free"]

_AT_ONCE = (False,)
_WAIT = (True,)


class NotHeldError(Exception):
    """A lock was not free in time."""


def if_free(lock: threading.Lock | threading.RLock, work: Callable[[], object]) -> bool:
    """Do something with a lock held, if the lock is free now, or the caller's. Returns whether it
    was.
    """
    held: list[bool] = []
    try:
        held.extend(map(lock.acquire, _AT_ONCE))  # One step: it is taken, and noted.
        if held == [True]:
            work()
    finally:
        if held == [True]:
            lock.release()
    return held == [True]


class Held:
    """Holds a lock for a block of code, if it can be had in time.

    Args:
        lock: the lock. A semaphore will do in a thread that runs no handlers of signals.
        timeout_s: how long to wait for it.
        error: makes what is raised if it is not free in time.
    """

    __slots__ = ("__exit__", "_error", "_lock", "_timeout_s")

    def __init__(
        self,
        lock: threading.Lock | threading.RLock | threading.Semaphore,
        timeout_s: float,
        error: Callable[[], BaseException] = NotHeldError,
    ) -> None:
        self._lock = lock
        self._timeout_s = max(0.0, timeout_s)
        self._error = error
        # The `with` statement looks it up in the class, finds the slot, and calls what lies there.
        self.__exit__ = lock.__exit__

    def __enter__(self) -> None:
        held: list[bool] = []
        try:
            held.extend(map(self._lock.acquire, _WAIT, (self._timeout_s,)))
            if held != [True]:
                raise self._error()
        except BaseException:
            if held == [True]:
                self._lock.release()
            raise
