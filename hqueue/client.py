"""The client: administers queues, and opens them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping

from hqueue.format.header import Bodies
from hqueue.groups.descriptions import GroupDescription, GroupListing
from hqueue.handle import Cluster, QueueAdministration
from hqueue.handle.administration import Ttl
from hqueue.handle.queue_log import QueueLog
from hqueue.handle.snapshots import SnapshotAdministration
from hqueue.log import Appended
from hqueue.log.table_ports import PartitionLocation, RegionSize, Snapshot
from hqueue.message_id import MessageID
from hqueue.metadata import Coordinate, Coordination, PartitionKey
from hqueue.metadata.managers import (
    MetadataMigration,
    OwnMoves,
    RangesOf,
    TopicLookup,
    TopicMetadata,
    open_migration,
    open_topic_metadata,
)
from hqueue.net.security import security_of
from hqueue.net.tokens import DelegationToken
from hqueue.position import EARLIEST, Start
from hqueue.push.administration import SubscriberAdministration, SubscriberState
from hqueue.push.append_notifier import AppendNotifier
from hqueue.queue import Queue
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock
from hqueue.runtime.forgotten import Watched
from hqueue.runtime.memory import keep_freed
from hqueue.settings.attributes import QueueDescription, check_queue_name
from hqueue.settings.connection import Settings
from hqueue.settings.keyword_options import AlterableAttributes, QueueAttributes, Unpack
from hqueue.sharing.administration import AnyGroupAdministration
from hqueue.store import StorePort

__all__ = [
    "Client",
    "Ttl",
    "administration_of",
    "close_in_loop",
    "cluster_of",
    "groups_of",
    "snapshots_of",
]


class Client:
    """A connection to a cluster. Thread-safe, and usable in a forked child. Made by `connect`.

    Connections are pooled, and opened when they are needed. Use the client as a context manager, or
    `close` it. A client that was never closed is closed when Python collects it and everything made
    from it, with a `ResourceWarning`.

    Args:
        settings: limits, timeouts and compression.
        store: the store that keeps the queues. The client closes it.
        coordinate: begins a session with the coordination service. The session connects at its
            first use.
        clock: the source of time.
    """

    def __init__(
        self,
        settings: Settings,
        store: StorePort,
        coordinate: Coordinate,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        keep_freed()
        self.settings = settings
        self._coordination = coordination = coordinate(None)
        self._moves = OwnMoves(settings.operation_timeout_ms)
        security = security_of(settings)
        tls = None if security is None else security.client
        self._notifier = AppendNotifier(lambda: coordination, settings.zookeeper, tls=tls)
        if not settings.notify_workers:
            self._notifier.close()
        on_append = functools.partial(_on_append, self._notifier)
        self._cluster = Cluster(settings, store, coordinate, on_append, clock)
        self._queues = QueueAdministration(self._cluster, coordination)
        self._close_store = functools.partial(_close_store, store, self._notifier)
        self._release = functools.partial(_release, self._close_store, coordination)
        # All that was made from the client has the cluster: it is forgotten when nothing is left.
        self._watched = Watched(self._cluster, "a client", self._release)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections. Queues, producers and scanners of this client can't be used any
        more. Messages in the buffers of its producers fail, so close the producers first.

        A move of topics' metadata that is under way is abandoned first, and its call raises
        `ClosedError`. That takes up to ``operation_timeout_ms``, but no more than about a minute.
        """
        self._moves.close()
        self._release()
        self._watched.closed()

    @property
    def coordination(self) -> Coordination:
        """The client's session with the coordination service: subscriptions, checkpoints, workers.

        The session connects at its first use. What it registers stays registered until the client
        is closed.
        """
        return self._coordination

    def skipped_messages(self) -> Mapping[PartitionKey, int]:
        """The number of messages of each partition that this process could not read and skipped,
        since this client was made. Readers skip only batches that an operator chose
        (`Queue.skipped_batches`).
        """
        return self._cluster.skip_counts.messages()

    def delegation_token(self) -> DelegationToken:
        """Get a token with which other processes can authenticate to HBase in this client's name,
        without its keytab or ticket, until the token expires: by HBase's default after seven days.
        Tokens can't be renewed: get another in time.

        The client must have authenticated to HBase with Kerberos or with a token. A client that
        authenticated with a token gets that token back.

        Raises:
            RequestRefusedError: HBase gives none: it has no `TokenProvider`.
            SettingsError: the client reaches HBase without Kerberos, or over gateways.
        """
        return self._cluster.delegation_token()

    def use_token(self, token: DelegationToken) -> None:
        """Authenticate to HBase with a token, from the next connection on; open connections keep
        what they were opened with. Of several tokens of one principal the one that expires
        last is used. Sends nothing.

        Raises:
            SettingsError: ``hbase_authentication`` is not ``token``, nor ``kerberos`` without a
                keytab.
        """
        self._cluster.use_token(token)

    def queue(self, name: str) -> Queue:
        """Open a queue.

        Raises:
            QueueNotFoundError: there is no table of this name.
            NotAQueueError: there is a table of this name, but hqueue did not create it as a queue.
        """
        return self._opened(self._queues.open(name))

    def _opened(self, log: QueueLog) -> Queue:
        return Queue(log, self._cluster.coordinate, ranges_of(self, log.name))

    def create_queue(
        self,
        name: str,
        *,
        partitions: int,
        ttl: Ttl = "7d",
        exist_ok: bool = False,
        **attributes: Unpack[QueueAttributes],
    ) -> Queue:
        """Create a queue with all its partitions, and open it.

        Args:
            name: the name of the queue and of its table, with or without ``namespace:`` before it.
            partitions: how many partitions it has, 1 to 32,767. The number can't be changed later.
            ttl: how long messages are kept: seconds, a timedelta, or a text like ``12h`` or ``7d``.
                None or ``forever`` keeps them for ever.
            exist_ok: open the queue if one of this name and number of partitions exists already.
                Its TTL and attributes stay as they are.
            attributes: see `QueueAttributes`. `durability` says what a loss of power may take.

        Raises:
            InvalidInputError: an argument is out of range. Nothing was sent.
            QueueExistsError: there is a table of this name. With `exist_ok`: it is not a queue with
                this number of partitions.
        """
        return self._opened(
            self._queues.create(name, partitions, ttl, attributes, exist_ok=exist_ok)
        )

    def queue_exists(self, name: str) -> bool:
        """Whether there is a queue of this name. A table that is not a queue doesn't count."""
        return self._queues.exists(name)

    def list_queues(self) -> list[QueueDescription]:
        """List all queues, sorted by name."""
        return self._queues.list()

    def describe_queue(self, name: str) -> QueueDescription:
        """The attributes of a queue, as HBase has them now."""
        return self._queues.describe(name)

    def alter_queue(
        self, name: str, *, ttl: Ttl = "keep", **attributes: Unpack[AlterableAttributes]
    ) -> QueueDescription:
        """Change a queue's TTL and attributes. Those that are not given stay. Returns the new
        description.

        Messages that expired under a shorter TTL do not come back with a longer one.
        """
        return self._queues.alter(name, ttl, attributes)

    def enable_queue(self, name: str) -> None:
        """Enable a queue, so that it accepts puts and reads again. An enabled queue stays as it
        is.
        """
        self._queues.enable(name)

    def disable_queue(self, name: str) -> None:
        """Disable a queue: it refuses puts and reads until it is enabled, and keeps its messages.
        `delete_queue` needs a disabled queue.
        """
        self._queues.disable(name)

    def delete_queue(self, name: str, *, force: bool = False) -> None:
        """Delete a disabled queue with all its messages. The metadata of its topics is deleted
        first, in every store that has any. If the call fails half way the queue is still there:
        delete it again. Needs ZooKeeper. Stop the queue's hubs first: metadata that they write
        meanwhile may stay.

        Args:
            name: the queue.
            force: disable the queue first if it is enabled.

        Raises:
            QueueEnabledError: the queue is enabled, and `force` is not given. Nothing was deleted.
        """
        self._queues.delete(name, force=force)

    def truncate_queue(self, name: str) -> None:
        """Delete all messages of a queue, and keep its partitions. The queue is disabled while this
        takes place, for some seconds, and enabled afterwards.
        """
        self._queues.truncate(name)

    def create_snapshot(self, queue: str, snapshot: str) -> None:
        """Take a snapshot of a queue, which stays in use meanwhile. It has all messages of a
        partition up to a moment, and none after it; partitions may differ in that moment. It takes
        no room until its messages expire. Needs the native way to HBase, as all calls for
        snapshots.

        Args:
            queue: the queue.
            snapshot: the snapshot's name, which no other snapshot of the cluster has.

        Raises:
            SnapshotExistsError: there is a snapshot of this name.
            SettingsError: HBase is reached through gateways.
        """
        self._snapshots.create(queue, snapshot)

    def list_snapshots(self, queue: str | None = None) -> list[Snapshot]:
        """List the snapshots of a queue, which need not exist any more; of all tables if None.
        Sorted by queue and time.
        """
        return self._snapshots.list(queue)

    def restore_snapshot(self, snapshot: str, *, queue: str | None = None) -> str:
        """Return a queue to the state that it had when a snapshot was taken. All later messages are
        lost. The queue is disabled while this takes place, for ten seconds or more, and enabled
        afterwards: each new message has a higher ID than those that were lost.

        Positions stay where they are: those of groups, subscribers and hubs may lie beyond the end
        of the restored queue. No message is skipped because of this; messages may come again.
        If the call fails half way, the queue may stay disabled: call it again.

        Args:
            snapshot: the snapshot's name.
            queue: the queue to restore. None for the one of which the snapshot was taken. A queue
                that does not exist is created; one that exists is restored only from its own
                snapshots.

        Returns:
            The name of the queue.

        Raises:
            SnapshotNotFoundError: there is no snapshot of this name.
            InvalidInputError: the queue exists, and the snapshot is of another one.
        """
        return self._snapshots.restore(snapshot, queue)

    def delete_snapshot(self, snapshot: str) -> None:
        """Delete a snapshot. Queues that were restored from it keep their messages.

        Raises:
            SnapshotNotFoundError: there is no snapshot of this name.
        """
        self._snapshots.delete(snapshot)

    @property
    def _snapshots(self) -> SnapshotAdministration:
        return SnapshotAdministration(self._cluster)

    def list_subscribers(self, queue: str) -> list[SubscriberState]:
        """Every subscriber of a queue in every partition: whether it is connected, and its lag.

        Sends some small requests for each partition and subscriber.
        """
        return SubscriberAdministration(self.coordination).list(self._cluster.log(queue))

    def add_subscriber(
        self,
        queue: str,
        name: str,
        *,
        start: Start = EARLIEST,
        partitions: Collection[int] | None = None,
    ) -> None:
        """Register a subscriber that will connect later, at a position that is fixed now.

        Args:
            queue: the queue.
            name: the subscriber's name.
            start: a `Position`, such as ``earliest`` or ``latest``.
            partitions: the partitions to register it in; all if None.

        Raises:
            SubscriberExistsError: there is a subscriber of this name already.
        """
        SubscriberAdministration(self.coordination).add(
            self._cluster.log(queue), name, start, partitions
        )

    def delete_subscriber(self, queue: str, name: str) -> None:
        """Delete a subscriber that is not connected, with its checkpoints. The queue need not exist
        any more.

        Raises:
            SubscriberNotFoundError: no subscriber has this name.
            SubscriberConnectedError: the subscriber is connected.
        """
        SubscriberAdministration(self.coordination).delete(check_queue_name(queue), name)

    def seek_subscriber(
        self, queue: str, name: str, start: Start, *, partitions: Collection[int] | None = None
    ) -> dict[int, MessageID]:
        """Move the checkpoints of a subscriber that is not connected, backwards or forwards.

        Args:
            queue: the queue.
            name: the subscriber's name.
            start: as for `add_subscriber`.
            partitions: the partitions to move it in; all in which it has a checkpoint if None.

        Returns:
            The checkpoints that were set, by partition.

        Raises:
            SubscriberNotFoundError: no subscriber has this name, or it has no checkpoint in one of
                the partitions.
            SubscriberConnectedError: the subscriber is connected.
        """
        return SubscriberAdministration(self.coordination).seek(
            self._cluster.log(queue), name, start, partitions
        )

    def list_groups(self) -> list[GroupListing]:
        """List all groups that have a consumer or a committed offset, and all share groups, sorted
        by name. Takes four round trips in all.
        """
        return groups_of(self).list()

    def describe_group(self, group: str, *, queue: str | None = None) -> GroupDescription:
        """The members of a group, and its offset and lag in each partition of all queues, or of
        one.

        For a share group, `GroupPartition.shared` has the messages that its consumers have. A
        record that can't be read is reported in `GroupPartition.unreadable`; the others are read
        all the same. Sends two or three small requests for each partition; for a share group, up to
        nine.

        Raises:
            GroupNotFoundError: no group has this name.
        """
        return groups_of(self).describe(group, queue)

    def reset_group(
        self, group: str, queue: str, start: Start, *, partitions: Collection[int] | None = None
    ) -> dict[int, MessageID]:
        """Set the offsets of a group that does not consume this queue now, backwards or forwards.

        In a partition that ends before the start, the group's offset is set to the partition's end.
        An offset's record that can't be read is replaced. Offsets in other queues stay. A consumer
        that joins meanwhile either begins at the new offsets, or makes the call fail: an offset
        that it has taken over is not changed. A share group gets all messages from the start on
        again, even those that it had finished; their earlier deliveries do not count. It gets none
        before the start, even if they wait for their time.

        Args:
            group: the group's name.
            queue: the queue.
            start: as for `add_subscriber`.
            partitions: the partitions to reset; all of the queue if None.

        Returns:
            The offsets that were set, by partition.

        Raises:
            GroupNotFoundError: no group has this name.
            GroupActiveError: the group has consumers of this queue. The error's outcome says
                whether some offsets may have been set.
            InvalidInputError: there is no such partition, the ID lies beyond the end of every
                partition, or the time lies in the future.
        """
        return groups_of(self).reset(group, queue, start, partitions)

    def delete_group(self, group: str, *, queue: str | None = None) -> None:
        """Delete a group that has no consumers, with its offsets in all queues; or only its offsets
        in one queue that it no longer consumes. The queue need not exist any more. The records of a
        share group are deleted likewise. Dead letters of the group stay in the queues until they
        expire; `Queue.dead_letters` deletes them.

        Raises:
            GroupNotFoundError: no group has this name, or it has no offsets in the queue.
            GroupActiveError: the group has consumers. The error's outcome says whether some offsets
                may have been deleted.
        """
        groups_of(self).delete(group, queue)

    def topic_metadata(self, queue: str, *, store: str | None = None) -> TopicMetadata:
        """The metadata that hubs keep about a queue's topics: the owner of each, where its messages
        lie, and its subscriptions.

        Ephemeral records live as long as the client's session. The call sends no request: the queue
        need not exist.

        Args:
            queue: the queue.
            store: None for the store in force: the one that the metadata was moved to, or else the
                one of the setting ``metadata_store``. Name a store to look into it, or to fill it
                before it is used.

        Raises:
            InvalidInputError: the name is not a valid queue name.
            SettingsError: there is no store of this name.
        """
        return open_topic_metadata(
            check_queue_name(queue),
            session=self.coordination.store,
            root=self.coordination.paths.root,
            first=self.settings.metadata_store,
            only=store,
            rows=self._cluster.fields,
            table=self.settings.metadata_table,
            wait_s=self.settings.operation_timeout_ms / 1e3,
            clock=self._cluster.clock,
            moves=self._moves,
        )

    def metadata_migration(self, queue: str) -> MetadataMigration:
        """A migration, which moves the metadata of a queue's topics to another store while hubs
        run. The call sends no request.

        Raises:
            InvalidInputError: the name is not a valid queue name.
            SettingsError: the setting ``metadata_store`` is ``memory``, and metadata in memory
                can't be moved.
        """
        return open_migration(
            check_queue_name(queue),
            session=self.coordination.store,
            root=self.coordination.paths.root,
            first=self.settings.metadata_store,
            rows=self._cluster.fields,
            table=self.settings.metadata_table,
            check=functools.partial(self._queues.describe.asked, queue),
            clock=self._cluster.clock,
            moves=self._moves,
        )

    def locations(self, name: str) -> list[PartitionLocation]:
        """The region server that serves each partition of a queue now."""
        return self._queues.locations(name)

    def region_sizes(self, name: str) -> list[RegionSize]:
        """How much room each region of a queue takes now, in store files and in the memory of its
        region server. HBase counts in whole MiB.

        Raises:
            SettingsError: gateways can't say it: connect natively.
            QueueDisabledError: the queue is disabled: no server counts its size.
            RequestRefusedError: HBase's policy does not let this client ask.
        """
        return self._queues.sizes(name)


