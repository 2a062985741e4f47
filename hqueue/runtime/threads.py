"""Starting threads of the library, also where no more of them can be started.

Python 3.12 refuses new threads as soon as the main thread has ended: in handlers of `atexit`, and
in threads that outlive the main thread. So what may run there must not depend on a new thread. The
system refuses them while the process, its user or its container has as many as it may, which may
pass. So a thread is started before anything is changed that relies on it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from hqueue.errors import ClosedError, HQueueError
from hqueue.runtime.interrupts import is_interruption

__all__ = ["REFUSAL", "refused", "start", "start_timer", "try_start"]

REFUSAL = "interpreter shutdown"
"""What the error says by which the interpreter refuses a thread, or an executor a task, at its end.
Any other `RuntimeError` means that the system has no thread left."""


def try_start(target: Callable[..., object], *args: object, name: str) -> threading.Thread | None:
    """Start a daemon thread; None if none can be started, now or ever: the caller does the work
    itself, or does without.
    """
    thread = threading.Thread(target=target, args=args, name=name, daemon=True)
    return thread if _refusal(thread) is None else None


def refused(error: RuntimeError, name: str) -> HQueueError:
    """What to raise where a thread was needed, and could not be started."""
    if REFUSAL in str(error):
        return ClosedError("the program is ending: it is too late to start a thread", thread=name)
    return HQueueError(
        "the system starts no more threads for this process; try again when others have ended, or "
        "let it have more",
        thread=name,
    )


def _refusal(thread: threading.Thread) -> RuntimeError | None:
    try:
        thread.start()
    except RuntimeError as exc:
        if is_interruption(exc):
            raise
        return exc
    return None


def start(target: Callable[..., object], *args: object, name: str) -> threading.Thread:
    """Start a daemon thread for what can't be done without one.

    Raises:
        ClosedError: the interpreter is ending.
        HQueueError: the system starts no more threads for now.
    """
    thread = threading.Thread(target=target, args=args, name=name, daemon=True)
    refusal = _refusal(thread)
    if refusal is not None:
        raise refused(refusal, name) from refusal
    return thread


def start_timer(
    delay_ms: float, target: Callable[..., object], *args: object
) -> threading.Timer | None:
    """Call something later, in a daemon thread that can be cancelled; None if there is none."""
    timer = threading.Timer(delay_ms / 1e3, target, args)
    timer.daemon = True
    return timer if _refusal(timer) is None else None
