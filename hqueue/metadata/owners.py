"""The owners of partitions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from hqueue.errors import UnsupportedFormatError
from hqueue.metadata.directory import Directory
from hqueue.metadata.encoding import decode_owner, encode_owner
from hqueue.metadata.own_keys import OwnKeys
from hqueue.metadata.ports import MetadataStore, Record, Watch
from hqueue.metadata.records import PartitionKey
from hqueue.metadata.steps import Claim, OnStore, Read, Release, Work
from hqueue.runtime.loop import BackgroundLoop
from hqueue.runtime.stepwise import stepwise

__all__ = ["ClaimGuard", "OwnerPaths", "Owners"]

OWNER_DEPTH = 2


class OwnerPaths(Protocol):
    """The paths of claims."""

    @property
    def owners(self) -> str:
        """The prefix of all claims, which lie two segments below it."""

    def owner(self, key: PartitionKey) -> str:
        """The path of a partition's claim."""

    def partition_key(self, path: str) -> PartitionKey | None:
        """The partition of a claim; None for a path that hqueue did not make."""


class Owners(OnStore):
    """The claims of partitions, each by a worker that serves it or by a consumer of a group.
    Thread-safe.

    A claim lasts as long as its owner's session.

    Args:
        store: the store of the claims.
        paths: the path of each claim.
        role: the name of an owner's role in the record.
    """

    def __init__(self, store: MetadataStore, paths: OwnerPaths, role: str = "worker") -> None:
        super().__init__(store)
        self._paths = paths
        self._role = role
        self._claims = Directory(
            store, paths.owners, OWNER_DEPTH, self._decode, "a claim", alone=True
        )

    @stepwise
    def claim(self, owner: str, partitions: Collection[PartitionKey]) -> Work[set[PartitionKey]]:
        """Claim partitions that have no owner. Returns those that this session has now, earlier
        ones included.

        After a lost session, claims are not made again by themselves: the owner must claim again.
        """
        wanted = {self._paths.owner(key): key for key in partitions}
        value = encode_owner(owner, self._role)
        claimed = yield Claim(dict.fromkeys(wanted, value))
        return {wanted[path] for path in claimed}

    @stepwise
    def release(self, partitions: Collection[PartitionKey]) -> Work[None]:
        """Release claims of this session; claims of others stay. Missing claims count as
        released.
        """
        yield Release([*map(self._paths.owner, partitions)])

    def guard(self, owner: str, on_change: Callable[[], None]) -> ClaimGuard:
        """Detect which claims of this session are gone.

        Args:
            owner: the owner that made them.
            on_change: as `OwnKeys` takes it.
        """
        value = encode_owner(owner, self._role)
        return ClaimGuard(OwnKeys(self._store, on_change), self._paths, value)

    @stepwise
    def read(self, partitions: Collection[PartitionKey]) -> Work[Mapping[PartitionKey, str]]:
        """The owner of each of these partitions that is claimed."""
        return self._claims.view((yield Read([*map(self._paths.owner, partitions)])))

    @stepwise
    def list(self) -> Work[Mapping[PartitionKey, str]]:
        """Every claim: the owner of each claimed partition."""
        return (yield from self._claims.list())

    @stepwise
    def inspect(
        self,
    ) -> Work[tuple[Mapping[PartitionKey, str], Mapping[PartitionKey, UnsupportedFormatError]]]:
        """Every claim: the owner of each claimed partition, and the claims that can't be read."""
        owners, unreadable = yield from self._claims.inspect()
        keys = {self._paths.partition_key(path): error for path, error in unreadable.items()}
        return owners, {key: error for key, error in keys.items() if key is not None}

    def watch(
        self,
        listener: Callable[[Mapping[PartitionKey, str]], None],
        loop: BackgroundLoop | None = None,
    ) -> Watch:
        """Report the claims to a listener, as `MetadataStore.watch`."""
        return self._claims.watch(listener, loop)

    def _decode(self, path: str, found: Mapping[str, Record]) -> tuple[PartitionKey, str] | None:
        key = self._paths.partition_key(path)
        return None if key is None else (key, decode_owner(found[path].value, path, self._role))


class ClaimGuard(OnStore):
    """Finds claims that another client removed although their session lives. Made by
    `Owners.guard`. Thread-safe.
    """

    def __init__(self, own: OwnKeys, paths: OwnerPaths, value: bytes) -> None:
        super().__init__(own.store)
        self._own = own
        self._paths = paths
        self._value = value

    @stepwise
    def lost(self, partitions: Collection[PartitionKey]) -> Work[set[PartitionKey]]:
        """Those of these partitions whose claim by this session is gone. Claims that another client
        overwrote are restored.

        Raises:
            HQueueError: the store can't be read now.
        """
        claims = {self._paths.owner(key): key for key in partitions}
        missing = yield from self._own.missing(dict.fromkeys(claims, self._value))
        return {claims[path] for path in missing}

    def close(self) -> None:
        """Stop reporting. Never raises."""
        self._own.close()
