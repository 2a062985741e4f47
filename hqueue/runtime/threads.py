"""Starting threads of the library, also where no more of them can be started.

Python 3.12 refuses new threads as soon as the main thread has ended: in handlers of `atexit`, and
in threads that outlive the main thread. So what may run there must not depend on a new thread. The
system refuses them while the process, its user or its container has as many as allowed, which may
pass. So a thread is started before anything is changed that relies on it.

A handler of a signal that raises in the middle of `Thread.start` would leave a thread that ends by
an error of `threading`. Handlers run in the main thread, so another one starts threads for it.
"""

from __future__ import annotations

import _thread
import contextlib
import queue
import sys
import threading
from collections.abc import Callable

from hqueue.errors import ClosedError, HQueueError, Outcome
from hqueue.runtime.interrupts import is_interruption
from hqueue.runtime.logs import Log

__all__ = ["REFUSAL", "end", "refused", "start", "start_soon", "try_start"]

logger = Log(__name__)

REFUSAL = "interpreter shutdown"
"""What the error says by which the interpreter refuses a thread, or an executor a task, at its end.
Any other `RuntimeError` means that the system has no thread left."""

START_S = 60.0
"""How long the system may take to start a thread, before that counts as refused."""


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
        "raise the limit",
        outcome=Outcome.NOT_APPLIED,
        thread=name,
    )


def _refusal(thread: threading.Thread) -> RuntimeError | None:
    if threading.current_thread() is threading.main_thread():
        return _started_by_another(thread)
    return _started(thread)


def _started(thread: threading.Thread) -> RuntimeError | None:
    try:
        thread.start()
    except RuntimeError as exc:
        return exc
    return None


def _started_by_another(thread: threading.Thread) -> RuntimeError | None:
    """Have a thread started; why that was refused. An interrupted caller leaves it to begin."""
    if sys.is_finalizing():
        return RuntimeError(REFUSAL)
    done: queue.SimpleQueue[RuntimeError | None] = queue.SimpleQueue()
    try:
        _thread.start_new_thread(_start_for, (thread, done))  # One call of C.
        return done.get(timeout=START_S)
    except RuntimeError as exc:
        if is_interruption(exc):
            raise
        return exc
    except queue.Empty as exc:
        if is_interruption(exc):
            raise
        return RuntimeError("a thread did not start in time")


def _start_for(thread: threading.Thread, done: queue.SimpleQueue[RuntimeError | None]) -> None:
    done.put(_started(thread))


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


def start_soon(target: Callable[..., object], *args: object, name: str) -> None:
    """Have a daemon thread started, without waiting for it. The garbage collector may call this in
    the middle of anything: it takes no lock. Nothing happens where no thread can be started.
    """
    with contextlib.suppress(RuntimeError):
        _thread.start_new_thread(_start_one, (target, args, name))  # One call of C.


def _start_one(target: Callable[..., object], args: tuple[object, ...], name: str) -> None:
    _started(threading.Thread(target=target, args=args, name=name, daemon=True))


def end(thread: threading.Thread, bound_s: float) -> bool:
    """Wait until a thread of the library has ended, as it was asked to. Returns whether it has.

    Returns at once in that thread itself. One that does not end in time is left to end by itself.
    """
    if thread is threading.current_thread():
        return False
    thread.join(bound_s)
    if thread.is_alive():
        logger.warning("thread %s did not end in %g s, and is still running", thread.name, bound_s)
    return not thread.is_alive()
