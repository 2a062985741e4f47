"""Claims partitions, and gives them up: a member of a group, a worker, a hub."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from typing import TypeVar

from hqueue.errors import Outcome, StoreUnavailableError
from hqueue.metadata.claiming import Claiming, Steps
from hqueue.metadata.owners import Owners
from hqueue.metadata.records import PartitionKey
from hqueue.metadata.steps import OnStore, Work
from hqueue.runtime.logs import Log
from hqueue.runtime.stepwise import stepwise
from hqueue.runtime.turn import Turn

__all__ = ["Claimant"]

logger = Log(__name__)

Result = TypeVar("Result")

REQUESTS_S = 600.0
"""How long one request waits for others of the same owner: longer than several take that get no
answer."""


class Claimant(OnStore):
    """What one owner has claimed in its sessions, and the requests by which that changes.

    Thread-safe: `claiming` is used with the `lock` held, which no request holds up. Its user says
    which partitions it requests (`claiming.request`) and when its session is over
    (`claiming.lost`), and has steps carried out. How it chooses its partitions is its own affair: a
    member follows its group's plan, and claims partitions that others have, too, for it watches no
    claims; workers and hubs plan by the claims that they see, and leave alone what others have.

    - A claim counts while the session lasts by which it was asked for. What is answered later, or
      not at all, is in doubt: claimed again if it is wanted, else released.
    - A release touches only what is being given up: not what was lost since, and is claimed again.
      For that, one request is under way at a time.
    - A claim that another hand took away while the session lives is noticed by `look_after`, and
      claimed again if it is wanted; what somebody wrote over it is written over again.

    Args:
        owners: where claims lie.
        owner: in whose name.
        lock: held, by this and its user, where `claiming` is used.
        on_change: called when `look_after` may find something, by a thread that must not be held
            up: it takes notice and returns.
        eager: as `Claiming` takes it.
    """

    def __init__(
        self,
        owners: Owners,
        owner: str,
        lock: AbstractContextManager[object],
        on_change: Callable[[], None],
        *,
        eager: bool = False,
    ) -> None:
        super().__init__(owners.store)
        self.claiming = Claiming(eager=eager)
        """What the owner has claimed, and what it wants."""
        self._owners = owners
        self._owner = owner
        self._lock = lock
        self._requests = Turn()
        """Claims are made, released and looked after one after the other: a release that takes so
        long that the session is lost must not find what was claimed with the next one."""
        self._guard = owners.guard(owner, on_change)

    @stepwise
    def carry_out(
        self,
        steps: Steps,
        begin: Callable[[Collection[PartitionKey]], Work[Collection[PartitionKey]]] | None = None,
    ) -> Work[frozenset[PartitionKey]]:
        """Release what is in doubt, and claim; what it owns by that.

        Args:
            steps: the steps of `claiming`. They end here, whatever is raised.
            begin: called with what was claimed, before it counts as owned; with that of it which
                can be. What can't stays in doubt.

        Raises:
            HQueueError: the store can't be asked now, or that of `begin`.
        """
        owned: Collection[PartitionKey] = ()
        doubtful: Collection[PartitionKey] = steps.claim | steps.release
        try:
            claimed = yield from self._in_turn(self._ask(steps))
            owned = (yield from begin(claimed)) if begin and claimed else claimed
            doubtful = set(claimed).difference(owned)
        finally:
            with self._lock:
                counting = self.claiming.answered(steps, owned, doubtful)
        return counting

    def _ask(self, steps: Steps) -> Work[Collection[PartitionKey]]:
        if steps.release:
            yield from self._owners.release.steps(steps.release)
        if not steps.claim:
            return ()
        return (yield from self._owners.claim.steps(self._owner, steps.claim))

    @stepwise
    def release(self, partitions: Collection[PartitionKey]) -> Work[frozenset[PartitionKey]]:
        """Give up those of these that are being given up; which that were.

        Raises:
            HQueueError: they are still its own, perhaps. To be called again.
        """
        return (yield from self._in_turn(self._release(partitions)))

    def _release(self, partitions: Collection[PartitionKey]) -> Work[frozenset[PartitionKey]]:
        with self._lock:
            # Others of these were lost since, and are perhaps claimed again.
            revoked = frozenset(filter(self.claiming.revokes, partitions))
        if revoked:
            yield from self._owners.release.steps(revoked)
        with self._lock:
            for key in revoked:
                self.claiming.released(key)
        return revoked

    @stepwise
    def look_after(self) -> Work[frozenset[PartitionKey]]:
        """Take notice of claims that another hand took away: others may have these partitions.
        Costs nothing while nothing changes. What is gone.

        Raises:
            HQueueError: it is not known now.
        """
        gone = yield from self._in_turn(self._look_after())
        if gone:
            logger.warning("another program removed claims: %s", sorted(gone)[:10])
        return gone

    def _look_after(self) -> Work[frozenset[PartitionKey]]:
        with self._lock:
            claims, session = self.claiming.claims, self.claiming.session
        gone = yield from self._guard.lost.steps(claims)
        with self._lock:
            if session != self.claiming.session:
                return frozenset()
            return self.claiming.taken_away(gone)

    @stepwise
    def give_up(self) -> Work[None]:
        """Release all that it has or may have, whatever is under way. Its user ends.

        Raises:
            HQueueError: it goes with the session.
        """
        with self._lock:
            held = self.claiming.held
        yield from self._owners.release.steps(held)

    def close(self) -> None:
        """Look after nothing any more. Never raises."""
        self._guard.close()

    def _in_turn(self, work: Work[Result]) -> Work[Result]:
        return self._requests.take(work, REQUESTS_S, _late)


def _late() -> StoreUnavailableError:
    return StoreUnavailableError(
        "another request for the same claims is still under way: try again",
        outcome=Outcome.NOT_APPLIED,
    )
