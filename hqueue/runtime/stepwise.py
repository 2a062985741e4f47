"""Methods that are written as work, for callers that wait, for other work, and for a loop."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from hqueue.runtime.clock import SYSTEM_CLOCK, Clock, do_step, do_step_in_loop
from hqueue.runtime.loop import BackgroundLoop, LoopThread, blocking
from hqueue.runtime.steps import (
    Wait,
    Work,
    carry_out,
    carry_out_in_loop,
    each_given,
    each_given_in_loop,
    until_given,
)

__all__ = [
    "BoundPages",
    "BoundWork",
    "InLoop",
    "OnPorts",
    "Stepwise",
    "asked",
    "or_closed",
    "paged",
    "stepwise",
]

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Answer_co = TypeVar("Answer_co", covariant=True)


class Stepwise:
    """An object with such methods. As it is, their work asks for nothing but to wait, or to go on
    after a pause.
    """

    def _do(self, step: Any) -> object:
        """Carry out a step in the caller's thread."""
        return do_step(None, SYSTEM_CLOCK, step)

    async def _do_in_loop(self, step: Any) -> object:
        """Carry out a step in an event loop."""
        return await do_step_in_loop(None, SYSTEM_CLOCK, step)


class OnPorts(Stepwise):
    """An object with such methods, whose work makes requests of a port.

    Args:
        port: makes requests in the caller's thread.
        loop_port: makes the same requests in an event loop: its methods give what is awaited.
        clock: pauses.
    """

    def __init__(self, port: Any, loop_port: Any, clock: Clock) -> None:
        self._port = port
        self._loop_port = loop_port
        self._clock = clock

    def _do(self, step: Any) -> object:
        return do_step(self._port, self._clock, step)

    async def _do_in_loop(self, step: Any) -> object:
        return await do_step_in_loop(self._loop_port, self._clock, step)


