"""Whether this machine's clock is good enough to give messages their times; the store's clock."""

from __future__ import annotations

from functools import partial

from hqueue.errors import ClockSkewError, Outcome, RequestRefusedError, StoreUnavailableError
from hqueue.log.steps import MeasureClock, Work, ask
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock, Deadline
from hqueue.runtime.logs import Log
from hqueue.runtime.turn import Turn

__all__ = ["SkewGuard", "StoreClock"]

logger = Log(__name__)

MEASURED_EVERY_MS = 600_000
JUMP_MS = 250


class SkewGuard:
    """Measures the clock against the store's before the first append. Thread-safe.

    It measures again every ten minutes, and at once when the clock was set: a clock that is ahead
    would push a partition's IDs into the future, and they can't be taken back.

    Args:
        skew_ms_max: by how much the clocks may differ.
        clock: this machine's clock.
    """

    def __init__(self, skew_ms_max: int, clock: Clock = SYSTEM_CLOCK) -> None:
        self._skew_ms_max = skew_ms_max
        self._clock = clock
        self._measured: tuple[float, float] | None = None
        """When that was, and the wall clock's time minus the monotonic clock's then."""
        self._turn = Turn()

    def check(self, deadline: Deadline) -> Work[None]:
        """Check that the clock may be used. Sends no request if the clock `is_good`.

        Raises:
            ClockSkewError: the clock differs by more than the bound.
            StoreUnavailableError: the difference could not be measured before the deadline.
        """
        if not self.is_good:
            late = partial(
                StoreUnavailableError,
                "another did not measure the clock in time",
                outcome=Outcome.NOT_APPLIED,
            )
            wait_s = deadline.remaining_ms / 1e3
            yield from self._turn.take(self._measure(deadline), wait_s, late)

    def now_ms(self, deadline: Deadline) -> Work[int]:
        """The wall clock's time, as if nobody had set it since it was found good.

        Raises:
            As `check`.
        """
        yield from self.check(deadline)
        assert self._measured is not None
        return int(self._measured[1] + self._clock.monotonic_ms())

    def _measure(self, deadline: Deadline) -> Work[None]:
        if self.is_good:
            return
        ahead_ms, error_ms = yield from deadline.insist(lambda: ask(MeasureClock()))
        if abs(ahead_ms) - error_ms > self._skew_ms_max:
            raise ClockSkewError(
                "this machine's clock differs from the region server's by more than "
                "clock_skew_ms_max; set the clock before appending",
                store_ahead_ms=round(ahead_ms),
                error_ms=round(error_ms),
                clock_skew_ms_max=self._skew_ms_max,
            )
        now_ms = self._clock.monotonic_ms()
        self._measured = now_ms, self._clock.wall_ms() - now_ms

    @property
    def is_good(self) -> bool:
        """Whether the clock was found good lately, and was not set since."""
        if self._measured is None:
            return False
        measured_ms, start_ms = self._measured
        now_ms = self._clock.monotonic_ms()
        jumped_ms = abs(self._clock.wall_ms() - now_ms - start_ms)
        return now_ms - measured_ms < MEASURED_EVERY_MS and jumped_ms < JUMP_MS


class StoreClock:
    """Tells the time by the store's clock, for what is judged by when bodies expire. Thread-safe.

    It is measured when it is first asked for, which writes a small row and deletes it, and goes on
    by this machine's monotonic clock.

    Args:
        clock: this machine's clock.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._start_ms: float | None = None

    def now_ms(self, deadline: Deadline) -> Work[int]:
        """The time. By this machine's clock if the user may not write to the queue.

        Raises:
            StoreUnavailableError: it could not be measured until the deadline.
        """
        if self._start_ms is None:
            try:
                ahead_ms, _ = yield from deadline.insist(lambda: ask(MeasureClock()))
            except RequestRefusedError as exc:
                logger.warning(
                    "using this machine's clock, since HBase's can't be measured: %s", exc
                )
                ahead_ms = 0.0
            self._start_ms = self._clock.wall_ms() + ahead_ms - self._clock.monotonic_ms()
        return int(self._start_ms + self._clock.monotonic_ms())
