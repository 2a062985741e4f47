"""What becomes of memory that was freed, and when it is looked for."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

from hqueue.runtime.fork import register
from hqueue.settings.limits import BATCH_BYTES_MAX

__all__ = ["bound_arenas", "give_back_freed", "keep_freed", "uncollected", "without_collection"]

Result = TypeVar("Result")

ARENAS_MAX = 2
_M_ARENA_MAX = -8


def keep_freed() -> None:
    """Let this process keep up to 16 MiB of freed memory an arena, instead of giving it back.

    Batches are large values that live for a moment. glibc gives memory of that size back to the
    system when it is freed, which then hands it out again page by page, and cleared: for a batch of
    a megabyte that takes longer than all else that is done with it here. glibc learns what is
    large from what is freed, up to 32 MiB; from one value as large as a batch can be it learns at
    once. Threads that allocate at the same time have arenas of their own. Where ``MALLOC_``
    variables say what to do, that holds. Elsewhere it does nothing.
    """
    bytes(BATCH_BYTES_MAX)


def bound_arenas() -> None:
    """Let all threads of this process share a few of glibc's arenas. For programs of their own, at
    the start: a library leaves its process as it is.

    A thread has an arena of its own otherwise, up to eight for each core, and what it has freed
    there is for no other: sixteen threads that read large calls in turn hold memory as if all did
    at once. Where ``MALLOC_ARENA_MAX`` or ``GLIBC_TUNABLES`` say how many there are, that holds.
    Elsewhere than with glibc it does nothing.
    """
    if "MALLOC_ARENA_MAX" not in os.environ and "GLIBC_TUNABLES" not in os.environ:
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, ARENAS_MAX)


def give_back_freed() -> None:
    """Give freed memory back to the system, in whole pages, wherever they lie: by itself glibc does
    so only at the end of an arena. It takes some milliseconds, in which other threads run.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _count_as_old() -> None:
    """Have Python look through all objects that there are only where it looks through all it has.

    What was made while it did not look counts as young, and it would look through that twice, a
    tenth of a second later at the latest: 90 ms for a call of 300,000 structs, while no other
    thread runs. To freeze objects and to unfreeze them joins two lists. A process that has frozen
    objects for itself wants them to stay so.
    """
    if not gc.get_freeze_count():
        gc.freeze()
        gc.unfreeze()


class _Collection:
    """Whether Python looks for cycles now."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._pauses = 0
        self._was_on = False
        register(self)

    def after_fork_in_child(self) -> None:
        self._lock = threading.RLock()
        if self._pauses and self._was_on:
            gc.enable()
        self._pauses = 0  # The threads that paused it are the parent's.

    def pause(self) -> None:
        with self._lock:
            if not self._pauses:
                self._was_on = gc.isenabled()
            self._pauses += 1  # Before anything else: a handler of a signal may pause it, too.
            gc.disable()

    def go_on(self) -> None:
        with self._lock:
            if not self._pauses:
                return
            self._pauses -= 1
            if not self._pauses and self._was_on:
                _count_as_old()
                gc.enable()


_collection = _Collection()


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """Make many objects, none of which is garbage, without Python's looking for cycles among them.

    It would look again and again, at all that the process has, while no other thread runs: for a
    call of 300,000 structs that takes longer than reading it, and others wait for a third of a
    second at once. To be used for a bounded moment, for meanwhile no cycle is found at all. Threads
    may use it together; a process that has turned collection off itself keeps it off.
    """
    _collection.pause()
    try:
        yield
    finally:
        _collection.go_on()


def uncollected(function: Callable[[], Result]) -> Callable[[], Result]:
    """The same function, which makes many objects, as `without_collection` lets it."""

    def call() -> Result:
        with without_collection():
            return function()

    return call
