"""Where records of a queue's topics lie: each store, and each location in it."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable

from hqueue.errors import SettingsError
from hqueue.metadata.blobs import BlobRecords
from hqueue.metadata.fields import FieldRecords
from hqueue.metadata.managers.layout import Layout, Rows, Tree
from hqueue.metadata.managers.memory import memory_of
from hqueue.metadata.managers.migration_state import HBASE, MEMORY, ZOOKEEPER, MetadataLocation
from hqueue.metadata.managers.present import PresentRecords
from hqueue.metadata.ports import MetadataStore
from hqueue.runtime.fork import register

__all__ = ["ZOOKEEPER_VERSION_MAX", "LocationRecords", "MetadataLocations"]

ZOOKEEPER_VERSION_MAX = 2**31 - 1


@dataclasses.dataclass(frozen=True)
class LocationRecords:
    """All records of a queue's topics in one location."""

    location: MetadataLocation
    records: FieldRecords
    """The records but those of owners."""
    owners: FieldRecords
    layout: Layout
    ephemeral: bool
    """Whether an owner's record ends with the session of its hub."""


class MetadataLocations:
    """The locations of a queue's metadata. Thread-safe. Asks nothing.

    Args:
        session: a session with ZooKeeper.
        root: what all keys begin with.
        queue: the queue.
        rows: opens HBase's records.
    """

    def __init__(
        self, session: MetadataStore, root: str, queue: str, rows: Callable[[], FieldRecords]
    ) -> None:
        self._session = session
        self._root = root
        self._queue = queue
        self._rows = rows
        self._opened: dict[MetadataLocation, LocationRecords] = {}
        self._present = PresentRecords(session, ZOOKEEPER_VERSION_MAX)
        self.after_fork_in_child()
        register(self)

    def after_fork_in_child(self) -> None:
        self._lock = threading.RLock()

    def open(self, location: MetadataLocation) -> LocationRecords:
        """The records in a location: always the same object.

        Raises:
            SettingsError: there is no such store.
        """
        records = self._opened.get(location)
        if records is None:
            with self._lock:
                records = self._opened.setdefault(location, self._make(location))
        return records

    def _make(self, location: MetadataLocation) -> LocationRecords:
        if location.store == ZOOKEEPER:
            tree = Tree(self._root, self._queue, location.number)
            blobs = BlobRecords(self._session.records, ZOOKEEPER_VERSION_MAX, tree.leading)
            return LocationRecords(location, blobs, self._present, tree, ephemeral=True)
        if location.store == HBASE:
            rows = self._rows()
            layout = Rows(self._root, self._queue, location.number)
            return LocationRecords(location, rows, rows, layout, ephemeral=False)
        if location.store == MEMORY:
            memory = memory_of(self._root)
            layout = Rows(self._root, self._queue, location.number)
            return LocationRecords(location, memory, memory, layout, ephemeral=False)
        raise SettingsError(
            "the store of topics' metadata must be 'zookeeper', 'hbase' or 'memory'",
            store=location.store,
        )
