"""The managers of a queue's topics over one of the stores."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from hqueue.errors import NoTopicPersistenceInfoError, SettingsError
from hqueue.metadata.blobs import clear_nodes
from hqueue.metadata.fields import ClearableRecords, FieldRecord, FieldRecords, Found
from hqueue.metadata.managers.availability import Availability
from hqueue.metadata.managers.election import OwnerElection
from hqueue.metadata.managers.encoding import decode_persistence_info
from hqueue.metadata.managers.hubs import Hubs
from hqueue.metadata.managers.infos import LogRange
from hqueue.metadata.managers.layout import Layout, Rows, Tree, places
from hqueue.metadata.managers.listing import KINDS, list_entries
from hqueue.metadata.managers.memory import memory_of
from hqueue.metadata.managers.metadata_locations import (
    LocationRecords,
    MetadataLocations,
)
from hqueue.metadata.managers.migration import MetadataMigration
from hqueue.metadata.managers.migration_fence import MigrationFence
from hqueue.metadata.managers.migration_state import (
    HBASE,
    MEMORY,
    ZOOKEEPER,
    MetadataLocation,
    MigrationState,
    MigrationStateRecord,
)
from hqueue.metadata.managers.movable import MovableRecords
from hqueue.metadata.managers.own_moves import OwnMoves
from hqueue.metadata.managers.pipeline import Pipeline
from hqueue.metadata.managers.topics import (
    SubscriptionDataManager,
    TopicOwnershipManager,
    TopicPersistenceManager,
)
from hqueue.metadata.ports import MetadataStore
from hqueue.metadata.steps import OnStore, Wait, Work
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock
from hqueue.runtime.forgotten import Watched
from hqueue.runtime.only_reads import OnlyReads
from hqueue.runtime.program_loop import ProgramLoop
from hqueue.runtime.stepwise import Stepwise, asked, paged, stepwise

__all__ = [
    "RangesOf",
    "TopicLookup",
    "TopicMetadata",
    "TopicMetadataDeletion",
    "open_migration",
    "open_topic_metadata",
    "opened_in",
    "store_in_loop",
]


RangesOf = Callable[[str], Wait]
"""Asks where a topic with an owner lies. The answer is a sequence of `LogRange`, or the error
`NoTopicPersistenceInfoError`."""


class TopicMetadata(Stepwise):
    """The metadata that hubs keep about a queue's topics. Thread-safe. Made by
    `Client.topic_metadata`.

    Use it as a context manager, or `close` it before the client. If it has changed something and is
    dropped without being closed, it is released, with a `ResourceWarning`.

    Args:
        fence: holds changes back while metadata is moved.
        locate: returns the records of a migration state's location.
        layout: the keys that callers use.
        hubs: the available hubs.
        wait_s: how long a call waits for room when many calls wait.
        open_in: opens the same metadata for an event loop.
        tasks: the event loop that uses it, for changes that go on when their callers are cancelled;
            None if threads use it.
    """

    def __init__(
        self,
        fence: MigrationFence,
        locate: Callable[[MigrationState], LocationRecords],
        layout: Layout,
        hubs: Hubs,
        *,
        wait_s: float,
        open_in: OpenIn,
        tasks: ProgramLoop | None = None,
    ) -> None:
        self._open_in = open_in
        self._fence = fence
        self._locate = locate
        self._layout = layout
        self._records = MovableRecords(fence, locate, lambda of: of.records, layout)
        self._pipeline = Pipeline(self._records, wait_s, tasks=tasks)
        owners = MovableRecords(fence, locate, lambda of: of.owners, layout)
        self._owners = Pipeline(owners, wait_s, tasks=tasks)
        self.ownership = TopicOwnershipManager(self._owners, layout)
        """The owner of each topic."""
        self.persistence = TopicPersistenceManager(self._pipeline, layout)
        """The ranges and the ACL of each topic."""
        self.subscriptions = SubscriptionDataManager(self._pipeline, layout)
        """The subscriptions to each topic."""
        self.hubs = hubs
        """The available hubs, whose records are always in ZooKeeper."""
        self.election = OwnerElection(
            self.ownership,
            Availability(hubs, self._owners.run),
            ephemeral=self._is_ephemeral.asked,
        )
        """Elects the topics' owners among the available hubs."""
        # Managers that it returned may still be used: changes go through a closed fence, too.
        self._watched = Watched(
            self, "the access to topics' metadata", fence.close, lambda: fence.is_present
        )

    @property
    def store(self) -> str:
        """The store in force for all metadata but the hubs: ``zookeeper``, ``hbase`` or
        ``memory``.
        """
        return self._now().location.store

    def __enter__(self) -> TopicMetadata:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @stepwise
    def settle(self) -> Work[None]:
        """Record that the metadata is in the store of the settings, if no store is recorded yet. A
        hub does so before it owns a topic.

        Raises:
            SettingsError: hubs with other settings have recorded another store.
        """
        yield self._fence.settle.asked()

    @paged
    def entries(self, kinds: Collection[str] = KINDS) -> Work[None]:
        """Iterate over the records of these kinds, by default ``persistence``, ``subscription`` and
        ``ownership``, each in the state in which the scan finds it. A record that can't be read is
        returned with its error.
        """
        return list_entries(self._records, self._layout, kinds)

    @stepwise
    def close(self) -> Work[None]:
        """Refuse further requests, and finish those that were made. Never raises."""
        self._pipeline.close()
        self._owners.close()
        yield self._fence.close.asked()
        self._watched.closed()

    @stepwise
    def _is_ephemeral(self) -> Work[bool]:
        return (yield from self._now.steps()).ephemeral

    @stepwise
    def _now(self) -> Work[LocationRecords]:
        """The records in the location that is in force."""
        return self._locate((yield self._fence.state.asked()))


