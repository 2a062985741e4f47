"""Work without I/O: the steps that it yields, and the drivers that carry them out.

Work is a generator. It yields a step, is sent the result, and continues; an error of a step is
raised in it. So decisions are written once, and the driver chooses how to wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from typing import Any, NamedTuple, Protocol, TypeVar

from hqueue.runtime.interrupts import is_interruption

__all__ = [
    "Give",
    "Pause",
    "Request",
    "Wait",
    "Work",
    "carry_out",
    "carry_out_in_loop",
    "each_given",
    "each_given_in_loop",
    "noting",
    "only_reads",
    "reading",
    "taken_in",
    "until_given",
]

StepT = TypeVar("StepT")
Result = TypeVar("Result")


class Pause(NamedTuple):
    """A step that pauses the work for a while. Its result is None."""

    duration_ms: float


Pause.duration_ms.__doc__ = "How long."


class Give(NamedTuple):
    """A step that hands an item to the caller that iterates over the work. Its result is None."""

    item: Any


class Wait(NamedTuple):
    """A step that waits, as its driver does: in a thread or in an event loop. Its result is that of
    the wait.
    """

    here: Callable[[], object]
    """Called in a thread, which it blocks."""
    in_loop: Callable[[], Awaitable[object]]
    """Its result is awaited in an event loop."""
    leave: Callable[[], object] | None = None
    """Has it done in a task of the event loop, for work that cleans up after its caller was
    cancelled. None if the caller waits all the same.
    """


class Request(Protocol):
    """A step that makes one request. The request only reads if its class is decorated with
    `reading`.
    """

    def do(self, port: Any, /) -> object:
        """Make the request. Returns the answer, or an awaitable of it if the port's methods do."""


RequestT = TypeVar("RequestT")


def reading(request: type[RequestT]) -> type[RequestT]:
    """Decorates a class of requests that only read: no error of one leaves an outcome unknown."""
    _READING.add(request)
    return request


def only_reads(step: object) -> bool:
    """Whether a step is a request that only reads."""
    return type(step) in _READING


_READING: set[type] = set()


Work = Generator[StepT, Any, Result]
"""Yields steps, and returns a result."""


def noting(work: Work[Any, None], note: Callable[[Any], object]) -> Work[Any, None]:
    """The same work, that notes what it gives."""

    def take(item: Any) -> Work[Give, None]:
        note(item)
        yield Give(item)

    return taken_in(work, take)


def taken_in(work: Work[Any, None], take: Callable[[Any], Work[Any, None]]) -> Work[Any, None]:
    """The same work, but what it gives is taken in by other work."""
    try:
        while (given := (yield from until_given(work))) is not None:
            yield from take(given.item)
    finally:
        work.close()


def carry_out(work: Work[Any, Result], do: Callable[[Any], object]) -> Result:
    """Carry out work in the caller's thread, each step when it is asked for; its result.

    Args:
        work: the work. It is over when this returns, or is interrupted.
        do: carries out a step that is not a `Wait`, and returns the answer. Whatever it raises is
            raised in the work.
    """
    try:
        step = next(work)
        while True:
            try:
                answer = step.here() if type(step) is Wait else do(step)
            except BaseException as exc:
                step = work.throw(exc)
            else:
                step = work.send(answer)
    except StopIteration as end:
        result: Result = end.value
        return result
    finally:
        _cut_off(work)


async def carry_out_in_loop(
    work: Work[Any, Result], do: Callable[[Any], Awaitable[object]]
) -> Result:
    """Like `carry_out`, in an event loop. Where the caller is cancelled, that is raised in the
    work, and the caller no longer waits for what can be left to a task.

    Args:
        work: the work. It is over when this returns.
        do: carries out a step that is not a `Wait`, and returns the answer. Whatever it raises is
            raised in the work.
    """
    was_cancelled = False
    try:
        step = next(work)
        while True:
            try:
                if type(step) is not Wait:
                    answer = await do(step)
                elif was_cancelled and step.leave is not None:
                    answer = step.leave()
                else:
                    answer = await step.in_loop()
            except BaseException as exc:
                was_cancelled = was_cancelled or isinstance(exc, asyncio.CancelledError)
                step = work.throw(exc)
            else:
                step = work.send(answer)
    except StopIteration as end:
        result: Result = end.value
        return result
    finally:
        _cut_off(work)


def each_given(work: Work[Any, None], do: Callable[[Any], object]) -> Iterator[Any]:
    """Carry out work as `carry_out`, as far as what it gives is taken."""
    try:
        while (given := carry_out(until_given(work), do)) is not None:
            yield given.item
    finally:
        work.close()


async def each_given_in_loop(
    work: Work[Any, None], do: Callable[[Any], Awaitable[object]]
) -> AsyncIterator[Any]:
    """Carry out work as `carry_out_in_loop`, as far as what it gives is taken."""
    try:
        while (given := await carry_out_in_loop(until_given(work), do)) is not None:
            yield given.item
    finally:
        work.close()


def until_given(work: Work[Any, None]) -> Work[Any, Give | None]:
    """The same work until it gives something: that, or None at its end."""
    try:
        step = next(work)
        while type(step) is not Give:
            try:
                answer = yield step
            except BaseException as exc:
                step = work.throw(exc)
            else:
                step = work.send(answer)
    except StopIteration:
        return None
    return step


def _cut_off(work: Work[Any, Any]) -> None:
    """Have work that is left in its middle let go of what it has."""
    try:
        work.close()
    except RuntimeError as exc:  # It asks for more, which it does not get.
        if is_interruption(exc):
            raise
