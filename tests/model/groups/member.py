"""A member's process: what it knows, and what it has under way."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable

from hqueue.groups.planning import Planning
from hqueue.metadata import PartitionKey
from hqueue.metadata.claiming import Claiming, Steps

from .commits import Commit, Known
from .offsets import Offsets

__all__ = ["Member", "Plan"]

Plan = tuple[tuple[PartitionKey, str], ...]


@dataclasses.dataclass
class Member:
    """A member as it is."""

    claiming: Claiming
    planning: Planning
    session: int
    seen_members: frozenset[str] = frozenset()
    seen_plan: Plan | None = None
    leased: bool = True
    """Whether it may be certain that its session lives. Until that is over, the session is."""
    alive: bool = True
    begun: dict[PartitionKey, str] = dataclasses.field(default_factory=dict)
    """Claims and releases under way, and how far each is."""
    late: set[PartitionKey] = dataclasses.field(default_factory=set)
    """Releases that its consumer makes for a session that is over."""
    claims: dict[PartitionKey, int] = dataclasses.field(default_factory=dict)
    """Its last take-over of each partition, by its number."""
    read: dict[PartitionKey, tuple[int, int]] = dataclasses.field(default_factory=dict)
    """Of what it claims: the version and the position that it has read."""
    assigned: dict[PartitionKey, Known] = dataclasses.field(default_factory=dict)
    """What it has claimed, and its consumer has not accepted."""
    known: dict[PartitionKey, Known] = dataclasses.field(default_factory=dict)
    """What its consumer has accepted: hands out, and commits for."""
    commits: tuple[Commit, ...] = ()
    """What its consumer is to commit, one after the other: the first may be under way."""
    refused: set[PartitionKey] = dataclasses.field(default_factory=set)

    def copied(self) -> Member:
        return dataclasses.replace(
            self,
            claiming=_copied(self.claiming),
            planning=copy.copy(self.planning),
            begun=self.begun.copy(),
            late=self.late.copy(),
            claims=self.claims.copy(),
            read=self.read.copy(),
            assigned=self.assigned.copy(),
            known=self.known.copy(),
            refused=self.refused.copy(),
        )

    def key(self, offsets: Offsets) -> object:
        """Differs for different states. Of versions and claims it matters only which are the same,
        and of positions how far they are apart: so states do not differ by how often something was
        done before.
        """
        return (
            sorted(self.claiming._phases.items(), key=str),
            sorted(self.claiming._outdated),
            sorted(self.claiming._doubtful),
            sorted(self.claiming._wanted),
            self.claiming.leaving,
            sorted((self.planning._plan or {}).items()),
            self.planning._stands,
            self.planning.regrouped,
            sorted(self.seen_members),
            self.seen_plan,
            self.leased,
            self.alive,
            sorted(self.begun.items()),
            sorted(self.late),
            [offsets.distance(key, *read) for key, read in sorted(self.read.items())],
            self._known_key(self.assigned, offsets),
            self._known_key(self.known, offsets),
            [self._commit_key(commit, offsets) for commit in self.commits],
            sorted(self.refused),
        )

    def _known_key(self, each: dict[PartitionKey, Known], offsets: Offsets) -> object:
        return [
            (
                offsets.distance(key, known.version, known.position),
                self._claim_key(key, known.claim, offsets),
            )
            for key, known in sorted(each.items())
        ]

    def _commit_key(self, commit: Commit, offsets: Offsets) -> object:
        key, known = commit.key, self.known.get(commit.key)
        return (
            offsets.distance(key, commit.version, commit.position),
            commit.stage,
            self._claim_key(key, commit.claim, offsets),
            self._claim_key(key, commit.known_by[1], offsets),
            known and known.by == commit.known_by,
        )

    def _claim_key(self, key: PartitionKey, claim: int, offsets: Offsets) -> object:
        return claim == offsets.consumers[key], claim == self.claims[key]

    # What it does next.

    def plans(self) -> bool:
        """Whether it has a plan to write."""
        return copy.copy(self.planning).replan() is not None

    def next_steps(self) -> Steps:
        """What must be done now."""
        claiming = _copied(self.claiming)
        claiming.request(self.planning.wanted(), regrouped=self.planning.regrouped)
        return claiming.steps()

    def requests(self) -> Iterable[PartitionKey]:
        """The partitions that may be asked next: what was handed out of one is
        committed before it is given up.
        """
        for key, stage in self.begun.items():
            if not (stage == "release" and self.commits and key in self.known):
                yield key

    def answer(self, key: PartitionKey, *, owned: bool = False, doubtful: bool = False) -> None:
        """Its claim of a partition ends so."""
        asked = Steps(frozenset([key]), session=self.claiming.session)
        self.claiming.answered(asked, [key] * owned, [key] * doubtful)

    # What its consumer does.

    def accept(self) -> None:
        """Begin what was claimed."""
        self.known |= self.assigned
        self.assigned.clear()

    def hand_out(self, key: PartitionKey) -> None:
        """Hand out one more message, which must be committed."""
        known = self.known[key]
        self.known[key] = dataclasses.replace(known, position=known.position + 1)
        self.commits += (Commit(key, known.claim, known.position + 1),)

    @property
    def sent(self) -> Commit | None:
        """The commit whose answer it waits for."""
        return self.commits[0] if self.commits and self.commits[0].is_under_way else None

    def turn_commit(self, commit: Commit) -> None:
        """The first of its commits is so far now."""
        self.commits = commit, *self.commits[1:]

    def end_commit(self, version: int | None) -> None:
        """The first of its commits is over; with the version that it gave the offset, if it did."""
        commit, self.commits = self.commits[0], self.commits[1:]
        known = self.known.get(commit.key)
        if version is not None and known is not None and known.by == commit.known_by:
            self.known[commit.key] = dataclasses.replace(known, version=version)

    def drop(self) -> None:
        """What it had was its session's."""
        self.claiming.lost()
        for each in (self.read, self.assigned, self.known):
            each.clear()


def _copied(claiming: Claiming) -> Claiming:
    other = copy.copy(claiming)
    other._phases = claiming._phases.copy()
    other._outdated = claiming._outdated.copy()
    return other
