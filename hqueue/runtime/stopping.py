"""Signals that stop a program cleanly."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator

from hqueue.runtime.threads import try_start

__all__ = ["stopping"]


@contextlib.contextmanager
def stopping(stop: Callable[[], object]) -> Iterator[None]:
    """Let SIGTERM and Ctrl-C stop a program cleanly. A second Ctrl-C ends it at once.

    Args:
        stop: lets the program's wait end; called by another thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: set[int] = set()

    def on_signal(number: int, _frame: object) -> None:
        came.add(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        # In a thread: this one may have what that needs locked. Without one it ends at once.
        if try_start(stop, name="hqueue-stop") is None:
            raise KeyboardInterrupt

    before = {each: signal.signal(each, on_signal) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if signal.SIGINT in came:
        raise KeyboardInterrupt
