"""The batches that readers skip, in an event loop."""

from __future__ import annotations

from hqueue.consume.skipped_batches import Skipping

__all__ = ["SkippedBatches"]


class SkippedBatches:
    """The unreadable batches of a queue that readers skip, because an operator added them. Like
    `hqueue.SkippedBatches`. Made by `Queue.skipped_batches`.

    A caller of `add` or `remove` that is cancelled does not learn the outcome. The call can be
    repeated.

    Args:
        skipping: lists and changes them.
    """

    def __init__(self, skipping: Skipping) -> None:
        self._skipping = skipping

    async def rows(self) -> list[str]:
        """The rows of these batches. Like `hqueue.SkippedBatches.rows`."""
        return await self._skipping.rows.in_loop()

    async def add(self, row: str) -> int:
        """Make readers skip a batch that can't be read, and return how many messages it has. Like
        `hqueue.SkippedBatches.add`.
        """
        return await self._skipping.add.in_loop(row)

    async def remove(self, row: str) -> bool:
        """Make readers stop at a batch again, and return whether they skipped it before. Like
        `hqueue.SkippedBatches.remove`.
        """
        return await self._skipping.remove.in_loop(row)
