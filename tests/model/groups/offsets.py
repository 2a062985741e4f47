"""The group's offsets, as the service keeps them."""

from __future__ import annotations

from collections.abc import Iterable

from hqueue.metadata import PartitionKey

from .commits import Commit, Known
from .rules import Rules, ViolationError

__all__ = ["Offsets"]


class Offsets:
    """How far the group is in each partition, and who said so last.

    Args:
        keys: the partitions.
        rules: those that are kept.
    """

    def __init__(self, keys: Iterable[PartitionKey], rules: Rules) -> None:
        self._rules = rules
        self.versions = dict.fromkeys(keys, 0)
        self.positions = self.versions.copy()
        self.writers = dict.fromkeys(self.versions, "")
        self.claims = self.versions.copy()
        """How many take-overs have begun."""
        self.consumers = self.versions.copy()
        """The take-over by which a partition is consumed."""

    def copied(self) -> Offsets:
        other = Offsets((), self._rules)
        other.versions = self.versions.copy()
        other.positions = self.positions.copy()
        other.writers = self.writers.copy()
        other.claims = self.claims.copy()
        other.consumers = self.consumers.copy()
        return other

    def begin_claim(self, key: PartitionKey) -> int:
        """The number of another take-over."""
        self.claims[key] += 1
        return self.claims[key]

    def bump(self, name: str, key: PartitionKey, claim: int, position: int) -> Known:
        """The version is counted up, and the partition is consumed from there."""
        if self._rules.claims_bump_the_version:
            self.versions[key] += 1
        self.positions[key], self.writers[key] = position, name
        self.consumers[key] = claim
        return Known(self.versions[key], claim, position)

    def distance(self, key: PartitionKey, version: int, position: int) -> object:
        """Whether a version is that of the offset, and how far from it a position is."""
        return key, version == self.versions[key], position - self.positions[key]

    def read(self, key: PartitionKey) -> tuple[int, str, int]:
        """A position, who wrote it, and its version."""
        return self.positions[key], self.writers[key], self.versions[key]

    def write(self, name: str, commit: Commit) -> int | None:
        """Make a commit, if the offset has its version; the one that it has then.

        Raises:
            ViolationError: it is made, and was decided for another claim.
        """
        key = commit.key
        if self._rules.commits_compare_the_version and commit.version != self.versions[key]:
            return None
        self.versions[key] += 1
        self.positions[key], self.writers[key] = commit.position, name
        if self.consumers[key] != commit.claim:
            raise ViolationError(f"{name} moved the offset of {key}, which is another claim's")
        return self.versions[key]