OpenIn = Callable[["ProgramLoop | None", "ProgramLoop | None"], TopicMetadata]


def opened_in(metadata: TopicMetadata, loop: ProgramLoop, tasks: ProgramLoop) -> TopicMetadata:
    """The same metadata for an event loop, for `hqueue.aio`: only the calls' faces for loops may be
    used.

    Args:
        metadata: the metadata.
        loop: watches what it must, and keeps registrations.
        tasks: the same loop, for changes that go on when their callers are cancelled.
    """
    return metadata._open_in(loop, tasks)


async def store_in_loop(metadata: TopicMetadata) -> str:
    """Like `TopicMetadata.store`, for `hqueue.aio`."""
    return (await metadata._now.in_loop()).location.store


def open_topic_metadata(
    queue: str,
    *,
    session: MetadataStore,
    root: str,
    first: str,
    only: str | None = None,
    rows: Callable[[], FieldRecords],
    table: str | None = None,
    wait_s: float,
    clock: Clock = SYSTEM_CLOCK,
    moves: OwnMoves | None = None,
) -> TopicMetadata:
    """Open the metadata of a queue's topics. Sends no request before the first operation.

    Each operation raises a `SettingsError` if hubs with other settings keep the metadata elsewhere.

    Args:
        queue: the queue.
        session: the session with ZooKeeper, which ends ephemeral records when it ends.
        root: the prefix of all keys.
        first: the store before the first move: ``zookeeper``, ``hbase``, or ``memory``, which is
            this process's and lives as long as it.
        only: use this store, even if another one is in force.
        rows: opens HBase's records.
        table: the table of HBase's records; None if HBase is not used.
        wait_s: how long a call waits for room when many calls wait, and a change for a move.
        clock: measures the wait for a hub that may be dead.
        moves: the client's moves, by which the metadata learns at once where it is in force.

    Raises:
        SettingsError: there is no such store.
    """
    locations = MetadataLocations(session, root, queue, rows)
    if only is not None and only not in (ZOOKEEPER, HBASE, MEMORY):
        raise SettingsError(
            "the store of topics' metadata must be 'zookeeper', 'hbase' or 'memory'", store=only
        )
    record = MigrationStateRecord(session, root, queue, first, table=table, bound=only is None)
    layout = locations.open(MetadataLocation(only or first, 0)).layout

    def locate(state: MigrationState) -> LocationRecords:
        return locations.open(state.location if only is None else state.location_in(only))

    def open_in(loop: ProgramLoop | None, tasks: ProgramLoop | None) -> TopicMetadata:
        fence = MigrationFence(record, session, wait_s * 1e3, clock, loop)
        if moves is not None:
            moves.follow(fence)
        hubs = Hubs(session, root, queue, clock, loop)
        return TopicMetadata(
            fence, locate, layout, hubs, wait_s=wait_s, open_in=open_in, tasks=tasks
        )

    return open_in(None, None)


