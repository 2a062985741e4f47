"""Which partitions the members of a group get, as one of them sees it. Pure: its driver hears of
the group, and writes the plan.
"""

from __future__ import annotations

from collections.abc import Mapping

from hqueue.groups.assignors import Assignment, Assignor, GroupView
from hqueue.metadata import PartitionKey

__all__ = ["Planning"]


class Planning:
    """Finds out which partitions a member gets. Not thread-safe.

    One member plans for all: the *leader*, the first by name of those that are present. The others
    follow what it wrote last. So the work and the requests of a change grow with the group, and
    not with its square; and what is planned next stands on what was planned before, which nobody
    needs to read from the claims. A leader that ends has a successor as soon as that is seen. What
    two write that both think they lead is planned again by the one that does.

    Or each member reckons for itself, from members and partitions alone, as Kafka's first consumers
    did.

    Args:
        member: its name in the group.
        assignor: who gets what.
        led: whether the leader plans for it.
    """

    def __init__(self, member: str, assignor: Assignor, *, led: bool) -> None:
        self._member = member
        self._assignor = assignor
        self._led = led
        self._members: Mapping[str, Mapping[str, int]] = {}
        self._partitions: Mapping[PartitionKey, str | None] | None = None
        """Those that there are; None if that is not known."""
        self._plan: Mapping[PartitionKey, str] | None = None
        """The plan that was written last, and could be read; None if it is not known."""
        self._readable = True
        """Whether what was written last is that plan."""
        self._stands = True
        """Whether nothing has changed since it was planned, or looked at."""
        self.regrouped = True
        """Whether members or partitions have changed since that was acted on."""

    @property
    def members(self) -> Mapping[str, Mapping[str, int]]:
        """Those that are present."""
        return self._members

    @property
    def size(self) -> int:
        """The number of members and partitions, which the time for a plan grows with."""
        return len(self._members) + len(self._partitions or ())

    def see_members(self, members: Mapping[str, Mapping[str, int]]) -> None:
        """These are present, with this many streams of each queue."""
        self.regrouped |= members != self._members
        self._members, self._stands = members, False

    def see_partitions(self, partitions: Mapping[PartitionKey, str | None]) -> None:
        """There are these partitions, with their regions' hosts."""
        known = self._partitions
        self.regrouped |= known is None or partitions.keys() != known.keys()
        self._partitions, self._stands = partitions, False

    def see_plan(self, plan: Mapping[PartitionKey, str] | None) -> None:
        """This was written last. None if it can't be read: the one before is followed on, until the
        leader has written another.
        """
        self._readable, self._stands = plan is not None, False
        self._plan = (self._plan or {}) if plan is None else plan

    def see_nothing_written(self) -> None:
        """The plan that it had to write was not written: plan once more."""
        self._stands = False

    def acted_on(self, seen: Planning) -> None:
        """What a copy of this, made before, has found out is done now."""
        is_read = self._plan is seen._plan and self._readable is seen._readable
        self._stands |= seen._stands and is_read and self._is_group_of(seen)
        self.regrouped &= not self._is_group_of(seen)

    def _is_group_of(self, seen: Planning) -> bool:
        return self._members is seen._members and self._partitions is seen._partitions

    @property
    def reckons(self) -> bool:
        """Whether this member finds out what changes when the group does: as its leader, or for
        itself.
        """
        return not self._led or self._member == min(self._members, default=None)

    def replan(self) -> Assignment | None:
        """What this member must write as the plan; None if it does not lead, or the plan stands."""
        before, partitions = self._plan, self._partitions
        leads = self._led and self.reckons
        if self._stands or not leads or before is None or partitions is None:
            return None
        self._stands = True
        plan = self._assignor(GroupView(self._members, partitions, before))
        # What others consume, and this member has not looked at yet, stays as it is.
        known = {key.queue for key in partitions}
        plan |= {
            key: member
            for key, member in before.items()
            if key.queue not in known and key.queue in self._members.get(member, {})
        }
        return None if plan == before and self._readable else plan

    def wanted(self) -> frozenset[PartitionKey]:
        """The partitions that this member gets."""
        streams = self._members.get(self._member, {})
        if self._led:
            plan: Mapping[PartitionKey, str] = self._plan or {}
        else:
            plan = self._assignor(GroupView(self._members, self._partitions or {}))
        return frozenset(
            k for k, member in plan.items() if member == self._member and k.queue in streams
        )
