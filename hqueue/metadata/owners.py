"""Who has a partition."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from hqueue.errors import UnsupportedFormatError
from hqueue.metadata.directory import Directory
from hqueue.metadata.encoding import decode_owner, encode_owner
from hqueue.metadata.ports import MetadataStore, Record, Watch
from hqueue.metadata.records import PartitionKey

__all__ = ["OwnerPaths", "Owners"]

OWNER_DEPTH = 2


class OwnerPaths(Protocol):
    """Where claims lie."""

    @property
    def owners(self) -> str:
        """What all lie below, two segments deep."""

    def owner(self, key: PartitionKey) -> str:
        """Where a partition's lies."""

    def partition_key(self, path: str) -> PartitionKey | None:
        """Which partition a claim is of; None for a path that hqueue did not make."""


class Owners:
    """Who has a partition: a worker that serves it, or a consumer of a group. Thread-safe.

    A claim is present by the claimer's session.

    Args:
        store: where claims lie.
        paths: where each lies.
        role: what an owner is called in the record.
    """

    def __init__(self, store: MetadataStore, paths: OwnerPaths, role: str = "worker") -> None:
        self._store = store
        self._paths = paths
        self._role = role
        self._claims = Directory(
            store, paths.owners, OWNER_DEPTH, self._decode, "a claim", alone=True
        )

    def claim(self, owner: str, partitions: Collection[PartitionKey]) -> set[PartitionKey]:
        """Claim partitions that nobody has; returns those that are this session's now, also those
        that it claimed before.

        Never made again after a lost session: an owner that wants it back claims it again.
        """
        wanted = {self._paths.owner(key): key for key in partitions}
        value = encode_owner(owner, self._role)
        claimed = self._store.ephemerals.claim(dict.fromkeys(wanted, value))
        return {wanted[path] for path in claimed}

    def release(self, partitions: Collection[PartitionKey]) -> None:
        """Give up claims of this session; others stay. What isn't there counts as done."""
        self._store.ephemerals.release(map(self._paths.owner, partitions))

    def read(self, partitions: Collection[PartitionKey]) -> Mapping[PartitionKey, str]:
        """The owners of those of these partitions that are claimed."""
        return self._claims.view(self._store.records.read(map(self._paths.owner, partitions)))

    def list(self) -> Mapping[PartitionKey, str]:
        """Every claim: who has which partition."""
        return self._claims.list()

    def inspect(
        self,
    ) -> tuple[Mapping[PartitionKey, str], Mapping[PartitionKey, UnsupportedFormatError]]:
        """Every claim: who has which partition, and of which it can't be read who has it."""
        owners, unreadable = self._claims.inspect()
        keys = {self._paths.partition_key(path): error for path, error in unreadable.items()}
        return owners, {key: error for key, error in keys.items() if key is not None}

    def watch(self, listener: Callable[[Mapping[PartitionKey, str]], None]) -> Watch:
        """Tell a listener of the claims; as `Subscriptions.watch`."""
        return self._claims.watch(listener)

    def _decode(self, path: str, found: Mapping[str, Record]) -> tuple[PartitionKey, str] | None:
        key = self._paths.partition_key(path)
        return None if key is None else (key, decode_owner(found[path].value, path, self._role))
