"""Renews the locks of the messages that a program has, for as long as it has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from hqueue.errors import HQueueError, Outcome, StoreUnavailableError
from hqueue.runtime.clock import Clock
from hqueue.runtime.job import Job
from hqueue.runtime.logs import Log
from hqueue.runtime.loop import BackgroundLoop
from hqueue.runtime.seldom import FaultLog
from hqueue.runtime.steps import Work
from hqueue.runtime.stepwise import Stepwise, stepwise
from hqueue.runtime.turn import Turn

__all__ = ["RENEWED_BELOW", "LockRenewal"]

logger = Log(__name__)

Result = TypeVar("Result")

RENEWED_BELOW = 2 / 3
"""A lock is renewed when less than this fraction of its time is left."""
LOOKS = 6
"""How many times in a lock's time the consumer looks which locks are due. A message that is handed
out has at least half of its lock's time left: so at least a quarter is left when its lock is first
renewed."""
TASK_LOOKS = 4
"""How many times the task looks between two of these looks: a call may just have ended."""


class LockRenewal(Stepwise):
    """Renews the locks that are due. While a call of the program is under way, the call renews
    them; between calls a task of an event loop does. So only one of them changes the consumer at a
    time.

    Args:
        renew: makes the work that renews the locks that are due.
        lock_ms: how long a lock lasts.
        wait_ms: how long a call waits for a renewal that is under way.
        loop: runs the task.
        clock: measures time.
    """

    def __init__(
        self,
        renew: Callable[[], Work[Any, None]],
        lock_ms: int,
        wait_ms: float,
        loop: BackgroundLoop,
        clock: Clock,
    ) -> None:
        self._renew = renew
        self._every_ms = lock_ms / LOOKS
        self._wait_ms = wait_ms
        self._clock = clock
        self._looked_ms = clock.monotonic_ms()
        self._turn = Turn()
        self._faults = FaultLog(logger, clock)
        self._job = Job(self._run, loop=loop)
        self._job.ask()

    def in_turn(self, work: Work[Any, Result]) -> Work[Any, Result]:
        """The work of a call, during which no task renews locks.

        Raises:
            StoreUnavailableError: a renewal that is under way did not end in time.
        """
        return self._turn.take(work, self._wait_ms / 1e3, _late)

    def renew(self) -> Work[Any, None]:
        """Renew the locks that are due, if it is time to look. Only in a turn."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._looked_ms >= self._every_ms:
            self._looked_ms = now_ms
            yield from self._renew()

    def close(self) -> None:
        """End the task. Does not wait for a renewal that is under way."""
        self._job.close()

    async def _run(self) -> float:
        """Look once, unless a call does so. Returns in how many milliseconds to look again."""
        if not self._turn.is_free:
            return self._every_ms / TASK_LOOKS
        try:
            await self._renew_in_turn.in_loop()
        except HQueueError as exc:
            self._faults.met(
                "renewing", "the locks of messages can't be renewed now; trying again: %s", exc
            )
        else:
            self._faults.over("renewing", "the locks of messages are renewed again")
        return self._every_ms / TASK_LOOKS

    @stepwise
    def _renew_in_turn(self) -> Work[Any, None]:
        yield from self.in_turn(self.renew())


def _late() -> StoreUnavailableError:
    return StoreUnavailableError(
        "the locks of messages are still being renewed: try again", outcome=Outcome.NOT_APPLIED
    )
