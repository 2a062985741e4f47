"""What becomes of memory that was freed."""

from __future__ import annotations

from hqueue.settings.limits import BATCH_BYTES_MAX

__all__ = ["keep_freed"]


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
