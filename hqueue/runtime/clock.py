"""Time: the clocks that the protocol reads, and the bound of an operation with its retries."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from time import clock_gettime_ns
from typing import Any, Protocol, TypeVar

from hqueue.errors import (
    ClosedError,
    HQueueError,
    InvalidInputError,
    Outcome,
    RequestRefusedError,
    StoreUnavailableError,
)
from hqueue.runtime.backoff import Backoff
from hqueue.runtime.only_reads import OnlyReads
from hqueue.runtime.steps import (
    Give,
    Pause,
    Request,
    Wait,
    Work,
    carry_out,
    carry_out_in_loop,
    each_given,
    each_given_in_loop,
    only_reads,
)

__all__ = [
    "LAST_TRY_MS",
    "SYSTEM_CLOCK",
    "Clock",
    "Deadline",
    "Patience",
    "SystemClock",
    "Tries",
    "bounded_ms",
    "do_step",
    "do_step_in_loop",
    "drive",
    "drive_each",
    "drive_each_in_loop",
    "drive_in_loop",
    "monotonic_s_of",
    "outcome_of",
]

StepT = TypeVar("StepT")
Result = TypeVar("Result")

RETRIES = Backoff(50.0, 1_000.0, spread=(0.0, 1.0))
"""The pauses between the tries of an operation."""


class Clock(Protocol):
    """The source of time for the protocol; tests pass their own. All times are in milliseconds."""

    def wall_ms(self) -> int:
        """The time since the epoch. It may jump."""

    def monotonic_ms(self) -> float:
        """The time since an arbitrary start. It never goes back, and continues while the machine
        sleeps.
        """

    def sleep_ms(self, duration_ms: float) -> None:
        """Wait for this long."""


class SystemClock:
    """This machine's clocks."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        return clock_gettime_ns(_MONOTONIC) / 1e6

    def sleep_ms(self, duration_ms: float) -> None:
        time.sleep(duration_ms / 1e3)


_MONOTONIC = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
SYSTEM_CLOCK = SystemClock()


LAST_TRY_MS = 1_000.0
"""The least time limit of a request, even if its operation has less time left: if nobody waits for
the answer to a request that was sent, its outcome stays unknown."""


_ends_ms: contextvars.ContextVar[float | None] = contextvars.ContextVar("_ends_ms", default=None)
"""When the operation ends that this thread, or task of a loop, is in the middle of."""


def bounded_ms(bound_ms: float) -> float:
    """The bound on a request, or on opening a connection: not more than is left of the operation
    that this thread, or task of a loop, is in the middle of, but for `LAST_TRY_MS`.
    """
    ends_ms = _ends_ms.get()
    if ends_ms is None:
        return bound_ms
    return min(bound_ms, max(LAST_TRY_MS, ends_ms - SYSTEM_CLOCK.monotonic_ms()))


def monotonic_s_of(clock: Clock) -> Callable[[], float]:
    """A clock's `monotonic_ms` in seconds, for loops that ask at every message: of this machine's
    clock without a call in Python, which would take half of the time that a message does.
    """
    if type(clock) is SystemClock:
        return functools.partial(time.clock_gettime, _MONOTONIC)
    return lambda: clock.monotonic_ms() / 1e3


class Deadline:
    """The time limit of one operation with all its retries.

    Args:
        clock: the source of time.
        bound_ms: how long the operation may go on trying, from now.
    """

    def __init__(self, clock: Clock, bound_ms: float) -> None:
        self._clock = clock
        self._ends_ms = clock.monotonic_ms() + bound_ms

    @property
    def remaining_ms(self) -> float:
        """The time that is left, at least 0."""
        return max(0.0, self._ends_ms - self._clock.monotonic_ms())

    @property
    def expired(self) -> bool:
        """Whether no time is left."""
        return self.remaining_ms == 0.0

    def run(self, operation: Callable[[], Result]) -> Result:
        """Call an operation, and retry it after growing, random pauses while it raises
        `StoreUnavailableError`. After the deadline the last error is raised. Its outcome is
        *unknown* if the outcome of any try was.

        Requests that this thread makes meanwhile take no longer than the time that is left: see
        `bounded_ms`.
        """

        def attempt() -> Work[Pause, Result]:
            return operation()
            yield

        return drive(self.insist(attempt), None, self)

    def bound(self, work: Work[StepT, Result]) -> Work[StepT, Result]:
        """The same work, whose requests take no longer than the time that is left: see
        `bounded_ms`. If no time is left, the requests are not bounded, and the work makes its one
        try.
        """
        outer, ends_ms = _ends_ms.get(), self._ends_ms
        try:
            if (
                self._clock is SYSTEM_CLOCK
                and (outer is None or ends_ms < outer)
                and clock_gettime_ns(_MONOTONIC) < ends_ms * 1e6
            ):
                _ends_ms.set(ends_ms)
            return (yield from work)
        finally:
            if _ends_ms.get() == ends_ms:  # Else it is let go of elsewhere, as with its loop.
                _ends_ms.set(outer)

    def insist(self, attempt: Callable[[], Work[StepT, Result]]) -> Work[StepT | Pause, Result]:
        """Like `run`, for an operation in steps: attempts it as often as needed, with pauses
        between attempts.
        """
        tries: Tries | None = None
        while True:
            try:
                return (yield from attempt())
            except StoreUnavailableError as exc:
                if tries is None:
                    tries, pauses = Tries(), RETRIES.pauses()
                tries.note(exc)
                if self.expired:
                    tries.conclude(exc)
                    raise
            except (RequestRefusedError, ClosedError, InvalidInputError) as exc:
                if tries is not None:
                    tries.conclude(exc)
                raise
            yield Pause(min(next(pauses), self.remaining_ms))


