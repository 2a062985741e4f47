"""Who the members of a subscriber are, that share its partitions, and where they lie.

    <root>/subscribers/<queue>/consumers/<subscriber>/ids/<partitions>/<member>     ephemeral
    <root>/subscribers/<queue>/consumers/<subscriber>/owners/<queue>/0-<partition>  ephemeral
    <root>/subscribers/<queue>/consumers/<subscriber>/plan/<partitions>             who gets what

It is a group as those of consumers (`hqueue.groups.paths`), in a tree of its own; without offsets,
for how far a subscriber is its checkpoints say. Members that want the same partitions divide these
among them; ``<partitions>`` is ``all``, or which. The claims are one another's in any case: where
two want different partitions, what both want is the one's who has it, for as long as he has it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection

from hqueue.groups.paths import GroupPaths
from hqueue.metadata import Coordination
from hqueue.metadata.ports import ANY
from hqueue.metadata.steps import Delete, Keys, Work

__all__ = ["MemberPaths", "connected_members", "delete_members"]

ALL = "all"
LEVELS_ABOVE = 4
"""Above what claims and members lie below there is nothing but what leads there."""


class MemberPaths(GroupPaths):
    """The paths of the members of one subscriber that want the same partitions.

    Args:
        coordination: where they lie.
        queue: the queue.
        subscriber: the subscriber's name.
        partitions: those that they want; all of the queue's if None.
    """

    def __init__(
        self,
        coordination: Coordination,
        queue: str,
        subscriber: str,
        partitions: Collection[int] | None,
    ) -> None:
        super().__init__(coordination.paths.members(queue), subscriber)
        self.everyone = self.ids
        self.ids = f"{self.everyone}/{_label(partitions)}"
        self.plan = f"{self.plans}/{_label(partitions)}"


def connected_members(
    coordination: Coordination, queue: str, subscriber: str
) -> Work[Collection[str]]:
    """The keys of all members of a subscriber that are connected, or seem to be."""
    everyone = MemberPaths(coordination, queue, subscriber, None).everyone
    found: Collection[str] = yield Keys(everyone, 2)
    return found


def delete_members(coordination: Coordination, queue: str, subscriber: str) -> Work[None]:
    """Remove the nodes that led to members, if there are none any more."""
    paths = MemberPaths(coordination, queue, subscriber, None)
    left: list[str] = []
    for above in (paths.everyone, paths.owners, paths.plans):
        left += yield Keys(above, 1)
    yield Delete(dict.fromkeys(left, ANY), LEVELS_ABOVE)


def _label(partitions: Collection[int] | None) -> str:
    """A short name of a choice of partitions: the same for the same."""
    if partitions is None:
        return ALL
    listed = ",".join(map(str, sorted(partitions)))
    return hashlib.sha256(listed.encode()).hexdigest()[:16]
