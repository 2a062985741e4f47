"""What a consumer's program is called with when partitions come and go."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from hqueue.metadata import PartitionKey
from hqueue.runtime.steps import Wait, Work
from hqueue.settings.kinds import check_callback

__all__ = ["Callbacks", "OnPartitions", "OnPartitionsInLoop"]

OnPartitions = Callable[[list[PartitionKey]], None]
"""Called with partitions that a consumer got, or has no more."""

OnPartitionsInLoop = Callable[[list[PartitionKey]], Awaitable[None] | None]
"""The same in an event loop: a function, or a coroutine function."""


class Callbacks:
    """Who is called when partitions come and go; see `hqueue.Consumer.subscribe`. Nobody is called
    for none of them.

    Args:
        assigned, revoked, lost: the functions.
        in_loop: whether an event loop calls them: what they return is awaited, if it can be.

    Raises:
        InvalidInputError: one of them is not a plain function, nor, in an event loop, a coroutine
            function.
    """

    def __init__(
        self,
        assigned: OnPartitionsInLoop | None = None,
        revoked: OnPartitionsInLoop | None = None,
        lost: OnPartitionsInLoop | None = None,
        *,
        in_loop: bool = False,
    ) -> None:
        for callback, option in (
            (assigned, "on_assigned"), (revoked, "on_revoked"), (lost, "on_lost"),
        ):  # fmt: skip
            check_callback(callback, option, awaited=in_loop)
        self._assigned = assigned
        self._revoked = revoked
        self._lost = lost or revoked
        self._in_loop = in_loop
        self._calling: threading.Thread | None = None

    @property
    def are_called_here(self) -> bool:
        """Whether the caller is called by one of them; in an event loop whether one goes on."""
        return self._calling is not None and self._calling is threading.current_thread()

    def assigned(self, keys: Iterable[PartitionKey]) -> Work[Any, None]:
        """It got these."""
        return self._call(self._assigned, keys)

    def revoked(self, keys: Iterable[PartitionKey]) -> Work[Any, None]:
        """It gives these up, and has them still."""
        return self._call(self._revoked, keys)

    def lost(self, keys: Iterable[PartitionKey]) -> Work[Any, None]:
        """Others may have these already."""
        return self._call(self._lost, keys)

    def _call(
        self, callback: OnPartitionsInLoop | None, keys: Iterable[PartitionKey]
    ) -> Work[Any, None]:
        called = sorted(keys)
        if callback is None or not called:
            return
        try:
            self._calling = threading.current_thread()
            awaited: Any = callback(called)
            if self._in_loop and inspect.isawaitable(awaited):
                yield Wait(lambda: None, lambda: awaited)
        finally:
            self._calling = None
