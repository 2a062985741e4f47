"""What must be finished before a process ends normally.

A process ends normally when its main thread returns, raises an error or exits by `sys.exit`, also
out of a handler of a signal. A process that is killed finishes nothing, nor does one that calls
`os._exit`.

The interpreter says so by `atexit`. Children of `multiprocessing` that were forked (the methods
``fork`` and ``forkserver``, and with them pools) end by `os._exit` and call no handler of `atexit`,
but the finalizers of `multiprocessing.util`. Both may come before other code of the program: in a
child, threads that are not daemons go on, and other handlers of `atexit` follow. So nothing is
closed here: an item finishes what it was given, and from then on each call finishes what it brings
before it returns.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from typing import Protocol

from hqueue.runtime.logs import Log

__all__ = ["EndAware", "Process", "discard", "register", "registered"]

logger = Log(__name__)


class EndAware(Protocol):
    def at_end(self) -> None:
        """Finish what was begun, in a bounded time, and finish at once what comes later. Called by
        any thread, perhaps more than once.
        """


class Process:
    """What one process must finish."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.items: weakref.WeakSet[EndAware] = weakref.WeakSet()
        self.ending = False
        self._hooked = False

    def register(self, item: EndAware) -> None:
        """Finish this item when the process ends, or now if it is ending."""
        self.items.add(item)
        self.hook()
        # What is registered with `atexit` by one of its handlers, as this module by a program that
        # uses the library first there, is never called.
        self.ending = self.ending or not threading.main_thread().is_alive()
        if self.ending:
            item.at_end()

    def discard(self, item: EndAware) -> None:
        """Nothing of this item must be finished any more."""
        self.items.discard(item)

    def hook(self) -> None:
        """Have `finish` called as a child of `multiprocessing`, if this is one. Elsewhere `atexit`
        comes, and later.
        """
        util = sys.modules.get("multiprocessing.util")  # Each child has it.
        if self._hooked or util is None:
            return
        self._hooked = True
        # The modules of a program are imported before a child begins, which forgets finalizers.
        util.register_after_fork(self, _finalize)
        _finalize(self)

    def finish(self) -> None:
        if os.getpid() != self.pid:
            return
        self.ending = True
        for item in list(self.items):
            try:
                item.at_end()
            except Exception:
                logger.exception("the process ended before its work in the background was finished")


def _finalize(_: Process) -> None:
    from multiprocessing.process import parent_process  # noqa: PLC0415  (it is there)
    from multiprocessing.util import Finalize  # noqa: PLC0415

    if parent_process() is not None:
        Finalize(None, _here().finish, exitpriority=0)


_process = Process()


def register(item: EndAware) -> None:
    """Call ``item.at_end()`` before this process ends, or now if it is ending, for as long as the
    item lives; not in a forked child.
    """
    _here().register(item)


def discard(item: EndAware) -> None:
    """Nothing of this item must be finished any more."""
    _here().discard(item)


def registered() -> list[EndAware]:
    """What this process must finish before it ends."""
    return [*_here().items]


def _here() -> Process:
    global _process  # noqa: PLW0603  (another one in a forked child)
    if _process.pid != os.getpid():
        _process = Process()
    return _process


atexit.register(lambda: _here().finish())
