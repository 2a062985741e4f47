"""Methods that are written as work, for callers that wait, for other work, and for a loop."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, Protocol, TypeVar, overload

from hqueue.runtime.steps import Work, carry_out, carry_out_in_loop
from hqueue.runtime.turn import Turn

__all__ = ["BoundWork", "Called", "InTurn", "Stepwise", "stepwise"]

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class _Driver(Protocol):
    """What has such methods."""

    def _do(self, step: Any) -> object:
        """Carry out a step in the caller's thread."""

    async def _do_in_loop(self, step: Any) -> object:
        """Carry out a step in an event loop."""


class BoundWork(Generic[Parameters, Result]):
    """Such a method of an object."""

    __slots__ = ("_driver", "_work")

    def __init__(self, work: Callable[..., Work[Any, Result]], driver: _Driver) -> None:
        self._work = work
        self._driver = driver

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        """Carry it out in the caller's thread."""
        return carry_out(self._work(self._driver, *args, **kwargs), self._driver._do)

    def steps(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Work[Any, Result]:
        """The work itself, for other work: ``yield from object.method.steps(…)``."""
        return self._work(self._driver, *args, **kwargs)

    async def in_loop(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        """Carry it out in an event loop."""
        work = self._work(self._driver, *args, **kwargs)
        return await carry_out_in_loop(work, self._driver._do_in_loop)


class _Method(Generic[Parameters, Result]):
    def __init__(self, work: Callable[..., Work[Any, Result]]) -> None:
        self._work = work
        functools.update_wrapper(self, work)

    def __call__(
        self, driver: Any, /, *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Result:
        """As ``Class.method(object, …)``."""
        return BoundWork[Parameters, Result](self._work, driver)(*args, **kwargs)

    @overload
    def __get__(self, driver: None, kind: object) -> _Method[Parameters, Result]: ...

    @overload
    def __get__(self, driver: Any, kind: object) -> BoundWork[Parameters, Result]: ...

    def __get__(
        self, driver: Any, kind: object
    ) -> _Method[Parameters, Result] | BoundWork[Parameters, Result]:
        return self if driver is None else BoundWork(self._work, driver)


def stepwise(
    work: Callable[Concatenate[Any, Parameters], Work[Any, Result]],
) -> _Method[Parameters, Result]:
    """Make a method with three faces of one that returns work: ``object.method(…)`` carries the
    work out in the caller's thread, ``await object.method.in_loop(…)`` in an event loop, and
    ``object.method.steps(…)`` is the work.
    """
    return _Method(work)


class InTurn(NamedTuple):
    """Asks for work to be carried out while no other is by this turn; the answer is its result.

    Raises:
        NotHeldError: the turn did not come in time. Nothing was begun.
    """

    turn: Turn
    work: Work[Any, Any]
    wait_s: float


class Called(NamedTuple):
    """Asks for such a method of another object to be carried out, as that does; the answer is its
    result.
    """

    method: BoundWork[..., Any]
    args: tuple[Any, ...]


class Stepwise:
    """An object with such methods, whose work asks for turns and for those of others."""

    def _do(self, step: Any) -> object:
        if isinstance(step, InTurn):
            return step.turn.take(lambda: carry_out(step.work, self._do), step.wait_s)
        assert isinstance(step, Called)
        return step.method(*step.args)

    async def _do_in_loop(self, step: Any) -> object:
        if isinstance(step, InTurn):
            return await step.turn.take_in_loop(
                lambda: carry_out_in_loop(step.work, self._do_in_loop), step.wait_s
            )
        assert isinstance(step, Called)
        return await step.method.in_loop(*step.args)
