"""Objects that a program forgets without closing them.

They let go of threads, connections and sessions when they are collected, and a `ResourceWarning`
says so. That takes two things of an object. No thread of its own, and nothing that lives as long as
the program, may refer to what the program holds: so what works in the background is another object,
which is released (`Watched`). And the garbage collector may run in the middle of anything, in any
thread that may hold any lock: so the release itself is left to a thread of this module, which is
there for as long as something must be released.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import ParamSpec

from hqueue.runtime import ending
from hqueue.runtime.fork import register
from hqueue.runtime.held import if_free
from hqueue.runtime.logs import Log
from hqueue.runtime.threads import start_soon

__all__ = ["Watched", "release_later", "weakly"]

logger = Log(__name__)

Parameters = ParamSpec("Parameters")

Release = Callable[[], object]


class Watched:
    """An object that is watched until it is closed properly.

    Args:
        item: the object.
        what: what it is, for the warning: ``a producer``.
        release: lets go of all that it has; must not refer to the object. Bounded in time.
        needed: whether there is something to let go of. Takes no lock.
    """

    def __init__(
        self,
        item: object,
        what: str,
        release: Release,
        needed: Callable[[], bool] = lambda: True,
    ) -> None:
        self._finalizer = weakref.finalize(item, _on_forgotten, os.getpid(), what, release, needed)
        self._finalizer.atexit = False
        _releases.begin()

    def closed(self) -> None:
        """It was closed, or is being closed: nothing is left to do when it is collected."""
        self._finalizer.detach()


def release_later(release: Release) -> None:
    """Have a thread let go of something that was left where nobody can wait, as by an event loop
    that has ended. It is bounded in time. Called by the collector, too: takes no lock.
    """
    if not sys.is_finalizing():
        _releases.put(release)


def weakly(method: Callable[Parameters, object]) -> Callable[Parameters, None]:
    """A bound method, for what must not keep its object. It does nothing when that is gone."""
    bound = weakref.WeakMethod(method)

    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        called = bound()
        if called is not None:
            called(*args, **kwargs)

    return call


class _Releases:
    """Releases what was forgotten, one after the other, in a thread; at the end of the process what
    no thread could be started for.
    """

    def __init__(self) -> None:
        self.after_fork_in_child()
        register(self)

    def after_fork_in_child(self) -> None:
        self._waiting: queue.SimpleQueue[Release] = queue.SimpleQueue()
        self._lock = threading.RLock()
        """Held by the thread that releases."""
        self._begun = False

    def begin(self) -> None:
        """There is something that may be forgotten."""
        if not self._begun:
            ending.register(self)
            self._begun = True

    def put(self, release: Release) -> None:
        """Called by the collector, perhaps in the middle of anything: this takes no lock."""
        self._waiting.put(release)
        start_soon(self._run, name="hqueue-release")

    def at_end(self) -> None:
        """Release what waits: perhaps there is nothing else that does."""
        while self._release_one():
            pass

    def _run(self) -> None:
        while not self._waiting.empty() and if_free(self._lock, self._release_one):
            pass

    def _release_one(self) -> bool:
        """Release the object that waits longest. Returns whether any waited."""
        try:
            release = self._waiting.get_nowait()
        except queue.Empty:
            return False
        _call(release)
        return True


_releases = _Releases()


def _call(release: Release) -> None:
    try:
        release()
    except BaseException:
        logger.warning("an object that was never closed could not be released", exc_info=True)


def _on_forgotten(pid: int, what: str, release: Release, needed: Callable[[], bool]) -> None:
    if os.getpid() != pid or sys.is_finalizing() or not needed():
        return
    _releases.put(release)
    warnings.warn(f"{what} was never closed", ResourceWarning, stacklevel=2)
