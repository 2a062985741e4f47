"""Which workers are there, in ZooKeeper."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from hqueue.errors import (
    HQueueError,
    InvalidInputError,
    RequestRefusedError,
    UnsupportedFormatError,
)
from hqueue.metadata import WorkerRecord
from hqueue.metadata.encoding import decode_worker, encode_worker
from hqueue.metadata.paths import Paths
from hqueue.metadata.registration import NodeGroup, PersistentEphemeralNodes
from hqueue.zookeeper.requests import ensure
from hqueue.zookeeper.session import Session
from hqueue.zookeeper.records import Leaf, below, leaves
from hqueue.zookeeper.tree_cache import TreeCache

__all__ = ["Workers"]

logger = logging.getLogger(__name__)

WORKER_DEPTH = 1


class Workers:
    """The `WorkerPort` on ZooKeeper. Thread-safe."""

    def __init__(self, session: Session, paths: Paths) -> None:
        self._session = session
        self._paths = paths
        self._registered: dict[str, PersistentEphemeralNodes] = {}

    def register(
        self, worker: WorkerRecord, on_failure: Callable[[HQueueError], None]
    ) -> PersistentEphemeralNodes:
        """As `WorkerPort.register`."""
        deadline = self._session.deadline()
        hosts = self._paths.hosts
        deadline.run(lambda: self._session.one(hosts, ensure(hosts), deadline))

        def same_address(data: bytes) -> bool:
            try:
                return decode_worker(data, "", worker.name).address == worker.address
            except UnsupportedFormatError:
                return False

        registration = PersistentEphemeralNodes(
            self._session,
            [self._group(worker)],
            is_own=same_address,
            on_conflict=lambda path, data: RequestRefusedError(
                "there is a worker of this name",
                path=path,
                record=data.decode(errors="replace"),
            ),
            on_missing=lambda path: RequestRefusedError("a node was deleted", path=path),
            on_failure=on_failure,
        )
        self._registered[worker.name] = registration
        return registration

    def update(self, worker: WorkerRecord) -> None:
        """As `WorkerPort.update`."""
        registration = self._registered.get(worker.name)
        if registration is None:
            raise InvalidInputError("this worker was not registered here", worker=worker.name)
        registration.replace([self._group(worker)])

    def _group(self, worker: WorkerRecord) -> NodeGroup:
        return NodeGroup(((self._paths.worker(worker.name), encode_worker(worker)),))

    def list(self) -> Mapping[str, WorkerRecord]:
        """As `WorkerPort.list`."""
        deadline = self._session.deadline()

        def look() -> Mapping[str, Leaf]:
            paths = below(self._session, [self._paths.hosts], deadline)
            return leaves(self._session, paths, deadline)

        return self._view(deadline.run(look))

    def watch(self, listener: Callable[[Mapping[str, WorkerRecord]], None]) -> TreeCache:
        """As `WorkerPort.watch`."""
        return TreeCache(
            self._session,
            self._paths.hosts,
            WORKER_DEPTH,
            lambda found: listener(self._view(found)),
        )

    def _view(self, found: Mapping[str, Leaf]) -> dict[str, WorkerRecord]:
        view = {}
        for path, leaf in sorted(found.items()):
            name = path.rpartition("/")[2]
            try:
                view[name] = decode_worker(leaf.data, path, name)
            except UnsupportedFormatError as exc:
                logger.warning("a worker is left out: %s", exc)
        return view
