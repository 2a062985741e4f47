"""A call of a method stands still, until a test lets it go on."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["stopped_at"]

STOPPED_S = 60.0


@contextlib.contextmanager
def stopped_at(
    owner: Any, name: str, *, after: bool = False, times: int = 1
) -> Iterator[tuple[threading.Event, threading.Event]]:
    """Let the n-th call of a method stand still, before it or after it; what says that it does,
    and what lets it go on.
    """
    method: Callable[..., Any] = getattr(owner, name)
    reached, go_on = threading.Event(), threading.Event()
    calls = iter(range(1, 1_000))

    def stop() -> None:
        reached.set()
        assert go_on.wait(STOPPED_S)

    def gated(*given: Any, **named: Any) -> Any:
        is_it = next(calls) == times
        if is_it and not after:
            stop()
        result = method(*given, **named)
        if is_it and after:
            stop()
        return result

    setattr(owner, name, gated)
    try:
        yield reached, go_on
    finally:
        go_on.set()
        delattr(owner, name)
