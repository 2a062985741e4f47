"""Work without I/O: what it asks for, and who carries that out.

Work is a generator. It yields a step, is sent what came of it, and goes on; an error of a step is
raised in it. So what is decided is written down once, and who drives it chooses how to wait.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, NamedTuple, Protocol, TypeVar

__all__ = ["Pause", "Request", "Work", "carry_out", "carry_out_in_loop"]

StepT = TypeVar("StepT")
Result = TypeVar("Result")


class Pause(NamedTuple):
    """Asks to go on after so long; the answer is None."""

    duration_ms: float


class Request(Protocol):
    """Asks for one request to be made."""

    def do(self, port: Any, /) -> object:
        """Make it; the answer, or what is awaited for it where the port's methods give that."""


Work = Generator[StepT, Any, Result]
"""Yields steps, and returns a result."""


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
