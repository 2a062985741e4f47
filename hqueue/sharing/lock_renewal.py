"""Keeping the locks of the messages that a program has, for as long as it has them."""

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
"""A lock is renewed when less than this part of it is left."""
LOOKS = 6
"""How often in a lock's time the consumer looks which ones are due. A message that is handed out
has a half of its lock left at least: so a quarter is left when that is renewed first."""
TASK_LOOKS = 4
"""How often in the time between two looks the task looks: then a call may just have ended."""


class LockRenewal(Stepwise):
    """Has the locks renewed that are due. While the consumer is in a call of its program, that call
    does it; in between a task of a loop does it. So the consumer changes in one place at a time.

    Args:
        renew: the work that renews what is due.
        lock_ms: how long a lock lasts.
        wait_ms: how long a call waits for a renewal that is under way.
        loop: carries the task.
        clock: where time comes from.
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
        """The work of a call, while which no task renews anything.

        Raises:
            StoreUnavailableError: a renewal that is under way did not end in time.
        """
        return self._turn.take(work, self._wait_ms / 1e3, _late)

    def renew(self) -> Work[Any, None]:
        """Renew what is due, if some time has passed. In a turn."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._looked_ms >= self._every_ms:
            self._looked_ms = now_ms
            yield from self._renew()

    def close(self) -> None:
        """Have the task end. Does not wait for a renewal that is under way."""
        self._job.close()

    async def _run(self) -> float:
        """Look once, unless a call does so; in how many milliseconds to look again."""
        if not self._turn.is_free:
            return self._every_ms / TASK_LOOKS
        try:
            await self._renew_in_turn.in_loop()
        except HQueueError as exc:
            self._faults.met("renewing", "the locks of messages can't be renewed: %s", exc)
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
