"""How long a thread has Python's lock while others wait for it."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

from hqueue.runtime.fork import register

__all__ = ["short_turns"]

TURN_S = 0.0002


class _Turns:
    """How long turns are now."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._users = 0
        self._usual_s = 0.0
        self._short_s = 0.0
        register(self)

    def after_fork_in_child(self) -> None:
        self._lock = threading.RLock()
        if self._users:
            self._lengthen()
        self._users = 0  # They are the parent's.

    def begin(self) -> None:
        with self._lock:
            self._users += 1  # Before anything else: a handler of a signal may use it, too.
            if self._users == 1:
                self._usual_s = sys.getswitchinterval()
                _set(min(self._usual_s, TURN_S))
                self._short_s = sys.getswitchinterval()

    def end(self) -> None:
        with self._lock:
            if not self._users:
                return
            if self._users == 1:
                self._lengthen()
            self._users -= 1

    def _lengthen(self) -> None:
        if sys.getswitchinterval() == self._short_s:  # Else the process has set it meanwhile.
            _set(self._usual_s)


def _set(turn_s: float) -> None:
    sys.setswitchinterval(turn_s + 5e-7)  # It is cut to microseconds, and would shrink.


_turns = _Turns()


@contextlib.contextmanager
def short_turns() -> Iterator[None]:
    """Work for long without keeping others: threads take turns five times a millisecond meanwhile.

    A thread that has waited for a socket asks for Python's lock when it goes on, and gets it from
    one that computes after Python's switch interval, which is 5 ms. A small call asks several
    times: so it took tens of milliseconds while a large one was read. To be used for a bounded
    moment, for the interval is the whole process's. Threads may use it together; an interval that
    the process sets meanwhile stays.
    """
    _turns.begin()
    try:
        yield
    finally:
        _turns.end()
