"""The metadata of a queue's topics, and moving it to another store, in an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection

from hqueue.aio.available_hubs import Hubs
from hqueue.aio.topic_managers import (
    OwnerElection,
    SubscriptionDataManager,
    TopicOwnershipManager,
    TopicPersistenceManager,
)
from hqueue.errors import ClosedError
from hqueue.metadata.managers import Entry, MigrationState
from hqueue.metadata.managers import MetadataMigration as BlockingMigration
from hqueue.metadata.managers import TopicMetadata as BlockingMetadata
from hqueue.metadata.managers.listing import KINDS
from hqueue.metadata.managers.migration import OnProgress, ignore_progress
from hqueue.metadata.managers.opening import opened_in, store_in_loop
from hqueue.runtime.forgotten import release_later
from hqueue.runtime.per_loop import PerLoop
from hqueue.runtime.program_loop import ProgramLoop

__all__ = ["MetadataMigration", "TopicMetadata"]


class _InLoop:
    """What one event loop has of a queue's metadata: as hubs see it, a writer of its own.

    Args:
        metadata: the underlying metadata.
    """

    def __init__(self, metadata: BlockingMetadata) -> None:
        self.loop = ProgramLoop()
        self.tasks = ProgramLoop()
        """The same loop, with the changes that go on when their callers are cancelled."""
        self.metadata = opened_in(metadata, self.loop, self.tasks)

    def close_soon(self) -> None:
        """Close it, if its own loop was closed: by a thread, for the running loop may end soon. A
        forked child leaves it to its parent.
        """
        if self.loop.loop.is_closed() and asyncio._get_running_loop() is not None:
            release_later(self.metadata.close)


class TopicMetadata:
    """The metadata that hubs keep about a queue's topics, for event loops. Like
    `hqueue.metadata.managers.TopicMetadata`. Made by `Client.topic_metadata`.

    Several event loops may use it. Use it as an asynchronous context manager, or `close` it before
    the client, and before its last loop ends: a move by another client waits for each loop that has
    made a change, until this object is closed or collected, another loop uses it, or the client is
    closed.

    Args:
        metadata: the underlying metadata.
    """

    def __init__(self, metadata: BlockingMetadata) -> None:
        self._loops: PerLoop[_InLoop] = PerLoop(
            lambda: _InLoop(metadata), _InLoop.close_soon, _InLoop.close_soon
        )
        self._is_closed = False
        self.ownership = TopicOwnershipManager(lambda: self._here.metadata.ownership)
        """The owner of each topic."""
        self.persistence = TopicPersistenceManager(lambda: self._here.metadata.persistence)
        """The ranges and the ACL of each topic."""
        self.subscriptions = SubscriptionDataManager(lambda: self._here.metadata.subscriptions)
        """The subscriptions to each topic."""
        self.hubs = Hubs(lambda: self._here.metadata.hubs, lambda: self._here.tasks)
        """The available hubs, whose records are always in ZooKeeper."""
        self.election = OwnerElection(lambda: self._here.metadata.election)
        """Elects the topics' owners among the available hubs."""

    async def __aenter__(self) -> TopicMetadata:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def store(self) -> str:
        """The store in force for all metadata but the hubs: ``zookeeper``, ``hbase`` or
        ``memory``.
        """
        return await store_in_loop(self._here.metadata)

    async def settle(self) -> None:
        """Record that the metadata is in the store of the settings, if no store is recorded yet.
        Like `TopicMetadata.settle` of `hqueue.metadata.managers`. If the caller is cancelled, it
        may be recorded: the call can be repeated.
        """
        here = self._here
        await here.tasks.run(here.metadata.settle.in_loop())

    def entries(self, kinds: Collection[str] = KINDS) -> AsyncIterator[Entry]:
        """Iterate over the records of these kinds. Like `TopicMetadata.entries` of
        `hqueue.metadata.managers`. An iteration that was cancelled ends: begin another one.
        """
        return self._here.metadata.entries.in_loop(kinds)

    async def close(self) -> None:
        """Refuse further requests, and finish those that were made. Raises only
        `asyncio.CancelledError`: if the caller is cancelled, this object is closed in the
        background.
        """
        here = self._loops.here()
        self._is_closed = True
        await here.loop.run(self._close(here))

    async def _close(self, here: _InLoop) -> None:
        for each in self._loops.items.values():
            await each.metadata.close.in_loop()
        await here.tasks.idle()

    @property
    def _here(self) -> _InLoop:
        """What the running loop has."""
        if self._is_closed and asyncio.get_running_loop() not in self._loops.items:
            raise ClosedError("the access to topics' metadata was closed")
        return self._loops.here()


class MetadataMigration:
    """Moves a queue's topics' metadata from one store to another, for event loops. Like
    `hqueue.metadata.managers.MetadataMigration`. Made by `Client.metadata_migration`.

    The event loop calls ``on_progress``, a plain function that must not block; a move fails with
    what it raises.

    Args:
        migration: the underlying migration.
    """

    def __init__(self, migration: BlockingMigration) -> None:
        self._migration = migration

    async def state(self) -> MigrationState:
        """The location that is in force now, and the progress of a move."""
        return await self._migration.state.in_loop()

    async def move(
        self,
        to: str,
        *,
        drain_ms: float = 60_000,
        on_progress: OnProgress = ignore_progress,
    ) -> int:
        """Move the metadata to another store. Returns how many records were moved, 0 if it is there
        already. Like `MetadataMigration.move` of `hqueue.metadata.managers`.

        If the caller is cancelled, the move is abandoned before `asyncio.CancelledError` is raised,
        unless it is done. `state` says which, and the move can be repeated. The same holds if the
        caller is cancelled again, or its loop ends, as at the end of `asyncio.run`.
        """
        return await self._migration.move.in_loop(to, drain_ms=drain_ms, on_progress=on_progress)

    async def abandon(self) -> bool:
        """Abandon a move: the metadata stays in force where it is. Returns whether a move was under
        way. Like `MetadataMigration.abandon` of `hqueue.metadata.managers`. If the caller is
        cancelled, the move may have been abandoned: the call can be repeated.
        """
        return await self._migration.abandon.in_loop()

    async def clear(self, *, on_progress: OnProgress = ignore_progress) -> int:
        """Delete the records that moves and interrupted copies left in locations that are not in
        force. Returns how many. Like `MetadataMigration.clear` of `hqueue.metadata.managers`. If
        the caller is cancelled, some may have been deleted: call it again for the rest.
        """
        return await self._migration.clear.in_loop(on_progress=on_progress)
