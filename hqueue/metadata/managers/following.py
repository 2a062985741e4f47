"""What takes several requests, one after the other, without a thread that waits for them."""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any, TypeAlias, TypeVar

from hqueue.runtime.waiting import InterruptibleFuture

__all__ = ["Steps", "follow"]

Result = TypeVar("Result")

Steps: TypeAlias = Generator[Future[Any], Any, Result]
"""Yields what it waits for, and is given what came of it, or its error; returns its result."""


def follow(begin: Callable[[], Steps[Result]]) -> Future[Result]:
    """What comes of steps. The first is taken at once, each further one by the thread that ends
    what was waited for; so none of them should take long. It can't be cancelled.
    """
    result: Future[Result] = InterruptibleFuture()
    result.set_running_or_notify_cancel()
    _go_on(begin(), result, None)
    return result


def _go_on(steps: Steps[Result], result: Future[Result], done: Future[Any] | None) -> None:
    """Take steps, as far as what they wait for is there."""
    while True:
        error = None if done is None else done.exception()
        try:
            if error is not None:
                waits_for = steps.throw(error)
            else:
                waits_for = steps.send(None if done is None else done.result())
        except StopIteration as end:
            result.set_result(end.value)
            return
        except BaseException as exc:  # Whatever it is, who waits must learn it.
            result.set_exception(exc)
            return
        if not waits_for.done():
            waits_for.add_done_callback(lambda ended: _go_on(steps, result, ended))
            return
        done = waits_for
