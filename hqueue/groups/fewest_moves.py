"""Making an even assignment with the fewest moves out of any even one."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence

from hqueue.metadata import PartitionKey

__all__ = ["with_fewest_moves"]

_Node = tuple[str, str | int]
"""A member, a queue, or those members that have this many partitions."""
_MEMBER, _QUEUE, _LOAD = "member", "queue", "load"


def with_fewest_moves(
    plan: Mapping[PartitionKey, str],
    owners: Mapping[PartitionKey, str],
    subscribers: Mapping[str, Sequence[str]],
) -> dict[PartitionKey, str]:
    """An assignment that is as even as this one, which is as even as can be, and in which as few
    partitions as possible have left their owners.

    All of that is a flow of partitions to members whose cost is what has moved. It costs least when
    no exchange is left that saves a move: a circle of members each of which gives one partition to
    the next, where the circle may also lead from a member to one that has one partition more, which
    only exchanges how much the two have. Such a circle is one of negative length in a graph where a
    partition that returns to its owner counts -1, one that another member has or that has no owner
    0, and one that leaves its owner 1 (Klein, 1967). Where all are with their owners there is no
    negative length, and nothing is looked for.

    Args:
        plan: a member for each partition; all members count each partition alike.
        owners: the owner of each partition that has one, and whose owner may keep it.
        subscribers: the members of each queue.
    """
    exchanges = _Exchanges(plan, owners, subscribers)
    while (circle := exchanges.circle()) is not None:
        exchanges.exchange(circle)
    return exchanges.plan


class _Exchanges:
    """Exchanges of partitions between members that make an assignment cheaper."""

    def __init__(
        self,
        plan: Mapping[PartitionKey, str],
        owners: Mapping[PartitionKey, str],
        subscribers: Mapping[str, Sequence[str]],
    ) -> None:
        self.plan = dict(plan)
        self._owners = owners
        self._subscribers = subscribers
        members = sorted({member for each in subscribers.values() for member in each})
        self._load = dict.fromkeys(members, 0)
        # What each member has: of others' by their owners, and of each queue what moves at no cost,
        # and what is its own.
        self._away: dict[str, dict[str, list[PartitionKey]]] = {m: {} for m in members}
        self._loose: dict[str, dict[str, list[PartitionKey]]] = {m: {} for m in members}
        self._own: dict[str, dict[str, list[PartitionKey]]] = {m: {} for m in members}
        for key in sorted(plan):
            self._put(key, plan[key])
        self._having: dict[int, list[str]] = defaultdict(list)
        for member in members:
            self._having[self._load[member]].append(member)

    def circle(self) -> list[_Node] | None:
        """Nodes, each of which leads to the next, and the last to the first, at a cost below 0."""
        began: list[_Node] = [(_MEMBER, member) for member, away in self._away.items() if away]
        cost: Counter[_Node] = Counter()
        came_by: dict[_Node, _Node] = {}
        waiting = deque[_Node](began)
        queued = set(began)
        while waiting:
            node = waiting.popleft()
            queued.discard(node)
            for following, more in self._following(node):
                if cost[node] + more >= cost[following]:
                    continue
                chain = _chain(came_by, node, following)
                if chain[-1] == following:
                    return chain[::-1]
                cost[following] = cost[node] + more
                came_by[following] = node
                if following not in queued:
                    queued.add(following)
                    waiting.append(following)
        return None

    def exchange(self, circle: Sequence[_Node]) -> None:
        """Move what a circle says."""
        begin = next(at for at, (kind, _) in enumerate(circle) if kind == _MEMBER)
        nodes = [*circle[begin:], *circle[: begin + 1]]
        moves: list[tuple[PartitionKey, str]] = []
        giver = str(nodes[0][1])
        by: _Node | None = None
        for kind, name in nodes[1:]:
            if kind != _MEMBER:
                by = kind, name
                continue
            taker = str(name)
            if by is None:
                moves.append((self._away[giver][taker][0], taker))
            elif by[0] == _QUEUE:
                moves.append((self._least(giver, str(by[1])), taker))
            giver, by = taker, None
        for key, taker in moves:
            self._take(key)
            self._put(key, taker)
        self._having.clear()
        for member, load in self._load.items():
            self._having[load].append(member)

    def _following(self, node: _Node) -> Iterator[tuple[_Node, int]]:
        """Where a node leads, and at what cost."""
        kind, name = node
        if kind == _LOAD:
            for member in self._having.get(int(name) + 1, ()):
                yield (_MEMBER, member), 0
            return
        if kind == _QUEUE:
            for member in self._subscribers[str(name)]:
                yield (_MEMBER, member), 0
            return
        member = str(name)
        for owner in self._away[member]:
            yield (_MEMBER, owner), -1
        loose = self._loose[member]
        for queue in loose:
            yield (_QUEUE, queue), 0
        for queue in self._own[member]:
            if queue not in loose:
                yield (_QUEUE, queue), 1
        yield (_LOAD, self._load[member]), 0

    def _least(self, giver: str, queue: str) -> PartitionKey:
        """A partition of a queue that costs least to move anywhere."""
        return (self._loose[giver].get(queue) or self._own[giver][queue])[0]

    def _put(self, key: PartitionKey, member: str) -> None:
        self.plan[key] = member
        self._load[member] += 1
        for kept, group in self._groups(key, member):
            kept.setdefault(group, []).append(key)

    def _take(self, key: PartitionKey) -> None:
        member = self.plan[key]
        self._load[member] -= 1
        for kept, group in self._groups(key, member):
            kept[group].remove(key)
            if not kept[group]:
                del kept[group]

    def _groups(
        self, key: PartitionKey, member: str
    ) -> Iterator[tuple[dict[str, list[PartitionKey]], str]]:
        owner = self._owners.get(key)
        if owner == member:
            yield self._own[member], key.queue
            return
        yield self._loose[member], key.queue
        if owner is not None:
            yield self._away[member], owner


def _chain(came_by: Mapping[_Node, _Node], node: _Node, until: _Node) -> list[_Node]:
    """A node, and those that led to it, up to this one if that is one of them."""
    chain = [node]
    while node != until and node in came_by:
        node = came_by[node]
        chain.append(node)
    return chain