class BoundWork(Generic[Parameters, Answer_co]):
    """Such a method of an object."""

    __slots__ = ("_driver", "_work")

    def __init__(self, work: Callable[..., Work[Any, Answer_co]], driver: Stepwise) -> None:
        self._work = work
        self._driver = driver

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Answer_co:
        """Carry it out in the caller's thread."""
        return carry_out(self._work(self._driver, *args, **kwargs), self._driver._do)

    def steps(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Work[Any, Answer_co]:
        """The work itself, for other work: ``yield from object.method.steps(…)``."""
        return self._work(self._driver, *args, **kwargs)

    async def in_loop(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Answer_co:
        """Carry it out in an event loop."""
        work = self._work(self._driver, *args, **kwargs)
        return await carry_out_in_loop(work, self._driver._do_in_loop)

    def asked(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Wait:
        """Asks for it to be carried out as its own object does, for work of another's: ``yield
        object.method.asked(…)``. The answer is its result.
        """
        return Wait(
            functools.partial(self, *args, **kwargs),
            functools.partial(self.in_loop, *args, **kwargs),
        )


class _Method(Generic[Parameters, Answer_co]):
    def __init__(self, work: Callable[..., Work[Any, Answer_co]]) -> None:
        self._work = work
        functools.update_wrapper(self, work)

    def __call__(
        self, driver: Any, /, *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Answer_co:
        """Like ``Class.method(object, …)``."""
        return BoundWork[Parameters, Answer_co](self._work, driver)(*args, **kwargs)

    @overload
    def __get__(self, driver: None, kind: object) -> _Method[Parameters, Answer_co]: ...

    @overload
    def __get__(self, driver: Any, kind: object) -> BoundWork[Parameters, Answer_co]: ...

    def __get__(
        self, driver: Any, kind: object
    ) -> _Method[Parameters, Answer_co] | BoundWork[Parameters, Answer_co]:
        return self if driver is None else BoundWork(self._work, driver)


class BoundPages(Generic[Parameters]):
    """A method of an object whose work gives lists of items."""

    __slots__ = ("_driver", "_work")

    def __init__(self, work: Callable[..., Work[Any, None]], driver: Stepwise) -> None:
        self._work = work
        self._driver = driver

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Iterator[Any]:
        """Iterate over the items in the caller's thread."""
        pages = each_given(self.steps(*args, **kwargs), self._driver._do)
        with contextlib.closing(pages):  # type: ignore[type-var]
            for page in pages:
                yield from page

    async def in_loop(
        self, *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> AsyncIterator[Any]:
        """Iterate over the items in an event loop. Other tasks have turns after each list."""
        pages = each_given_in_loop(self.steps(*args, **kwargs), self._driver._do_in_loop)
        async with contextlib.aclosing(pages):  # type: ignore[type-var]
            async for page in pages:
                for item in page:
                    yield item
                await asyncio.sleep(0)

    def steps(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Work[Any, None]:
        """The work itself."""
        return self._work(self._driver, *args, **kwargs)

    def asked(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Work[Any, None]:
        """The same work, for work of another's: it asks for each list to be made as its own object
        does that, and gives it.
        """
        work, driver = self.steps(*args, **kwargs), self._driver
        following = Wait(
            lambda: carry_out(until_given(work), driver._do),
            lambda: carry_out_in_loop(until_given(work), driver._do_in_loop),
        )
        try:
            while (given := (yield following)) is not None:
                yield given
        finally:
            work.close()


class _Pages(Generic[Parameters]):
    def __init__(self, work: Callable[..., Work[Any, None]]) -> None:
        self._work = work
        functools.update_wrapper(self, work)

    def __call__(
        self, driver: Any, /, *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Iterator[Any]:
        """Like ``Class.method(object, …)``."""
        return BoundPages[Parameters](self._work, driver)(*args, **kwargs)

    @overload
    def __get__(self, driver: None, kind: object) -> _Pages[Parameters]: ...

    @overload
    def __get__(self, driver: Any, kind: object) -> BoundPages[Parameters]: ...

    def __get__(self, driver: Any, kind: object) -> _Pages[Parameters] | BoundPages[Parameters]:
        return self if driver is None else BoundPages(self._work, driver)


class InLoop:
    """The stepwise methods of an object by their face for event loops.

    Args:
        methods: has them.
    """

    def __init__(self, methods: Any) -> None:
        self._methods = methods

    def __getattr__(self, name: str) -> Any:
        return getattr(self._methods, name).in_loop


def stepwise(
    work: Callable[Concatenate[Any, Parameters], Work[Any, Result]],
) -> _Method[Parameters, Result]:
    """Make a method with three faces of one that returns work: ``object.method(…)`` carries the
    work out in the caller's thread, ``await object.method.in_loop(…)`` in an event loop, and
    ``object.method.steps(…)`` is the work.
    """
    return _Method(work)


def paged(
    work: Callable[Concatenate[Any, Parameters], Work[Any, None]],
) -> _Pages[Parameters]:
    """Make an iteration with three faces of a method that returns work which gives lists of items:
    ``object.method(…)`` iterates over the items in the caller's thread,
    ``object.method.in_loop(…)`` in an event loop, and ``object.method.steps(…)`` is the work.
    """
    return _Pages(work)


def asked(
    method: Callable[Parameters, object], *args: Parameters.args, **kwargs: Parameters.kwargs
) -> Wait:
    """Asks for a call of a port's method, as `BoundWork.asked`; of one that has no face for event
    loops a thread makes it there.
    """
    if isinstance(method, BoundWork):
        return method.asked(*args, **kwargs)
    return blocking(functools.partial(method, *args, **kwargs))


def or_closed(
    work: Work[Any, Result],
    close: BoundWork[[], Any],
    loop: BackgroundLoop,
    is_kept: Callable[[], bool] = lambda: False,
) -> Work[Any, Result]:
    """The same work, by which something begins that a loop carries. If it fails, what has begun is
    closed before the error is raised.

    Args:
        work: the work.
        close: closes what has begun.
        loop: the loop.
        is_kept: whether it has a user who will close it.
    """
    try:
        return (yield from work)
    except GeneratorExit:
        # A thread was interrupted between two steps, and carries out no more of them. In a loop
        # that is so only where tasks are dropped with their loop.
        if isinstance(loop, LoopThread) and not loop.in_loop and not is_kept():
            close()
        raise
    except BaseException:
        if not is_kept():
            yield close.asked()
        raise
