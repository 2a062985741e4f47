"""A call of a method stands still, or is made later, until a test lets it go on."""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

from hqueue.runtime.loop import blocking
from hqueue.runtime.steps import Wait, Work
from hqueue.runtime.stepwise import BoundWork

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
    calls = itertools.count(1)

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

    setattr(owner, name, _InSteps(gated) if isinstance(method, BoundWork) else gated)
    try:
        yield reached, go_on
    finally:
        go_on.set()
        delattr(owner, name)


class _InSteps:
    """The blocking face of a method that is written as work, in the place of its other faces."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self._method(*args, **named)

    def asked(self, *args: Any, **named: Any) -> Wait:
        return blocking(functools.partial(self._method, *args, **named))

    def steps(self, *args: Any, **named: Any) -> Work[Any, Any]:
        return (yield self.asked(*args, **named))


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