Step = Request | Pause | Give | Wait


def drive(work: Work[Step, Result], port: Any, deadline: Deadline) -> Result:
    """Carry out work in this thread, with requests to a port; its result.

    What is asked for is bounded by what is left until the deadline, as in `Deadline.run`; what that
    raises is raised in the work, which decides whether it is tried again.
    """
    return carry_out(deadline.bound(work), functools.partial(do_step, port, deadline._clock))


async def drive_in_loop(work: Work[Step, Result], port: Any, deadline: Deadline) -> Result:
    """Like `drive`, in an event loop. The port's methods give what is awaited."""
    do = functools.partial(do_step_in_loop, port, deadline._clock)
    return await carry_out_in_loop(deadline.bound(work), do)


def drive_each(work: Work[Any, None], port: Any, clock: Clock) -> Iterator[Any]:
    """Carry out work in this thread as far as what it gives is taken. It bounds what it asks for
    itself: see `Deadline.bound`.
    """
    return each_given(work, functools.partial(do_step, port, clock))


def drive_each_in_loop(work: Work[Any, None], port: Any, clock: Clock) -> AsyncIterator[Any]:
    """Like `drive_each`, in an event loop."""
    return each_given_in_loop(work, functools.partial(do_step_in_loop, port, clock))


def outcome_of(step: Any) -> AbstractContextManager[None]:
    """Has the errors of a step say *not applied* if it only reads."""
    return _ONLY_READS if only_reads(step) else _AS_IT_SAYS


_ONLY_READS, _AS_IT_SAYS = OnlyReads(), nullcontext()


def do_step(port: Any, clock: Clock, step: Any) -> object:
    """Carry out a step in this thread."""
    if type(step) is not Pause:
        with outcome_of(step):
            answer: object = step.do(port)
        return answer
    clock.sleep_ms(step.duration_ms)
    return None


async def do_step_in_loop(port: Any, clock: Clock, step: Any) -> object:
    """Carry out a step in an event loop. Time that is stepped is not waited for."""
    if type(step) is not Pause:
        with outcome_of(step):
            answer: object = await step.do(port)
        return answer
    is_real = type(clock) is SystemClock
    if not is_real:
        clock.sleep_ms(step.duration_ms)
    await asyncio.sleep(step.duration_ms / 1e3 if is_real else 0)
    return None


class Tries:
    """The failed tries of one operation: what ends without an answer is *unknown* if the outcome of
    any of them was.
    """

    def __init__(self) -> None:
        self._unknown = False

    def note(self, error: HQueueError) -> None:
        """A try ended so, and there may be another one."""
        self._unknown = self._unknown or error.outcome is Outcome.UNKNOWN

    def conclude(self, error: HQueueError) -> None:
        """The operation ends so, without an answer: its outcome becomes that of all tries."""
        if self._unknown:
            error.outcome = Outcome.UNKNOWN


class Patience:
    """Bears a fault that should pass by itself, until it has lasted for a bound.

    Args:
        bound: makes the bound, from now.
    """

    def __init__(self, bound: Callable[[], Deadline]) -> None:
        self._bound = bound
        self._ends: Deadline | None = None

    def bear(self, error: HQueueError) -> None:
        """The fault is there.

        Raises:
            HQueueError: `error`: it was there for the whole bound.
        """
        self._ends = self._ends or self._bound()
        if self._ends.expired:
            raise error

    def renew(self) -> None:
        """The fault is not there any more."""
        self._ends = None
