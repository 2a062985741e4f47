"""The system, or the interpreter at its end, starts no more threads."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from unittest import mock

from hqueue.runtime import loop
from hqueue.runtime.threads import REFUSAL

__all__ = ["loop_not_begun", "threads_refused"]


@contextlib.contextmanager
def threads_refused(
    *, at_end: bool = False, is_refused: Callable[[threading.Thread], bool] = lambda thread: True
) -> Iterator[None]:
    """Let no thread start within the block.

    Args:
        at_end: whether the interpreter refuses it, as when the main thread has ended (Python 3.12),
            or else the system, which has no thread left.
        is_refused: whether this one is; it is asked each time.
    """
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if is_refused(thread):
            at = f"can't create new thread at {REFUSAL}" if at_end else "can't start new thread"
            raise RuntimeError(at)
        start(thread)

    with mock.patch.object(threading.Thread, "start", refuse):
        yield


@contextlib.contextmanager
def loop_not_begun() -> Iterator[loop.ProcessLoop]:
    """Within the block the process is one that had no loop thread before."""
    process = loop.ProcessLoop()
    with mock.patch.object(loop, "_process", process):
        yield process
