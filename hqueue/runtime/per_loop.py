"""What each event loop that uses an object has of its own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Generic, TypeVar

from hqueue.runtime.fork import register

__all__ = ["PerLoop"]

Item = TypeVar("Item")


class PerLoop(Generic[Item]):
    """An item for each event loop, such as its connections, until that loop is closed. A forked
    child has none of its parent's.

    Args:
        make: makes the item of the running loop.
        close: closes an item, in its loop or while its loop does not run.
        abandon: drops an item whose loop is closed, does not run, or is the parent process's.
    """

    def __init__(
        self,
        make: Callable[[], Item],
        close: Callable[[Item], object],
        abandon: Callable[[Item], object],
    ) -> None:
        self._make = make
        self._close = close
        self._abandon = abandon
        self._items: dict[asyncio.AbstractEventLoop, Item] = {}
        register(self)

    def after_fork_in_child(self) -> None:
        items, self._items = self._items, {}
        for item in items.values():
            self._abandon(item)

    @property
    def items(self) -> dict[asyncio.AbstractEventLoop, Item]:
        """All items now, by their loops. From any thread."""
        return {**self._items}

    def here(self) -> Item:
        """The running loop's item."""
        loop = asyncio.get_running_loop()
        here = self._items.get(loop)
        if here is None:
            self.prune()
            here = self._items[loop] = self._make()
        return here

    def prune(self) -> None:
        """Drop the items of loops that were closed."""
        for loop in [each for each in [*self._items] if each.is_closed()]:
            item = self._items.pop(loop, None)
            if item is not None:
                self._abandon(item)

    def close(self) -> None:
        """Close all items. Called by any thread: an item whose loop another thread runs is closed
        there, soon. Never raises.
        """
        for loop, item in self.items.items():
            if loop.is_running() and loop is not _running_loop():
                with contextlib.suppress(RuntimeError):  # The loop closes just now.
                    loop.call_soon_threadsafe(self._close, item)
                    continue
            elif not loop.is_closed():
                self._close(item)
            if not loop.is_running():
                self._abandon(item)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
