"""Which member of a group consumes which partition: pure functions, which the group's leader
computes for all, or each member for itself.

Where members come to different assignments for a while, the claims decide: nobody consumes a
partition that another has claimed.
"""

from __future__ import annotations

import dataclasses
import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from hqueue.groups.fewest_moves import with_fewest_moves
from hqueue.metadata import PartitionKey

__all__ = ["ASSIGNORS", "Assignment", "Assignor", "GroupView", "assign_range", "assign_sticky"]

Assignment = dict[PartitionKey, str]
"""A member for each partition."""


@dataclasses.dataclass(frozen=True)
class GroupView:
    """What a member sees of its group."""

    members: Mapping[str, Mapping[str, int]]
    """Each member that is present: how many streams it has of each queue that it consumes."""
    partitions: Mapping[PartitionKey, str | None]
    """Each partition of these queues, with its region's host; None if that is not known."""
    owners: Mapping[PartitionKey, str] = dataclasses.field(default_factory=dict)
    """The assignment before; also of members that are gone."""

    def subscribers(self) -> dict[str, list[str]]:
        """The members of each queue, by name."""
        found: dict[str, list[str]] = {key.queue: [] for key in sorted(self.partitions)}
        for member, streams in sorted(self.members.items()):
            for queue in streams:
                if queue in found:
                    found[queue].append(member)
        return found

    def by_host(self) -> dict[str, list[PartitionKey]]:
        """The partitions of each queue, those of one host side by side."""
        found: dict[str, list[PartitionKey]] = defaultdict(list)
        for key in sorted(self.partitions, key=lambda key: (self.partitions[key] or "", key)):
            found[key.queue].append(key)
        return found


Assignor = Callable[[GroupView], Assignment]
"""A member for every partition whose queue has one. The same for the same view, in any order."""


def assign_range(view: GroupView) -> Assignment:
    """As in Kafka's first consumers: partitions and streams are sorted, each stream gets its slice.

    For each queue T, PT are its partitions, those of one host side by side, and CG the streams of
    the members that consume it, both sorted; stream i gets those from ``i N`` to ``(i + 1) N - 1``
    with ``N = size(PT) / size(CG)``. Where that is not a whole number the first ones get one more,
    so that no partition is left over. Owners play no part.
    """
    plan: Assignment = {}
    subscribers = view.subscribers()
    for queue, partitions in view.by_host().items():
        streams = [
            member for member in subscribers[queue] for _ in range(view.members[member][queue])
        ]
        if not streams:
            continue
        each, more = divmod(len(partitions), len(streams))
        taken = iter(partitions)
        for index, member in enumerate(streams):
            for _ in range(each + (index < more)):
                plan[next(taken)] = member
    return plan


def assign_sticky(view: GroupView) -> Assignment:
    """As even as can be, and with as few moves as that takes.

    A partition stays with its owner unless evenness wants it elsewhere. What nobody has goes where
    there is least; then partitions move, one by one, from members that have more to members that
    have less, also over others between them where these consume other queues. Each such move makes
    the loads more even; where there is none left, and each member has one stream, they are as even
    as can be (an optimal semi-matching: Harvey, Ladner, Lovász and Tamir, 2006). Among partitions
    that could move, those go that keep a region's host together. Then what moved without need is
    exchanged for what its owners have instead: where each member has one stream, or all have the
    same number, no assignment that is as even moves fewer partitions from owners that are there.
    Where numbers of streams differ, the loads are nearly even, and a few more may move.

    Every move is one that evenness needs; so leaders whose views differ for a while come to an even
    assignment all the same.
    """
    plan = _Plan(view)
    plan.deal()
    plan.level()
    assignment = plan.assignment()
    if plan.counts_alike and any(assignment[key] != owner for key, owner in plan.kept.items()):
        return with_fewest_moves(assignment, plan.kept, view.subscribers())
    return assignment


ASSIGNORS: Mapping[str, Assignor] = {"sticky": assign_sticky, "range": assign_range}
"""By the names that settings give them."""


