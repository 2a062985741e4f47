"""Claims partitions, and gives them up: a member of a group, a worker, a hub."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager

from hqueue.metadata.claiming import Claiming, Steps
from hqueue.metadata.owners import Owners
from hqueue.metadata.records import PartitionKey

__all__ = ["Claimant"]

logger = logging.getLogger(__name__)


class Claimant:
    """What one owner has claimed in its sessions, and the requests by which that changes.

    Thread-safe: `claiming` is used with the `lock` held, which no request holds up. Its user says
    what it is to have (`claiming.want`), when its session is over (`claiming.lost`), and has steps
    carried out. How it comes to what it is to have is its own: a member follows its group's plan,
    and claims also what others have, for it watches no claims; workers and hubs plan by the claims
    that they see, and leave alone what others have.

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
        self.claiming = Claiming(eager=eager)
        """What the owner has claimed, and what it wants."""
        self._owners = owners
        self._owner = owner
        self._lock = lock
        self._requests = threading.Lock()
        """Held while claims are made, released or looked after: a release that takes so long that
        the session is lost must not find what was claimed with the next one."""
        self._guard = owners.guard(owner, on_change)

    def carry_out(
        self,
        steps: Steps,
        begin: Callable[[Collection[PartitionKey]], Collection[PartitionKey]] = frozenset,
    ) -> frozenset[PartitionKey]:
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
            claimed: Collection[PartitionKey] = ()
            with self._requests:
                if steps.release:
                    self._owners.release(steps.release)
                if steps.claim:
                    claimed = self._owners.claim(self._owner, steps.claim)
            owned = begin(claimed) if claimed else ()
            doubtful = set(claimed).difference(owned)
        finally:
            with self._lock:
                counting = self.claiming.answered(steps, owned, doubtful)
        return counting

    def release(self, partitions: Collection[PartitionKey]) -> frozenset[PartitionKey]:
        """Give up those of these that are being given up; which that were.

        Raises:
            HQueueError: they are still its own, perhaps. To be called again.
        """
        with self._requests:
            with self._lock:
                # Others of these were lost since, and are perhaps claimed again.
                revoked = frozenset(filter(self.claiming.revokes, partitions))
            if revoked:
                self._owners.release(revoked)
            with self._lock:
                for key in revoked:
                    self.claiming.released(key)
        return revoked

    def look_after(self) -> frozenset[PartitionKey]:
        """Take notice of claims that another hand took away: others may have these partitions.
        Costs nothing while nothing changes. What is gone.

        Raises:
            HQueueError: it is not known now.
        """
        with self._requests:
            with self._lock:
                claims, session = self.claiming.claims, self.claiming.session
            gone: Collection[PartitionKey] = self._guard.lost(claims)
            with self._lock:
                if session != self.claiming.session:
                    return frozenset()
                gone = self.claiming.taken_away(gone)
        if gone:
            logger.warning("another program removed claims: %s", sorted(gone)[:10])
        return gone

    def give_up(self) -> None:
        """Release all that it has or may have, whatever is under way. Its user ends.

        Raises:
            HQueueError: it goes with the session.
        """
        with self._lock:
            held = self.claiming.held
        self._owners.release(held)

    def close(self) -> None:
        """Look after nothing any more. Never raises."""
        self._guard.close()