def cluster_of(client: Client) -> Cluster:
    """The open cluster below a client, for `hqueue.engine` and `Consumer`."""
    return client._cluster


def administration_of(client: Client) -> QueueAdministration:
    """What administers the queues of a client, for `hqueue.aio`."""
    return client._queues


def snapshots_of(client: Client) -> SnapshotAdministration:
    """What administers snapshots by a client, for `hqueue.aio`."""
    return client._snapshots


def groups_of(client: Client) -> AnyGroupAdministration:
    """What administers groups by a client, for `hqueue.aio` and `hqueue.engine`."""
    return AnyGroupAdministration(client._cluster, client.coordination.store)


async def close_in_loop(client: Client) -> None:
    """Like `Client.close`, for `hqueue.aio`."""
    await client._moves.close.in_loop()
    client._close_store()
    await client._notifier.ended()
    await client._coordination.close.in_loop()
    client._watched.closed()


def ranges_of(client: Client, queue: str) -> RangesOf:
    """Asks where the messages of a queue's topics lie that hubs own, for `hqueue.aio` and
    `hqueue.engine`.
    """
    settings, coordination = client.settings, client.coordination
    lookup = TopicLookup(
        coordination.store,
        coordination.paths.root,
        settings.metadata_store,
        client._cluster.fields,
        settings.metadata_table,
    )
    return functools.partial(lookup.ranges.asked, queue)


def _on_append(notifier: AppendNotifier, queue: str) -> Callable[[int, Appended, Bodies], None]:
    """What tells the workers of each append to a queue."""
    key_of = functools.cache(functools.partial(PartitionKey, queue))

    def on_append(partition: int, appended: Appended, bodies: Bodies) -> None:
        notifier.appended(key_of(partition), appended.slot, appended.header, bodies.cells)

    return on_append


def _close_store(store: StorePort, notifier: AppendNotifier) -> None:
    store.close()
    notifier.close()


def _release(close_store: Callable[[], None], coordination: Coordination) -> None:
    close_store()
    coordination.close()
