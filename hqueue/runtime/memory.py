"""What becomes of memory that was freed, and when it is looked for."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

from hqueue.settings.limits import BATCH_BYTES_MAX

__all__ = ["keep_freed", "without_collection"]


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


class _Collection:
    """Whether Python looks for cycles now."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pauses = 0
        self._was_on = False

    def pause(self) -> None:
        with self._lock:
            if not self._pauses:
                self._was_on = gc.isenabled()
                gc.disable()
            self._pauses += 1

    def go_on(self) -> None:
        with self._lock:
            self._pauses -= 1
            if not self._pauses and self._was_on:
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
