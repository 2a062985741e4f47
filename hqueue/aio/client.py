"""Connecting in an event loop; administering queues, and opening them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from hqueue.aio.queue import Queue
from hqueue.aio.topic_metadata import MetadataMigration, TopicMetadata
from hqueue.client import Client as BlockingClient
from hqueue.client import (
    Ttl,
    administration_of,
    close_in_loop,
    cluster_of,
    groups_of,
    ranges_of,
    snapshots_of,
)
from hqueue.connecting import connect as connect_blocking
from hqueue.groups.descriptions import GroupDescription, GroupListing
from hqueue.handle import QueueAdministration, QueueLog
from hqueue.handle.snapshots import SnapshotAdministration
from hqueue.log.table_ports import PartitionLocation, RegionSize, Snapshot
from hqueue.message_id import MessageID
from hqueue.metadata import PartitionKey
from hqueue.net.tokens import DelegationToken
from hqueue.position import EARLIEST, Start
from hqueue.push.administration import SubscriberAdministration, SubscriberState
from hqueue.settings.attributes import QueueDescription, check_queue_name
from hqueue.settings.connection import Settings
from hqueue.settings.keyword_options import (
    AlterableAttributes,
    ConnectOptions,
    QueueAttributes,
    Unpack,
)

__all__ = ["Client", "blocking_client", "connect"]


def connect(settings: Settings | None = None, **given: Unpack[ConnectOptions]) -> Client:
    """Connect to the HBase that the settings name. Like `hqueue.connect`. Sends no request, and may
    be called outside of an event loop.
    """
    return Client(connect_blocking(settings, **given))


def blocking_client(client: Client) -> BlockingClient:
    """The connection that a client uses, whose calls block."""
    return client._client


class Client:
    """A connection to a cluster, for event loops. Like `hqueue.Client`. Made by `connect`.

    Each event loop that uses it has connections of its own. Use it as an asynchronous context
    manager, or `close` it.

    Args:
        client: the underlying connection, which is closed with this client.
    """

    def __init__(self, client: BlockingClient) -> None:
        self._client = client

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    @property
    def settings(self) -> Settings:
        """The settings of the connection."""
        return self._client.settings

    async def close(self) -> None:
        """Close all connections. Like `hqueue.Client.close`: close producers first. Moves of
        topics' metadata are abandoned first. A call that was cancelled can be repeated.
        """
        await close_in_loop(self._client)

    async def delegation_token(self) -> DelegationToken:
        """Get a token with which other processes can authenticate to HBase in this client's name.
        Like `hqueue.Client.delegation_token`.
        """
        return await cluster_of(self._client).delegation_token.in_loop()

    def use_token(self, token: DelegationToken) -> None:
        """Authenticate to HBase with a token, from the next connection on. Like
        `hqueue.Client.use_token`.
        """
        self._client.use_token(token)

    async def queue(self, name: str) -> Queue:
        """Open a queue. Like `hqueue.Client.queue`."""
        return self._opened(await self._queues.open.in_loop(name))

    def _opened(self, log: QueueLog) -> Queue:
        client = self._client
        return Queue(log, cluster_of(client).coordinate, ranges_of(client, log.name))

    async def create_queue(
        self,
        name: str,
        *,
        partitions: int,
        ttl: Ttl = "7d",
        exist_ok: bool = False,
        **attributes: Unpack[QueueAttributes],
    ) -> Queue:
        """Create a queue with all its partitions, and open it. Like
        `hqueue.Client.create_queue`. If the caller is cancelled, the queue may exist, now or in a
        moment: with `exist_ok` it can be created again.
        """
        log = await self._queues.create.in_loop(
            name, partitions, ttl, attributes, exist_ok=exist_ok
        )
        return self._opened(log)

    async def queue_exists(self, name: str) -> bool:
        """Whether there is a queue of this name. Like `hqueue.Client.queue_exists`."""
        return await self._queues.exists.in_loop(name)

    async def list_queues(self) -> list[QueueDescription]:
        """List all queues, sorted by name. Like `hqueue.Client.list_queues`."""
        return await self._queues.list.in_loop()

    async def describe_queue(self, name: str) -> QueueDescription:
        """The attributes of a queue. Like `hqueue.Client.describe_queue`."""
        return await self._queues.describe.in_loop(name)

    async def alter_queue(
        self, name: str, *, ttl: Ttl = "keep", **attributes: Unpack[AlterableAttributes]
    ) -> QueueDescription:
        """Change a queue's TTL and attributes. Like `hqueue.Client.alter_queue`. If the caller is
        cancelled, HBase may still make the change.
        """
        return await self._queues.alter.in_loop(name, ttl, attributes)

    async def enable_queue(self, name: str) -> None:
        """Enable a queue. Like `hqueue.Client.enable_queue`. If the caller is cancelled, HBase may
        still enable it.
        """
        await self._queues.enable.in_loop(name)

    async def disable_queue(self, name: str) -> None:
        """Disable a queue. Like `hqueue.Client.disable_queue`. If the caller is cancelled, HBase
        may still disable it.
        """
        await self._queues.disable.in_loop(name)

    async def delete_queue(self, name: str, *, force: bool = False) -> None:
        """Delete a disabled queue with all its messages. Like `hqueue.Client.delete_queue`. If the
        caller is cancelled, the queue may be disabled, some of its topics' metadata may be gone,
        and HBase may still delete the queue: call it again.
        """
        await self._queues.delete.in_loop(name, force=force)

    async def truncate_queue(self, name: str) -> None:
        """Delete all messages of a queue. Like `hqueue.Client.truncate_queue`. If the caller is
        cancelled, the queue may stay disabled, with its messages or without them: call it again.
        """
        await self._queues.truncate.in_loop(name)

    async def create_snapshot(self, queue: str, snapshot: str) -> None:
        """Take a snapshot of a queue. Like `hqueue.Client.create_snapshot`. If the caller is
        cancelled, HBase may still take it.
        """
        await self._snapshots.create.in_loop(queue, snapshot)

    async def list_snapshots(self, queue: str | None = None) -> list[Snapshot]:
        """List the snapshots of a queue. Like `hqueue.Client.list_snapshots`."""
        return await self._snapshots.list.in_loop(queue)

    async def restore_snapshot(self, snapshot: str, *, queue: str | None = None) -> str:
        """Return a queue to the state of a snapshot. Like `hqueue.Client.restore_snapshot`. If the
        caller is cancelled, the queue may stay disabled, restored or not: call it again.
        """
        return await self._snapshots.restore.in_loop(snapshot, queue)

    async def delete_snapshot(self, snapshot: str) -> None:
        """Delete a snapshot. Like `hqueue.Client.delete_snapshot`. If the caller is cancelled,
        HBase may still delete it.
        """
        await self._snapshots.delete.in_loop(snapshot)

    async def locations(self, name: str) -> list[PartitionLocation]:
        """The region server that serves each partition of a queue now. Like
        `hqueue.Client.locations`.
        """
        return await self._queues.locations.in_loop(name)

    async def region_sizes(self, name: str) -> list[RegionSize]:
        """How much room each region of a queue takes now. Like `hqueue.Client.region_sizes`."""
        return await self._queues.sizes.in_loop(name)

    def skipped_messages(self) -> Mapping[PartitionKey, int]:
        """The number of messages of each partition that this process could not read and skipped.
        Like `hqueue.Client.skipped_messages`.
        """
        return self._client.skipped_messages()

    async def list_subscribers(self, queue: str) -> list[SubscriberState]:
        """Every subscriber of a queue in every partition: whether it is connected, and its lag.
        Like `hqueue.Client.list_subscribers`.
        """
        return await self._subscribers.list.in_loop(await self._log(queue))

    async def add_subscriber(
        self,
        queue: str,
        name: str,
        *,
        start: Start = EARLIEST,
        partitions: Collection[int] | None = None,
    ) -> None:
        """Register a subscriber that will connect later, at a position that is fixed now. Like
        `hqueue.Client.add_subscriber`. If the caller is cancelled, it may have been registered in
        some of the partitions.
        """
        log = await self._log(queue)
        await self._subscribers.add.in_loop(log, name, start, partitions)

    async def delete_subscriber(self, queue: str, name: str) -> None:
        """Delete a subscriber that is not connected, with its checkpoints. Like
        `hqueue.Client.delete_subscriber`. If the caller is cancelled, call it again.
        """
        await self._subscribers.delete.in_loop(check_queue_name(queue), name)

    async def seek_subscriber(
        self, queue: str, name: str, start: Start, *, partitions: Collection[int] | None = None
    ) -> dict[int, MessageID]:
        """Move the checkpoints of a subscriber that is not connected. Like
        `hqueue.Client.seek_subscriber`. If the caller is cancelled, some may have been
        moved.
        """
        log = await self._log(queue)
        return await self._subscribers.seek.in_loop(log, name, start, partitions)

    async def list_groups(self) -> list[GroupListing]:
        """List every group that has a consumer or a committed offset, sorted by name. Like
        `hqueue.Client.list_groups`.
        """
        return await groups_of(self._client).list.in_loop()

    async def describe_group(self, group: str, *, queue: str | None = None) -> GroupDescription:
        """The members of a group, and its offset and lag in each partition. Like
        `hqueue.Client.describe_group`.
        """
        return await groups_of(self._client).describe.in_loop(group, queue)

    async def reset_group(
        self, group: str, queue: str, start: Start, *, partitions: Collection[int] | None = None
    ) -> dict[int, MessageID]:
        """Set the offsets of a group that does not consume this queue now. Like
        `hqueue.Client.reset_group`. If the caller is cancelled, some of them may have been set, or
        may be set a moment later: call it again.
        """
        return await groups_of(self._client).reset.in_loop(group, queue, start, partitions)

    async def delete_group(self, group: str, *, queue: str | None = None) -> None:
        """Delete a group that has no consumers, with its offsets. Like
        `hqueue.Client.delete_group`. If the caller is cancelled, some of the offsets may be
        deleted, now or in a moment: call it again.
        """
        await groups_of(self._client).delete.in_loop(group, queue)

    def topic_metadata(self, queue: str, *, store: str | None = None) -> TopicMetadata:
        """The metadata that hubs keep about a queue's topics. Like `hqueue.Client.topic_metadata`.
        Sends no request.
        """
        return TopicMetadata(self._client.topic_metadata(queue, store=store))

    def metadata_migration(self, queue: str) -> MetadataMigration:
        """A migration, which moves the metadata of a queue's topics to another store while hubs
        run. Like `hqueue.Client.metadata_migration`. Sends no request.
        """
        return MetadataMigration(self._client.metadata_migration(queue))

    @property
    def _queues(self) -> QueueAdministration:
        return administration_of(self._client)

    @property
    def _snapshots(self) -> SnapshotAdministration:
        return snapshots_of(self._client)

    @property
    def _subscribers(self) -> SubscriberAdministration:
        return SubscriberAdministration(self._client.coordination)

    async def _log(self, queue: str) -> QueueLog:
        return await self._queues.open.in_loop(queue)
