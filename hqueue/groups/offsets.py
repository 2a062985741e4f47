"""How far a group is in each partition, and who may say so."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping

from hqueue.errors import Outcome, StoreUnavailableError
from hqueue.groups.paths import GroupPaths
from hqueue.message import MessageID
from hqueue.metadata import MetadataStore, PartitionKey
from hqueue.metadata.encoding import decode_offset, encode_offset
from hqueue.metadata.ports import Change, Record, Version

__all__ = ["GroupOffsets", "Offset"]


TRIES_MAX = 100
"""How often an offset may be changed by others while it is taken over."""


@dataclasses.dataclass(frozen=True, slots=True)
class Offset:
    """How far a group is in a partition."""

    next: MessageID
    """The first ID that the group has not consumed yet. It need not be that of a message."""
    version: Version
    """What a commit compares: another after each commit, and after each take-over."""


class GroupOffsets:
    """How far a group is in each partition. Thread-safe.

    **Fencing**: a consumer that claims a partition takes its offset over, which gives it another
    version; and a commit counts only for the version that its sender knows. So a consumer that lost
    the partition, and has not noticed, commits nothing any more, however late its request arrives;
    and what it committed before is where its successor begins.

    Records name their writer: of two that write the same offset, each knows which was its own.

    Args:
        store: where the offsets lie.
        paths: the group's.
    """

    def __init__(self, store: MetadataStore, paths: GroupPaths) -> None:
        self._store = store
        self._paths = paths

    def read(self, partitions: Iterable[PartitionKey]) -> dict[PartitionKey, Offset]:
        """Those of these offsets that exist, in a few round trips."""
        return self._decoded(self._store.records.read(map(self._paths.offset, partitions)))

    def list(self) -> dict[PartitionKey, Offset]:
        """Every offset of the group."""
        return self._decoded(self._store.records.list(self._paths.offsets, 2))

    def take_over(
        self,
        consumer: str,
        partitions: Collection[PartitionKey],
        start: Callable[[PartitionKey], MessageID],
    ) -> dict[PartitionKey, Offset]:
        """Let nobody else commit in these partitions, which this consumer has claimed.

        Args:
            consumer: its ID in this session.
            partitions: which.
            start: where one begins that has no offset yet.

        Returns:
            Each partition's offset, which stays what it was.

        Raises:
            StoreUnavailableError: the store, or others that change the offsets, left no way.
        """
        taken: dict[PartitionKey, Offset] = {}
        for _ in range(TRIES_MAX):
            left = [key for key in partitions if key not in taken]
            if not left:
                return taken
            known = self.read(left)
            missing = {
                self._paths.offset(key): encode_offset(start(key), consumer)
                for key in left
                if key not in known
            }
            if missing:
                known |= self._decoded(self._store.records.create(missing))
            # One that is created is taken over as well: it may be another's that was faster.
            taken |= self.commit(consumer, {key: (known[key], known[key].next) for key in known})
        raise StoreUnavailableError(
            "others keep changing these offsets", outcome=Outcome.NOT_APPLIED, partitions=left
        )

    def commit(
        self, consumer: str, moves: Mapping[PartitionKey, tuple[Offset, MessageID]]
    ) -> dict[PartitionKey, Offset]:
        """Move offsets, each if nobody changed it since it was known; many in few round trips.

        Args:
            consumer: the ID of the one that commits.
            moves: for each partition the offset that is known, and where it goes: also back.

        Returns:
            Those that were moved. Where one is missing, another consumer has the partition now,
            or the offset was set by hand.

        Raises:
            StoreUnavailableError: with an outcome; some may have been moved.
        """
        paths = {self._paths.offset(key): key for key in moves}
        versions = self._store.records.write(
            {
                path: Change(encode_offset(moves[key][1], consumer), moves[key][0].version)
                for path, key in paths.items()
            }
        )
        return {
            paths[path]: Offset(moves[paths[path]][1], version)
            for path, version in versions.items()
            if version is not None
        }

    def _decoded(self, found: Mapping[str, Record]) -> dict[PartitionKey, Offset]:
        return {
            key: Offset(decode_offset(record.value, path), record.version)
            for path, record in found.items()
            if (key := self._paths.partition_key(path)) is not None
        }
