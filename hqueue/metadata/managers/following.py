"""Work whose result is a future: no thread waits for what it asks for. An event loop carries it out
as any other work.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, TypeVar, overload

from hqueue.runtime.steps import Wait, Work
from hqueue.runtime.stepwise import BoundWork
from hqueue.runtime.waiting import InterruptibleFuture

__all__ = ["Asked", "Following", "follow", "following"]

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Asked(NamedTuple):
    """A step that asks for something whose answer comes later. Its result is the answer."""

    begin: Callable[[Following[Any]], object]
    """Asks for it, and returns. The thread that has the answer, or an error, has the work go on."""
    in_loop: Callable[[], Awaitable[object]]
    """Its result is awaited in an event loop."""

    def do(self, port: object) -> Awaitable[object]:
        return self.in_loop()


class Following(Generic[Result]):
    """Work under way, whose steps are `Asked` and `Wait`.

    Args:
        work: the work.
    """

    def __init__(self, work: Work[Any, Result]) -> None:
        self.future: InterruptibleFuture[Result] = InterruptibleFuture()
        """What comes of it. It can be cancelled until something is done for it."""
        self.has_asked = False
        """Whether the work has asked for something."""
        self._work = work
        self._is_begun = False

    def begins(self) -> bool:
        """Whether what the work asks for must be done; if not, its future was cancelled before."""
        if not self._is_begun:
            self._is_begun = True
            return self.future.set_running_or_notify_cancel()
        return True

    def go_on(self, answer: object = None, error: BaseException | None = None) -> None:
        """Take the work's steps until it asks for something: at first, and with each answer. The
        thread that has the answer takes them, so none of them should take long.
        """
        while True:
            try:
                step = self._work.send(answer) if error is None else self._work.throw(error)
            except StopIteration as end:
                self.future.set_result(end.value)
                return
            except BaseException as exc:  # Whatever it is, the waiting caller must get it.
                self.future.set_exception(exc)
                return
            answer = error = None
            had_asked = self.has_asked
            try:
                if type(step) is Wait:
                    answer = step.here()
                else:
                    self.has_asked = True
                    step.begin(self)
                    return
            except BaseException as exc:  # The work decides what it means.
                self.has_asked = had_asked
                error = exc


def follow(work: Work[Any, Result]) -> Future[Result]:
    """Begin work; what comes of it. The caller's thread takes its steps until it asks.

    Raises:
        BaseException: what the work raised before that.
    """
    under_way = Following(work)
    under_way.go_on()
    if not under_way.has_asked and (error := under_way.future.exception()) is not None:
        raise error
    return under_way.future


class BoundFollowing(BoundWork[Parameters, Result]):
    """Such a method of an object."""

    __slots__ = ()

    def __call__(  # type: ignore[override]
        self, *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Future[Result]:
        """Begin it; what comes of it."""
        return follow(self.steps(*args, **kwargs))


class _Method(Generic[Parameters, Result]):
    def __init__(self, work: Callable[..., Work[Any, Result]]) -> None:
        self._work = work
        functools.update_wrapper(self, work)

    def __call__(
        self, driver: Any, /, *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Future[Result]:
        """Like ``Class.method(object, …)``."""
        return BoundFollowing[Parameters, Result](self._work, driver)(*args, **kwargs)

    @overload
    def __get__(self, driver: None, kind: object) -> _Method[Parameters, Result]: ...

    @overload
    def __get__(self, driver: Any, kind: object) -> BoundFollowing[Parameters, Result]: ...

    def __get__(
        self, driver: Any, kind: object
    ) -> _Method[Parameters, Result] | BoundFollowing[Parameters, Result]:
        return self if driver is None else BoundFollowing(self._work, driver)


def following(
    work: Callable[Concatenate[Any, Parameters], Work[Any, Result]],
) -> _Method[Parameters, Result]:
    """Like `hqueue.runtime.stepwise.stepwise`, but ``object.method(…)`` returns a future: see
    `follow`.
    """
    return _Method(work)
