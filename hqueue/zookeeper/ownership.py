"""Which worker serves a partition, in ZooKeeper."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping

from hqueue.coordination import PartitionKey
from hqueue.errors import UnsupportedFormatError
from hqueue.records import decode_owner, encode_owner
from hqueue.zookeeper.mirror import Mirror
from hqueue.zookeeper.paths import Paths
from hqueue.zookeeper.requests import create, delete, exists
from hqueue.zookeeper.session import Session
from hqueue.zookeeper.tree import Leaf, below, leaves

__all__ = ["Ownership"]

logger = logging.getLogger(__name__)

OWNER_DEPTH = 2


class Ownership:
    """The `OwnerPort` on ZooKeeper. Thread-safe."""

    def __init__(self, session: Session, paths: Paths) -> None:
        self._session = session
        self._paths = paths

    def claim(self, worker: str, partitions: Collection[PartitionKey]) -> set[PartitionKey]:
        """As `OwnerPort.claim`. What this session claimed before counts as claimed."""
        paths = {self._paths.owner(key): key for key in partitions}
        data = encode_owner(worker)
        deadline = self._session.deadline()

        def claim() -> set[PartitionKey]:
            session_id = self._session.connect(deadline)
            self._session.run(
                [(path, create(path, data, ephemeral=True)) for path in paths], deadline
            )
            return {paths[path] for path in self._own(paths, session_id)}

        return deadline.run(claim)

    def release(self, partitions: Collection[PartitionKey]) -> None:
        """As `OwnerPort.release`."""
        paths = [self._paths.owner(key) for key in partitions]
        deadline = self._session.deadline()

        def release() -> None:
            own = self._own(paths, self._session.connect(deadline))
            self._session.run([(path, delete(path)) for path in own], deadline)

        deadline.run(release)

    def _own(self, paths: Collection[str], session_id: int) -> list[str]:
        """Those of these nodes that are this session's."""
        stats = self._session.run(
            [(path, exists(path)) for path in paths], self._session.deadline()
        )
        return [
            path
            for path, stat in zip(paths, stats, strict=True)
            if stat is not None and stat.ephemeralOwner == session_id
        ]

    def list(self) -> Mapping[PartitionKey, str]:
        """As `OwnerPort.list`."""
        deadline = self._session.deadline()

        def look() -> Mapping[str, Leaf]:
            queues = below(self._session, [self._paths.owners], deadline)
            partitions = below(self._session, queues, deadline)
            return leaves(self._session, partitions, deadline)

        return self._view(deadline.run(look))

    def watch(self, listener: Callable[[Mapping[PartitionKey, str]], None]) -> Mirror:
        """As `OwnerPort.watch`."""
        return Mirror(
            self._session,
            self._paths.owners,
            OWNER_DEPTH,
            lambda found: listener(self._view(found)),
        )

    def _view(self, found: Mapping[str, Leaf]) -> dict[PartitionKey, str]:
        view = {}
        for path, leaf in found.items():
            key = self._paths.partition_key(path)
            try:
                if key is not None:
                    view[key] = decode_owner(leaf.data, path)
            except UnsupportedFormatError as exc:
                logger.warning("a claim is left out: %s", exc)
        return view
