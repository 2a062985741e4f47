"""When a member of a group does something next."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hqueue.runtime.alarm import Alarm
from hqueue.runtime.backoff import Backoff
from hqueue.runtime.clock import Clock, Deadline

__all__ = ["Pacing"]

RETRIES = Backoff(10.0, 250.0)
"""How long what was refused, or could not be asked for, is left alone: not for long at first, since
its owner is giving it up."""
GATHER_MS = 100.0
"""How long the members stay the same before anything is planned: of many that join at once all are
seen then, and nothing moves twice."""
GATHER_MS_MAX = 2_000.0
"""How long that is waited for at most."""


class Pacing:
    """The waits of a member's task. Thread-safe.

    Args:
        alarm: the task's.
        clock: where time comes from.
        idle_ms_max: how long a member may be without a sign of life; None for as long as it likes.
    """

    def __init__(self, alarm: Alarm, clock: Clock, idle_ms_max: float | None = None) -> None:
        self.pending = False
        """Whether something must be done now."""
        self._alarm = alarm
        self._clock = clock
        self._idle_ms_max = idle_ms_max
        self._alive_ms = clock.monotonic_ms()
        self._retry_ms: float | None = None
        self._gathered: Mapping[str, object] = {}
        """What was waited for."""

    def notify(self) -> None:
        """Something must be done."""
        self.pending = True
        self._alarm.ring()

    def see_alive(self, at_ms: float | None) -> None:
        """The consumer gave a sign of life then; now if None."""
        self._alive_ms = self._clock.monotonic_ms() if at_ms is None else at_ms

    @property
    def idle(self) -> bool:
        """Whether there was no sign of life for too long."""
        return self._idle_left_ms() <= 0

    def settle(self, *, done: bool) -> None:
        """All was done; or not, and the rest is due a little later."""
        self._retry_ms = None if done else RETRIES.longer(self._retry_ms or 0.0)

    async def wait(self, closed: Callable[[], bool]) -> None:
        """Until something must be done, or done again; or it is `idle` or closed."""
        ends_ms = float("inf")
        if self._retry_ms is not None:
            ends_ms = self._clock.monotonic_ms() + self._retry_ms
        while not (self.pending or closed()):
            left_ms = min(self._idle_left_ms(), ends_ms - self._clock.monotonic_ms())
            if left_ms <= 0:
                return
            await self._alarm.wait(left_ms)

    async def gather(
        self, members: Callable[[], Mapping[str, object]], closed: Callable[[], bool]
    ) -> None:
        """Wait until the members stay the same for a while, or it is closed."""
        ends = Deadline(self._clock, GATHER_MS_MAX)
        while members() != self._gathered and not (ends.expired or closed()):
            self._gathered = members()
            quiet = Deadline(self._clock, min(GATHER_MS, ends.remaining_ms))
            while members() == self._gathered and not (quiet.expired or closed()):
                await self._alarm.wait(quiet.remaining_ms)

    def _idle_left_ms(self) -> float:
        if self._idle_ms_max is None:
            return float("inf")
        return self._alive_ms + self._idle_ms_max - self._clock.monotonic_ms()
