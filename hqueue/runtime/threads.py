"""Starting threads of the library, also when the interpreter is ending and starts no more of them.

Python 3.12 refuses new threads as soon as the main thread has ended: in handlers of `atexit`, and
in threads that outlive the main thread. So what may run there must not depend on a new thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from hqueue.errors import ClosedError

__all__ = ["REFUSAL", "start", "start_timer", "try_start"]

REFUSAL = "interpreter shutdown"
"""What the error says by which the interpreter refuses a thread, or an executor a task, at its end.
Any other `RuntimeError` means that the system has no thread left."""


_Thread = TypeVar("_Thread", bound=threading.Thread)


def try_start(target: Callable[..., object], *args: object, name: str) -> threading.Thread | None:
    """Start a daemon thread; None if the interpreter is ending: the caller does the work itself, or
    does without.

    Raises:
        RuntimeError: the system has no thread left.
    """
    return _started(threading.Thread(target=target, args=args, name=name, daemon=True))


def _started(thread: _Thread) -> _Thread | None:
    try:
        thread.start()
    except RuntimeError as exc:
        if REFUSAL not in str(exc):
            raise
        return None
    return thread


def start(target: Callable[..., object], *args: object, name: str) -> threading.Thread:
    """As `try_start`, for what can't be done without a thread.

    Raises:
        ClosedError: the interpreter is ending.
    """
    thread = try_start(target, *args, name=name)
    if thread is None:
        raise ClosedError("the program is ending: it is too late to start a thread", thread=name)
    return thread


def start_timer(
    delay_ms: float, target: Callable[..., object], *args: object
) -> threading.Timer | None:
    """Call something later, in a daemon thread that can be cancelled; None if the interpreter is
    ending: there is no later.

    Raises:
        RuntimeError: the system has no thread left.
    """
    timer = threading.Timer(delay_ms / 1e3, target, args)
    timer.daemon = True
    return _started(timer)
