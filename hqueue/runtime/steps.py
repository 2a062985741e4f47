"""Work without I/O: what it asks for, and who carries that out.

Work is a generator. It yields a step, is sent what came of it, and goes on; an error of a step is
raised in it. So what is decided is written down once, and who drives it chooses how to wait.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from typing import Any, NamedTuple, Protocol, TypeVar

__all__ = [
    "Give",
    "Pause",
    "Request",
    "Work",
    "carry_out",
    "carry_out_in_loop",
    "each_given",
    "each_given_in_loop",
    "noting",
    "taken_in",
]

StepT = TypeVar("StepT")
Result = TypeVar("Result")


class Pause(NamedTuple):
    """Asks to go on after so long; the answer is None."""

    duration_ms: float


class Give(NamedTuple):
    """Gives something to whoever takes what work gives, one after the other; the answer is None."""

    item: Any


class Request(Protocol):
    """Asks for one request to be made."""

    def do(self, port: Any, /) -> object:
        """Make it; the answer, or what is awaited for it where the port's methods give that."""


Work = Generator[StepT, Any, Result]
"""Yields steps, and returns a result."""


def noting(work: Work[Any, Result], note: Callable[[Any], object]) -> Work[Any, Result]:
    """The same work, that notes what it gives."""
    try:
        step = next(work)
        while True:
            if type(step) is Give:
                note(step.item)
            try:
                answer = yield step
            except BaseException as exc:
                step = work.throw(exc)
            else:
                step = work.send(answer)
    except StopIteration as end:
        result: Result = end.value
        return result


def taken_in(work: Work[Any, Result], take: Callable[[Any], Work[Any, None]]) -> Work[Any, Result]:
    """The same work, but what it gives is taken in by other work."""
    try:
        step = next(work)
        while True:
            if type(step) is Give:
                yield from take(step.item)
                step = next(work)
                continue
            try:
                answer = yield step
            except BaseException as exc:
                step = work.throw(exc)
            else:
                step = work.send(answer)
    except StopIteration as end:
        result: Result = end.value
        return result
    finally:
        work.close()


def carry_out(work: Work[StepT, Result], do: Callable[[StepT], object]) -> Result:
    """Carry out work in the caller's thread, each step when it is asked for; its result.

    Args:
        work: the work. It is over when this returns.
        do: carries out a step, and returns the answer. Whatever it raises is raised in the work.
    """
    try:
        step = next(work)
        while True:
            try:
                answer = do(step)
            except BaseException as exc:
                step = work.throw(exc)
            else:
                step = work.send(answer)
    except StopIteration as end:
        result: Result = end.value
        return result


async def carry_out_in_loop(
    work: Work[StepT, Result], do: Callable[[StepT], Awaitable[object]]
) -> Result:
    """As `carry_out`, in an event loop. Where the caller is cancelled, that is raised in the work.

    Args:
        work: the work. It is over when this returns.
        do: carries out a step, and returns the answer. Whatever it raises is raised in the work.
    """
    try:
        step = next(work)
        while True:
            try:
                answer = await do(step)
            except BaseException as exc:
                step = work.throw(exc)
            else:
                step = work.send(answer)
    except StopIteration as end:
        result: Result = end.value
        return result


def each_given(work: Work[Any, None], do: Callable[[Any], object]) -> Iterator[Any]:
    """Carry out work as `carry_out`, as far as what it gives is taken."""
    try:
        step = next(work)
        while True:
            if type(step) is Give:
                yield step.item
                step = next(work)
                continue
            try:
                answer = do(step)
            except BaseException as exc:
                step = work.throw(exc)
            else:
                step = work.send(answer)
    except StopIteration:
        return
    finally:
        work.close()


async def each_given_in_loop(
    work: Work[Any, None], do: Callable[[Any], Awaitable[object]]
) -> AsyncIterator[Any]:
    """Carry out work as `carry_out_in_loop`, as far as what it gives is taken."""
    try:
        step = next(work)
        while True:
            if type(step) is Give:
                yield step.item
                step = next(work)
                continue
            try:
                answer = await do(step)
            except BaseException as exc:
                step = work.throw(exc)
            else:
                step = work.send(answer)
    except StopIteration:
        return
    finally:
        work.close()