class _Plan:
    """An assignment in the making.

    A partition weighs less for a member with more streams of its queue; weights and loads are
    whole numbers.
    """

    def __init__(self, view: GroupView) -> None:
        self._view = view
        self._subscribers = view.subscribers()
        streams = [count for each in view.members.values() for count in each.values()]
        self._unit = math.lcm(*streams)
        self._weights = {self._unit // count for count in streams}
        self._load = dict.fromkeys(sorted(view.members), 0)
        # For each member, queue and host a heap.
        self._held: dict[str, dict[str, dict[str | None, list[PartitionKey]]]] = {
            member: defaultdict(lambda: defaultdict(list)) for member in self._load
        }
        self._hosts: dict[str, Counter[str | None]] = {member: Counter() for member in self._load}
        self.kept: dict[PartitionKey, str] = {}
        """The partitions whose owners are there and consume them."""
        for key in view.partitions:
            owner = view.owners.get(key)
            if owner is not None and key.queue in view.members.get(owner, {}):
                self.kept[key] = owner
                self._give(key, owner)

    @property
    def counts_alike(self) -> bool:
        """Whether each partition weighs the same for every member."""
        return len(self._weights) <= 1

    def assignment(self) -> Assignment:
        return {
            key: member
            for member, queues in self._held.items()
            for hosts in queues.values()
            for keys in hosts.values()
            for key in keys
        }

    def deal(self) -> None:
        """Give unowned partitions to the members with the fewest, beginning with queues of few
        members.
        """
        had = self.assignment()
        by_host = self._view.by_host()
        for queue in sorted(by_host, key=lambda queue: (len(self._subscribers[queue]), queue)):
            left = [key for key in by_host[queue] if key not in had]
            for member, count in self._shares(queue, len(left)).items():
                chosen = self._together(member, left, count)
                for key in chosen:
                    self._give(key, member)
                left = [key for key in left if key not in chosen]

    def level(self) -> None:
        """Move partitions as long as that makes the loads more even."""
        while any(
            self._relieve(member)
            for member in sorted(self._load, key=lambda m: (-self._load[m], m))
            if self._may_even(member)
        ):
            pass

    def _shares(self, queue: str, count: int) -> dict[str, int]:
        """How many of this many partitions of a queue each member gets: each where is least."""
        members = self._subscribers[queue]
        shares = dict.fromkeys(members, 0)
        heap = [(self._load[member] + self._weight(member, queue), member) for member in members]
        heapq.heapify(heap)
        for _ in range(count if members else 0):
            load, member = heap[0]
            shares[member] += 1
            heapq.heapreplace(heap, (load + self._weight(member, queue), member))
        return shares

    def _together(self, member: str, keys: Sequence[PartitionKey], count: int) -> set[PartitionKey]:
        """This many of these, from the hosts where the member has most."""
        hosts, of = self._hosts[member], self._view.partitions
        if hosts and 0 < count < len(keys):
            keys = sorted(keys, key=lambda key: -hosts[of[key]])
        return set(keys[:count])

    def _may_even(self, member: str) -> bool:
        """Whether one partition less for this member could make the loads more even.

        Where all weigh the same, only if another has less by more than that: so nearly nothing is
        looked at when a group is even.
        """
        if len(self._weights) > 1:
            return True
        return self._load[member] - min(self._load.values()) > max(self._weights, default=0)

    def _relieve(self, member: str) -> bool:
        """Take one partition from this member, if that makes the loads more even; returns whether
        it did.

        Searches breadth first, so that as few other members as possible are involved.
        """
        came_by: dict[str, tuple[str, str]] = {}
        reached, queues = [member], set[str]()
        while reached:
            found: list[str] = []
            for giver in reached:
                for queue in sorted(self._held[giver]):
                    if queue in queues or not self._held[giver][queue]:
                        continue
                    queues.add(queue)
                    for taker in self._subscribers[queue]:
                        if taker != member and taker not in came_by:
                            came_by[taker] = giver, queue
                            found.append(taker)
            lighter = [taker for taker in found if self._load[taker] < self._load[member]]
            for taker in sorted(lighter, key=lambda taker: (self._load[taker], taker)):
                chain = list(_chain(came_by, taker, member))
                if self._evens(chain):
                    for giver, queue, to in chain:
                        self._move(queue, giver, to)
                    return True
            reached = found
        return False

    def _evens(self, chain: Iterable[tuple[str, str, str]]) -> bool:
        """Whether moves, taken together, make the largest of these loads less, or where that stays
        the next one. With one stream each that is a smaller sum of squares.
        """
        change: Counter[str] = Counter()
        for giver, queue, taker in chain:
            change[giver] -= self._weight(giver, queue)
            change[taker] += self._weight(taker, queue)
        before = sorted((self._load[member] for member in change), reverse=True)
        after = sorted((self._load[member] + more for member, more in change.items()), reverse=True)
        return after < before

    def _move(self, queue: str, giver: str, taker: str) -> None:
        less, more = self._hosts[giver], self._hosts[taker]
        held = self._held[giver][queue]
        host = min(held, key=lambda host: (less[host] - more[host], host or ""))
        key = heapq.heappop(held[host])
        if not held[host]:
            del held[host]
        less[host] -= 1
        self._load[giver] -= self._weight(giver, queue)
        self._give(key, taker)

    def _give(self, key: PartitionKey, member: str) -> None:
        host = self._view.partitions[key]
        heapq.heappush(self._held[member][key.queue][host], key)
        self._hosts[member][host] += 1
        self._load[member] += self._weight(member, key.queue)

    def _weight(self, member: str, queue: str) -> int:
        return self._unit // self._view.members[member][queue]


def _chain(
    came_by: Mapping[str, tuple[str, str]], taker: str, first: str
) -> Iterable[tuple[str, str, str]]:
    """The moves that lead from `first` to `taker`: who gives one of which queue to whom."""
    while taker != first:
        giver, queue = came_by[taker]
        yield giver, queue, taker
        taker = giver
