"""The managers of topics' metadata over each store, and what is in the store below them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from hqueue import Settings
from hqueue.hbase.record_rows import Answer, RowUpdate
from hqueue.metadata.blobs import BlobRecords
from hqueue.metadata.fields import FieldRecord, FieldRecords
from hqueue.metadata.managers import (
    Layout,
    MemoryFields,
    Pipeline,
    PresentRecords,
    Rows,
    SubscriptionDataManager,
    TopicOwnershipManager,
    TopicPersistenceManager,
    Tree,
)
from hqueue.metadata.ports import ANY, NEW, Change, MetadataStore
from hqueue.store import StorePort
from hqueue.zookeeper import ZooKeeperStore
from tests.support.memory.metadata import MemoryServer

__all__ = [
    "BlobManagers",
    "ManagersBackend",
    "MemoryManagers",
    "RowManagers",
    "TopicManagers",
    "blobs_in_memory",
    "row_managers",
    "zookeeper_managers",
]

WAIT_S = 20.0
QUEUE = "q"
ZOOKEEPER_VERSION_MAX = 2**31 - 1


class TopicManagers:
    """One hub's managers of one queue.

    Args:
        owners: where owners' records are.
        others: where all others are.
        layout: where each lies.
        session: what ends when it is closed.
    """

    def __init__(
        self,
        owners: FieldRecords,
        others: FieldRecords,
        layout: Layout,
        session: MetadataStore | None = None,
    ) -> None:
        self.layout = layout
        self.session = session
        self.owners, self.others = owners, others
        self.pipelines = [Pipeline(owners, WAIT_S), Pipeline(others, WAIT_S)]
        self.ownership = TopicOwnershipManager(self.pipelines[0], layout)
        self.persistence = TopicPersistenceManager(self.pipelines[1], layout)
        self.subscriptions = SubscriptionDataManager(self.pipelines[1], layout)

    def close(self) -> None:
        for pipeline in self.pipelines:
            pipeline.close()
        if self.session is not None:
            self.session.close()


class ManagersBackend(Protocol):
    """A store of topics' metadata, empty at first."""

    version_max: int

    def open(self) -> TopicManagers:
        """A hub's managers; all of one back end see the same records."""

    def damage(self, key: str, field: str, data: bytes) -> None:
        """Put bytes where a record's field is, or, where a record is one blob, the whole of it."""

    def close(self) -> None: ...


class MemoryManagers:
    """The back end in this process's memory."""

    version_max = 2**63

    def __init__(self) -> None:
        self._owners, self._others = MemoryFields(), MemoryFields()

    def open(self) -> TopicManagers:
        return TopicManagers(self._owners, self._others, Rows("/hqueue", QUEUE))

    def damage(self, key: str, field: str, data: bytes) -> None:
        for store in (self._owners, self._others):
            if key in store._records:
                known = store._records[key]
                store._records[key] = FieldRecord({**known.fields, field: data}, known.version)

    def close(self) -> None:
        pass


class BlobManagers:
    """A back end on sessions with a metadata store."""

    def __init__(self, open_session: Callable[[], MetadataStore], root: str) -> None:
        self._open = open_session
        self._root = root
        self.version_max = ZOOKEEPER_VERSION_MAX
        self._opened: list[TopicManagers] = []

    def open(self) -> TopicManagers:
        session, layout = self._open(), Tree(self._root, QUEUE)
        self._opened.append(
            TopicManagers(
                PresentRecords(session, self.version_max),
                BlobRecords(session.records, self.version_max, layout.leading),
                layout,
                session,
            )
        )
        return self._opened[-1]

    def damage(self, key: str, field: str, data: bytes) -> None:
        session = self._open()
        try:
            there = key in session.records.read([key])
            assert (
                session.records.write({key: Change(data, ANY if there else NEW)})[key] is not None
            )
        finally:
            session.close()

    def close(self) -> None:
        for opened in self._opened:
            opened.close()


class RowManagers:
    """A back end on rows of a table.

    Args:
        open_store: opens the store.
        root: what all keys begin with.
    """

    version_max = 2**128

    def __init__(self, open_store: Callable[[], StorePort], root: str) -> None:
        self._open = open_store
        self._layout = Rows(root, QUEUE)
        self._opened: list[StorePort] = []

    def open(self) -> TopicManagers:
        self._opened.append(self._open())
        fields = self._opened[-1].fields()
        return TopicManagers(fields, fields, self._layout)

    def damage(self, key: str, field: str, data: bytes) -> None:
        rows = self._opened[0].fields()._rows  # type: ignore[attr-defined]
        [(_, cells)] = rows.read([key.encode()])
        column = b"r:." + field.encode()
        counter = cells[column][:8]
        update = RowUpdate(key.encode(), cells[b"r:v"], {column: counter + data})
        assert rows.update([update]) == [Answer.MADE]

    def close(self) -> None:
        for store in self._opened:
            store.close()


@contextmanager
def row_managers(open_store: Callable[[], StorePort], root: str) -> Iterator[RowManagers]:
    """Over rows of a table."""
    backend = RowManagers(open_store, root)
    try:
        yield backend
    finally:
        backend.close()


@contextmanager
def blobs_in_memory() -> Iterator[BlobManagers]:
    """Over a metadata store in memory."""
    backend = BlobManagers(MemoryServer(session_timeout_ms=200).open, "/hqueue")
    try:
        yield backend
    finally:
        backend.close()


@contextmanager
def zookeeper_managers(settings: Settings, **options: int) -> Iterator[BlobManagers]:
    """Over a ZooKeeper, by sessions of these settings."""
    backend = BlobManagers(lambda: ZooKeeperStore(settings, **options), settings.zookeeper_root)
    try:
        yield backend
    finally:
        backend.close()
