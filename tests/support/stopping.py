"""A call of a method stands still, or is made later, until a test lets it go on."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

__all__ = ["made_later", "stopped_at"]

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


@contextlib.contextmanager
def made_later(owner: Any, name: str) -> Iterator[tuple[threading.Event, threading.Event]]:
    """Let a method that returns a future be called later, by a thread of its own; its caller, which
    may be an event loop, goes on at once. What says that it was called, and what lets it be made.
    """
    method: Callable[..., Future[Any]] = getattr(owner, name)
    reached, go_on = threading.Event(), threading.Event()

    def gated(*given: Any, **named: Any) -> Future[Any]:
        made: Future[Any] = Future()

        def make() -> None:
            try:
                assert go_on.wait(STOPPED_S)
                made.set_result(method(*given, **named).result(STOPPED_S))
            except BaseException as exc:
                made.set_exception(exc)

        threading.Thread(target=make, daemon=True).start()
        reached.set()
        return made

    setattr(owner, name, gated)
    try:
        yield reached, go_on
    finally:
        go_on.set()
        delattr(owner, name)
