"""Which worker serves a partition, in ZooKeeper."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial

from hqueue.errors import UnsupportedFormatError
from hqueue.metadata import PartitionKey
from hqueue.metadata.encoding import decode_owner, encode_owner
from hqueue.runtime.clock import Deadline
from hqueue.metadata.paths import Paths
from hqueue.zookeeper.requests import create, delete, exists
from hqueue.zookeeper.session import PIPELINED_MAX, Session
from hqueue.zookeeper.records import Leaf, below, leaves
from hqueue.zookeeper.tree_cache import TreeCache

__all__ = ["Ownership"]

logger = logging.getLogger(__name__)

OWNER_DEPTH = 2


class Ownership:
    """The `OwnerPort` on ZooKeeper. Thread-safe."""

    def __init__(self, session: Session, paths: Paths) -> None:
        self._session = session
        self._paths = paths

    def claim(self, worker: str, partitions: Collection[PartitionKey]) -> set[PartitionKey]:
        """As `OwnerPort.claim`. What this session claimed before counts as claimed.

        A portion at a time, so that what another has takes up no room in this one's sessions.
        """
        keys = {self._paths.owner(key): key for key in partitions}
        data = encode_owner(worker)
        deadline = self._session.deadline()
        own: list[str] = []
        for portion in _portions(list(keys)):
            own += deadline.run(partial(self._claim, portion, data, deadline))
        return {keys[path] for path in own}

    def _claim(self, paths: list[str], data: bytes, deadline: Deadline) -> list[str]:
        members = self._session.members.allocate([[path] for path in paths], deadline)
        answers = self._session.run(
            [(path, create(path, data, ephemeral=True)) for path in paths], deadline, members
        )
        created = {
            path
            for path, answer in zip(paths, answers, strict=True)
            if not isinstance(answer, Exception)
        }
        known = self._own([path for path in paths if path not in created], deadline)
        return [path for path in paths if path in created or path in known]

    def release(self, partitions: Collection[PartitionKey]) -> None:
        """As `OwnerPort.release`."""
        deadline = self._session.deadline()
        for portion in _portions([self._paths.owner(key) for key in partitions]):
            deadline.run(partial(self._release, portion, deadline))

    def _release(self, paths: list[str], deadline: Deadline) -> None:
        own = sorted(self._own(paths, deadline))
        members = self._session.members.holders(own, deadline)
        self._session.run([(path, delete(path)) for path in own], deadline, members)
        self._session.members.settle((path, None) for path in own)

    def _own(self, paths: Sequence[str], deadline: Deadline) -> set[str]:
        """Those of these nodes that are this session's. The others count for it no more."""
        members = self._session.members.holders(paths, deadline)
        stats = self._session.run([(path, exists(path)) for path in paths], deadline, members)
        owners = [
            (path, None if stat is None else stat.ephemeralOwner)
            for path, stat in zip(paths, stats, strict=True)
        ]
        self._session.members.settle(owners)
        return {path for path, owner in owners if owner and self._session.members.is_own(owner)}

    def list(self) -> Mapping[PartitionKey, str]:
        """As `OwnerPort.list`."""
        deadline = self._session.deadline()

        def look() -> Mapping[str, Leaf]:
            queues = below(self._session, [self._paths.owners], deadline)
            partitions = below(self._session, queues, deadline)
            return leaves(self._session, partitions, deadline)

        return self._view(deadline.run(look))

    def watch(self, listener: Callable[[Mapping[PartitionKey, str]], None]) -> TreeCache:
        """As `OwnerPort.watch`."""
        return TreeCache(
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


def _portions(paths: Sequence[str]) -> Iterator[list[str]]:
    for first in range(0, len(paths), PIPELINED_MAX):
        yield list(paths[first : first + PIPELINED_MAX])
