"""Which partitions one claims and gives up: a member of a group, a worker, a hub. Pure: its driver
makes the requests (`hqueue.metadata.claimant`), and says what became of them.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Collection, Iterable

from hqueue.metadata.records import PartitionKey

__all__ = ["Claiming", "Steps"]


class _Phase(enum.Enum):
    """How far its owner is with a partition."""

    CLAIMING = enum.auto()
    OWNED = enum.auto()
    REVOKING = enum.auto()


@dataclasses.dataclass(frozen=True)
class Steps:
    """What must be done now, in any order."""

    claim: frozenset[PartitionKey] = frozenset()
    """To be claimed. Each ends with `Claiming.answered`."""
    revoke: frozenset[PartitionKey] = frozenset()
    """To be given up, as soon as what was handed out of them is done with. Each ends with
    `Claiming.released`."""
    release: frozenset[PartitionKey] = frozenset()
    """To be released at once: it may have them, and does not know it. If that fails:
    `Claiming.doubt`."""
    session: int = dataclasses.field(default=0, compare=False)
    """By which of the owner's sessions: counted in `Claiming.lost`."""


class Claiming:
    """Brings a claimant's partitions to those that it requests. Not thread-safe.

    It claims the partitions that it requests, even if another has them, and gives up only its own:
    so a partition changes hands when its owner lets go, or when that owner's session ends. A
    request may be out of date, and others may follow another plan: the service decides who has a
    partition.

    A claim that was refused is made again: the owner gives the partition up sooner or later. What
    it may have, and requests no more, is released: claims without an answer, and what it had when
    it took its session for over, which may live on. An answer counts for the session that asked:
    what comes when that is over is in doubt.

    Args:
        eager: when the group changes, give up everything before anything is claimed, as Kafka's
            first consumers did; else what stays is not touched.
    """

    def __init__(self, *, eager: bool = False) -> None:
        self._eager = eager
        self._session = 0
        self._wanted: frozenset[PartitionKey] = frozenset()
        self._phases: dict[PartitionKey, _Phase] = {}
        self._outdated: set[PartitionKey] = set()
        """What it has had since before the group changed."""
        self._doubtful: frozenset[PartitionKey] = frozenset()
        self.leaving = False
        """Whether it gives up everything, and claims nothing any more."""

    @property
    def session(self) -> int:
        """Counts the sessions that were lost."""
        return self._session

    @property
    def owned(self) -> frozenset[PartitionKey]:
        """What it may use, for as long as its session is certain to live."""
        return self._at(_Phase.OWNED)

    def owns(self, key: PartitionKey) -> bool:
        """Whether `owned` has this one."""
        return self._phases.get(key) is _Phase.OWNED

    @property
    def revoking(self) -> frozenset[PartitionKey]:
        """What it is giving up: `steps` named it, and it is not released yet."""
        return self._at(_Phase.REVOKING)

    def revokes(self, key: PartitionKey) -> bool:
        """Whether `revoking` has this one."""
        return self._phases.get(key) is _Phase.REVOKING

    @property
    def claims(self) -> frozenset[PartitionKey]:
        """What it has claimed: also what it is giving up."""
        return self.owned | self.revoking

    @property
    def held(self) -> frozenset[PartitionKey]:
        """What it has or may have: also what is being claimed, or given up."""
        return frozenset(self._phases) | self._doubtful

    def request(self, keys: Iterable[PartitionKey], *, regrouped: bool = False) -> None:
        """Ask for these partitions, and for no others.

        Args:
            keys: which.
            regrouped: whether the group has changed since the request before.
        """
        self._wanted = frozenset(keys)
        if regrouped:
            self._outdated = set(self._phases)

    def leave(self) -> None:
        """Give up everything, and claim nothing any more."""
        self.leaving = True

    def lost(self) -> frozenset[PartitionKey]:
        """The session is taken for over, and with it all claims; what was owned until now. It is
        in doubt: after a long cut the same session may come back, and with it its claims.
        """
        owned = self.claims
        self._session += 1
        self.doubt(self._phases)
        self._phases.clear()
        return owned

    def taken_away(self, keys: Iterable[PartitionKey]) -> frozenset[PartitionKey]:
        """These claims are gone, by another's hand, while the session lives; those of them that it
        had until now. Those that it requests are claimed again.
        """
        had = frozenset(key for key in keys if self.owns(key) or self.revokes(key))
        for key in had:
            del self._phases[key]
        return had

    def steps(self) -> Steps:
        """What must be done now. It counts as begun, and is not named again."""
        wanted = frozenset() if self.leaving else self._wanted
        stay = wanted - self._outdated if self._eager else wanted
        revoke = self.owned - stay
        self._put(revoke, _Phase.REVOKING)
        claim: frozenset[PartitionKey] = frozenset()
        if not self._eager or not self.revoking:
            claim = wanted - self._phases.keys()
            self._put(claim, _Phase.CLAIMING)
        release, self._doubtful = self._doubtful - self._phases.keys(), frozenset()
        return Steps(claim, revoke, release, self._session)

    def answered(
        self,
        steps: Steps,
        owned: Collection[PartitionKey],
        doubtful: Collection[PartitionKey] = (),
    ) -> frozenset[PartitionKey]:
        """What `steps` named to be claimed and released was asked for; what it owns by that.

        What it does not own `steps` names to be claimed again, if it is still requested: another
        has it. So the driver waits a little before it asks.

        Args:
            steps: what was asked for.
            owned: the claims that are this owner's now, and may be used.
            doubtful: what it may have besides. Where nothing is known, all that was asked for.
        """
        if steps.session != self._session:  # Some of it may be the next session's.
            self.doubt(steps.claim.union(doubtful))
            return frozenset()
        # What was taken out of the phases meanwhile is lost.
        for key in steps.claim & self._at(_Phase.CLAIMING):
            if key in owned:
                self._phases[key] = _Phase.OWNED
                self._outdated.discard(key)
            else:
                del self._phases[key]
        self.doubt(doubtful)
        return frozenset(filter(self.owns, steps.claim))

    def doubt(self, keys: Iterable[PartitionKey]) -> None:
        """It may have these claims, and does not know it: `steps` claims or releases them."""
        self._doubtful |= frozenset(keys)

    def released(self, key: PartitionKey) -> None:
        """What `steps` named for revoking is given up. If it was lost before, and perhaps is being
        claimed again, this says nothing of it.
        """
        if self.revokes(key):
            del self._phases[key]

    def _at(self, phase: _Phase) -> frozenset[PartitionKey]:
        return frozenset(key for key, at in self._phases.items() if at is phase)

    def _put(self, keys: Iterable[PartitionKey], phase: _Phase) -> None:
        self._phases.update(dict.fromkeys(keys, phase))
