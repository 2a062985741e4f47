"""The metadata of a queue's topics, and moving it to another store, in an event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection

from hqueue.aio.available_hubs import Hubs
from hqueue.aio.in_threads import ProgressInLoop, each_read
from hqueue.aio.topic_managers import (
    OwnerElection,
    SubscriptionDataManager,
    TopicOwnershipManager,
    TopicPersistenceManager,
)
from hqueue.metadata.managers import Entry, MigrationState
from hqueue.metadata.managers import MetadataMigration as BlockingMigration
from hqueue.metadata.managers import TopicMetadata as BlockingMetadata
from hqueue.metadata.managers.listing import KINDS
from hqueue.metadata.managers.migration import OnProgress, ignore_progress
from hqueue.runtime.loop import in_thread

__all__ = ["MetadataMigration", "TopicMetadata"]


class TopicMetadata:
    """The metadata that hubs keep about a queue's topics, for event loops. Like
    `hqueue.metadata.managers.TopicMetadata`. Made by `Client.topic_metadata`.

    Several event loops may use it. Threads of the library make its requests. Use it as an
    asynchronous context manager, or `close` it before the client.

    Args:
        metadata: the metadata below, which is closed with this object.
    """

    def __init__(self, metadata: BlockingMetadata) -> None:
        self._metadata = metadata
        self.ownership = TopicOwnershipManager(metadata.ownership)
        """The owner of each topic."""
        self.persistence = TopicPersistenceManager(metadata.persistence)
        """The ranges and the ACL of each topic."""
        self.subscriptions = SubscriptionDataManager(metadata.subscriptions)
        """The subscriptions to each topic."""
        self.hubs = Hubs(metadata.hubs)
        """The available hubs, whose records are always in ZooKeeper."""
        self.election = OwnerElection(metadata.election)
        """Elects the topics' owners among the available hubs."""

    async def __aenter__(self) -> TopicMetadata:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def store(self) -> str:
        """The store in force for all metadata but the hubs: ``zookeeper``, ``hbase`` or
        ``memory``.
        """
        return await in_thread(lambda: self._metadata.store)

    async def settle(self) -> None:
        """Record that the metadata is in the store of the settings, if no store is recorded yet.
        Like `TopicMetadata.settle` of `hqueue.metadata.managers`. If the caller is cancelled, it
        may be recorded: the call can be repeated.
        """
        await in_thread(self._metadata.settle)

    def entries(self, kinds: Collection[str] = KINDS) -> AsyncIterator[Entry]:
        """Iterate over the records of these kinds. Like `TopicMetadata.entries` of
        `hqueue.metadata.managers`. An iteration that was cancelled ends: begin another one.
        """
        return each_read(self._metadata.entries(kinds))

    async def close(self) -> None:
        """Refuse further requests, and finish those that were made. Raises nothing of its own. If
        the caller is cancelled, call it again.
        """
        await in_thread(self._metadata.close)


class MetadataMigration:
    """Moves a queue's topics' metadata from one store to another, for event loops. Like
    `hqueue.metadata.managers.MetadataMigration`. Made by `Client.metadata_migration`.

    A thread of the library makes the move. The event loop calls ``on_progress``, a plain function
    that must not block; the move waits for it, and fails with what it raises.

    Args:
        migration: the migration below.
    """

    def __init__(self, migration: BlockingMigration) -> None:
        self._migration = migration

    async def state(self) -> MigrationState:
        """The location that is in force now, and the progress of a move."""
        return await in_thread(self._migration.state)

    async def move(
        self,
        to: str,
        *,
        drain_ms: float = 60_000,
        on_progress: OnProgress = ignore_progress,
    ) -> int:
        """Move the metadata to another store. Returns how many records were moved, 0 if it is there
        already. Like `MetadataMigration.move` of `hqueue.metadata.managers`.

        If the caller is cancelled, the move ends in the background: it abandons itself before its
        next phase or batch, or it is done. `state` says which, and the move can be repeated.
        """
        with ProgressInLoop(on_progress) as progress:
            return await in_thread(
                self._migration.move, to, drain_ms=drain_ms, on_progress=progress
            )

    async def abandon(self) -> bool:
        """Abandon a move: the metadata stays in force where it is. Returns whether a move was under
        way. Like `MetadataMigration.abandon` of `hqueue.metadata.managers`. If the caller is
        cancelled, the move may be abandoned: the call can be repeated.
        """
        return await in_thread(self._migration.abandon)

    async def clear(self, *, on_progress: OnProgress = ignore_progress) -> int:
        """Delete the records that moves and interrupted copies left in locations that are not in
        force. Returns how many. Like `MetadataMigration.clear` of `hqueue.metadata.managers`. If
        the caller is cancelled, some of them may be deleted: call it again for the rest.
        """
        with ProgressInLoop(on_progress) as progress:
            return await in_thread(self._migration.clear, on_progress=progress)
