"""Time: the clocks that the protocol reads, and the bound of an operation with its retries."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from hqueue.errors import (
    ClosedError,
    HQueueError,
    Outcome,
    RequestRefusedError,
    StoreUnavailableError,
)
from hqueue.runtime.backoff import Backoff
from hqueue.runtime.steps import Pause, Work, carry_out

__all__ = [
    "LAST_TRY_MS",
    "SYSTEM_CLOCK",
    "Clock",
    "Deadline",
    "Patience",
    "SystemClock",
    "Tries",
    "bounded_ms",
    "monotonic_s_of",
]

StepT = TypeVar("StepT")
Result = TypeVar("Result")

RETRIES = Backoff(50.0, 1_000.0, spread=(0.0, 1.0))
"""The pauses between the tries of an operation."""


class Clock(Protocol):
    """Where the protocol gets its time from; tests pass another one. All in milliseconds."""

    def wall_ms(self) -> int:
        """Time since the epoch. May jump."""

    def monotonic_ms(self) -> float:
        """Time since some start. Never goes back, and runs on while the machine sleeps."""

    def sleep_ms(self, duration_ms: float) -> None:
        """Wait."""


class SystemClock:
    """This machine's clocks."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        return time.clock_gettime_ns(_MONOTONIC) / 1e6

    def sleep_ms(self, duration_ms: float) -> None:
        time.sleep(duration_ms / 1e3)


_MONOTONIC = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
SYSTEM_CLOCK = SystemClock()


LAST_TRY_MS = 1_000.0
"""What a request is given at least, even where its operation has less time left: one that is sent
and not waited for leaves an outcome that nobody knows."""


class _UnderWay(threading.local):
    """Of each thread."""

    ends_ms: float | None = None
    """When the operation ends that it is in the middle of."""


_under_way = _UnderWay()


def bounded_ms(bound_ms: float) -> float:
    """The bound on a request, or on opening a connection: not more than is left of the operation
    that this thread is in the middle of, but for `LAST_TRY_MS`.
    """
    ends_ms = _under_way.ends_ms
    if ends_ms is None:
        return bound_ms
    return min(bound_ms, max(LAST_TRY_MS, ends_ms - SYSTEM_CLOCK.monotonic_ms()))


def monotonic_s_of(clock: Clock) -> Callable[[], float]:
    """A clock's `monotonic_ms` in seconds, for who asks at every message: of this machine's clock
    without a call in Python, which would take half of the time that a message does.
    """
    if type(clock) is SystemClock:
        return functools.partial(time.clock_gettime, _MONOTONIC)
    return lambda: clock.monotonic_ms() / 1e3


class Deadline:
    """The bound on one operation with all its retries.

    Args:
        clock: where time comes from.
        bound_ms: how long the operation may go on trying, from now.
    """

    def __init__(self, clock: Clock, bound_ms: float) -> None:
        self._clock = clock
        self._ends_ms = clock.monotonic_ms() + bound_ms

    @property
    def remaining_ms(self) -> float:
        """What is left, at least 0."""
        return max(0.0, self._ends_ms - self._clock.monotonic_ms())

    @property
    def expired(self) -> bool:
        return self.remaining_ms == 0.0

    def run(self, operation: Callable[[], Result]) -> Result:
        """Call until it returns; again, after a growing, random pause, while it raises
        `StoreUnavailableError`. When the deadline has passed, the last error is raised. The outcome
        of what ends without an answer is *unknown* if that of any try was.

        What is asked for meanwhile in this thread is bounded by what is left: see `bounded_ms`.
        """
        outer, ends_ms = _under_way.ends_ms, self._ends_ms
        if self._clock is SYSTEM_CLOCK and time.clock_gettime_ns(_MONOTONIC) < ends_ms * 1e6:
            _under_way.ends_ms = ends_ms if outer is None else min(outer, ends_ms)
        try:
            try:
                return operation()  # Nearly all succeed at once, and don't pay for what comes now.
            except StoreUnavailableError as exc:
                return self._run_again(operation, exc)
        finally:
            _under_way.ends_ms = outer

    def _run_again(self, operation: Callable[[], Result], first: StoreUnavailableError) -> Result:
        failed = [first]

        def attempt() -> Work[Pause, Result]:
            if failed:
                raise failed.pop()
            return operation()
            yield

        return carry_out(self.insist(attempt), lambda step: self._clock.sleep_ms(step.duration_ms))

    def insist(self, attempt: Callable[[], Work[StepT, Result]]) -> Work[StepT | Pause, Result]:
        """`run` for an operation that is work: in as many attempts as it takes, with a pause
        between two.
        """
        tries, pauses = Tries(), RETRIES.pauses()
        while True:
            try:
                return (yield from attempt())
            except StoreUnavailableError as exc:
                tries.note(exc)
                if self.expired:
                    tries.conclude(exc)
                    raise
            except (RequestRefusedError, ClosedError) as exc:
                tries.conclude(exc)
                raise
            yield Pause(min(next(pauses), self.remaining_ms))


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