def open_migration(
    queue: str,
    *,
    session: MetadataStore,
    root: str,
    first: str,
    rows: Callable[[], FieldRecords],
    table: str | None = None,
    check: Callable[[], Wait] | None = None,
    clock: Clock = SYSTEM_CLOCK,
    moves: OwnMoves | None = None,
) -> MetadataMigration:
    """Open the migration of a queue's topics' metadata. The arguments are those of
    `open_topic_metadata`; `check` makes a request that raises an error if there is no such queue,
    and `moves` collects the moves of this migration.

    Raises:
        SettingsError: metadata can't be moved from the store `first`.
    """
    if first == MEMORY:
        raise SettingsError(
            "topics' metadata in memory can't be moved: set metadata_store to another store",
            metadata_store=first,
        )
    locations = MetadataLocations(session, root, queue, rows)
    moves = moves or OwnMoves()
    record = MigrationStateRecord(
        session, root, queue, first, table=table, bound=False, on_change=moves.changed
    )
    return MetadataMigration(record, locations, clock, check=check, moves=moves)


class TopicLookup(OnStore):
    """Looks up where topics with owners lie: in the caller's thread, or in an event loop. It keeps
    and watches nothing.

    Args:
        session: the session with ZooKeeper.
        root: the prefix of all keys.
        first, rows, table: as for `open_topic_metadata`.
    """

    def __init__(
        self,
        session: MetadataStore,
        root: str,
        first: str,
        rows: Callable[[], FieldRecords],
        table: str | None,
    ) -> None:
        super().__init__(session)
        self._root = root
        self._first = first
        self._rows = rows
        self._table = table

    @stepwise
    def ranges(self, queue: str, topic: str) -> Work[Sequence[LogRange]]:
        """The ranges of the log with the messages of a topic.

        Raises:
            NoTopicPersistenceInfoError: no hub has owned this topic.
            SettingsError: hubs with other settings keep the metadata elsewhere.
            UnsupportedFormatError: the topic's record can't be read.
            StoreUnavailableError: the store was unavailable.
        """
        record = MigrationStateRecord(
            self._store, self._root, queue, self._first, table=self._table
        )
        locations = MetadataLocations(self._store, self._root, queue, self._rows)
        with OnlyReads():
            state, _ = yield from record.read.steps()
            at = locations.open(state.location)
            key = at.layout.ranges(topic)
            found: Found | None = (yield asked(at.records.read, [key])).get(key)
        if found is None:
            raise NoTopicPersistenceInfoError("no hub has owned this topic yet", topic=topic)
        if not isinstance(found, FieldRecord):
            raise found
        return decode_persistence_info(found.fields, key).ranges


class TopicMetadataDeletion(OnStore):
    """Deletes the metadata of topics: in the caller's thread, or in an event loop.

    Args:
        session: the session with ZooKeeper.
        root: the prefix of all keys.
        rows: opens HBase's records.
    """

    def __init__(
        self, session: MetadataStore, root: str, rows: Callable[[], ClearableRecords]
    ) -> None:
        super().__init__(session)
        self._root = root
        self._rows = rows

    @stepwise
    def delete(self, queue: str) -> Work[None]:
        """Delete all records of a queue's topics, in every store, and the records of its hubs that
        are not available. If the call fails half way, another call deletes the rest. Records that
        hubs write meanwhile may stay. If the metadata was moved, the record of its store stays, so
        that running hubs and a later queue of this name use the same store.
        """
        session, root = self._store, self._root
        for prefix in (Tree(root, queue).topics, places(root, queue)):
            yield from clear_nodes(prefix)
        layout = Rows(root, queue)
        for records in (self._rows(), memory_of(root)):
            yield records.clear.asked(layout.prefix)
        record = MigrationStateRecord(session, root, queue, ZOOKEEPER, bound=False)
        yield from record.delete_unused.steps()
        yield from Hubs(session, root, queue).drop_gone.steps()
