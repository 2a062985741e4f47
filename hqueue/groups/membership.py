"""What a member of a group does next: which partitions it claims, and which it gives up. Pure: its
driver makes the requests, and says what became of them.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable

from hqueue.groups.assignors import Assignor, GroupView
from hqueue.metadata import PartitionKey

__all__ = ["Membership", "Steps"]


class _Stage(enum.Enum):
    """How far this member is with a partition."""

    CLAIMING = enum.auto()
    OWNED = enum.auto()
    REVOKING = enum.auto()


@dataclasses.dataclass(frozen=True)
class Steps:
    """What is to be done now, in any order."""

    claim: frozenset[PartitionKey] = frozenset()
    """To be claimed. Each ends with `Membership.claimed` or `Membership.refused`."""
    revoke: frozenset[PartitionKey] = frozenset()
    """To be given up, as soon as what was handed out of them is done with. Each ends with
    `Membership.released`."""
    release: frozenset[PartitionKey] = frozenset()
    """To be released at once: it seems to have them, and does not know it."""


class Membership:
    """Brings what a member has to what its assignor gives it. Not thread-safe.

    It claims only what nobody has, and gives up only what it has itself: so a partition changes
    hands when its owner lets go, or when that owner's session ends. What it sees may be old, so the
    service decides who has a partition; and what this member did itself counts more than what it
    sees.

    What was refused is claimed again, though nothing changes in what is seen: its owner may
    have come and gone in between. And what it sees as its own, and does not know of, is released:
    the answer to a claim may have been lost.

    Args:
        member: its name in the group.
        assignor: who gets what.
        eager: when the group changes, give up everything before anything is claimed, as seed 004
            has it; else what stays is not touched.
    """

    def __init__(self, member: str, assignor: Assignor, *, eager: bool = False) -> None:
        self.member = member
        self._assignor = assignor
        self._eager = eager
        self._view = GroupView({}, {})
        self._stages: dict[PartitionKey, _Stage] = {}
        self._outdated: set[PartitionKey] = set()
        """What it has had since before the group changed."""
        self._stray: frozenset[PartitionKey] = frozenset()
        self.leaving = False
        """Whether it gives up everything, and claims nothing any more."""

    @property
    def owned(self) -> frozenset[PartitionKey]:
        """What it may consume, for as long as its session is certain to live."""
        return self._at(_Stage.OWNED)

    @property
    def held(self) -> frozenset[PartitionKey]:
        """What it has or may have: also what is being claimed, or given up."""
        return frozenset(self._stages)

    def see(self, view: GroupView) -> None:
        """The group as it is seen now."""
        before, self._view = self._view, view
        if before.members != view.members or before.partitions.keys() != view.partitions.keys():
            self._outdated = set(self._stages)
        own = {key for key, owner in view.owners.items() if owner == self.member}
        self._stray = frozenset(own - self._stages.keys())

    def leave(self) -> None:
        """Give up everything, and claim nothing any more."""
        self.leaving = True

    def lost(self) -> frozenset[PartitionKey]:
        """The session is over, and with it all claims; what was owned until now."""
        owned = self.owned | self._at(_Stage.REVOKING)
        self._stages.clear()
        return owned

    def steps(self) -> Steps:
        """What is to be done now. It counts as begun, and is not named again."""
        wanted = self._wanted()
        stay = wanted - self._outdated if self._eager else wanted
        revoke = self.owned - stay
        self._put(revoke, _Stage.REVOKING)
        claim: frozenset[PartitionKey] = frozenset()
        if not self._eager or not self._at(_Stage.REVOKING):
            claim = wanted - self._stages.keys() - self._owners().keys()
            self._put(claim, _Stage.CLAIMING)
        release, self._stray = self._stray - self._stages.keys(), frozenset()
        return Steps(claim, revoke, release)

    def claimed(self, key: PartitionKey) -> None:
        """A claim that `steps` named is this member's now."""
        self._stages[key] = _Stage.OWNED
        self._outdated.discard(key)

    def refused(self, key: PartitionKey) -> None:
        """A claim that `steps` named is another's, or was not made; `steps` names it again, if it
        still is to be claimed. So the driver waits a little before it asks.
        """
        del self._stages[key]

    def released(self, key: PartitionKey) -> None:
        """What `steps` named for revoking is given up."""
        del self._stages[key]

    def not_released(self, keys: Iterable[PartitionKey]) -> None:
        """What `steps` named for releasing at once could not be; it is named again."""
        self._stray |= frozenset(keys)

    def _wanted(self) -> frozenset[PartitionKey]:
        if self.leaving or self.member not in self._view.members:
            return frozenset()
        plan = self._assignor(dataclasses.replace(self._view, owners=self._owners()))
        return frozenset(key for key, member in plan.items() if member == self.member)

    def _owners(self) -> dict[PartitionKey, str]:
        """Who has what: others as it is seen, and this member as it knows itself."""
        others = {k: owner for k, owner in self._view.owners.items() if owner != self.member}
        claiming = dict.fromkeys(self._at(_Stage.CLAIMING), self.member)
        return claiming | others | dict.fromkeys(self.owned, self.member)

    def _at(self, stage: _Stage) -> frozenset[PartitionKey]:
        return frozenset(key for key, at in self._stages.items() if at is stage)

    def _put(self, keys: Iterable[PartitionKey], stage: _Stage) -> None:
        self._stages.update(dict.fromkeys(keys, stage))
