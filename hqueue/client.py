"""The client: administering queues, and opening them."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal

from hqueue.errors import (
    InvalidInputError,
    NotAQueueError,
    NoTopicPersistenceInfoError,
    QueueEnabledError,
    QueueExistsError,
    QueueNotFoundError,
)
from hqueue.format.header import Bodies
from hqueue.groups import administration as groups
from hqueue.groups.administration import GroupDescription, GroupListing
from hqueue.handle import Cluster
from hqueue.handle.queue_log import QueueLog
from hqueue.handle.start import EARLIEST, Start
from hqueue.log import Appended
from hqueue.log.table_ports import PartitionLocation
from hqueue.message_id import MessageID
from hqueue.metadata import Coordination, PartitionKey
from hqueue.metadata.managers import (
    LogRange,
    MetadataMigration,
    TopicMetadata,
    delete_topic_metadata,
    open_migration,
    open_topic_metadata,
)
from hqueue.push import administration as push
from hqueue.push.administration import SubscriberState
from hqueue.push.append_notifier import AppendNotifier
from hqueue.queue import Queue
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock
from hqueue.runtime.forgotten import Watched
from hqueue.runtime.memory import keep_freed
from hqueue.runtime.only_reads import OnlyReads
from hqueue.settings.attributes import (
    QueueDescription,
    check_attributes,
    check_partitions,
    check_queue_name,
    check_same_partitions,
    ttl_seconds,
)
from hqueue.settings.connection import Settings
from hqueue.settings.kinds import check_flag
from hqueue.settings.options import AlterableAttributes, QueueAttributes, Unpack
from hqueue.store import StorePort

__all__ = ["Client", "cluster_of"]

Ttl = str | int | datetime.timedelta | None


class Client:
    """A connection to a cluster. Thread-safe, and usable in a forked child. Made by `connect`.

    Connections are pooled and opened when needed. Use it as a context manager, or `close` it. One
    that is forgotten, with all that was made from it, is closed when it is collected, with a
    `ResourceWarning`.

    Args:
        settings: bounds, and how what is sent is compressed.
        store: keeps the queues. The client closes it.
        coordinate: begins a session with the coordination service, which connects when it is used.
        clock: where time comes from.
    """

    def __init__(
        self,
        settings: Settings,
        store: StorePort,
        coordinate: Callable[[], Coordination],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        keep_freed()
        self.settings = settings
        self._coordination = coordination = coordinate()
        self._notifier = AppendNotifier(lambda: coordination, settings.zookeeper)
        if not settings.notify_workers:
            self._notifier.close()
        on_append = functools.partial(_on_append, self._notifier)
        self._cluster = Cluster(settings, store, coordinate, on_append, clock)
        self._release = functools.partial(_release, store, self._notifier, coordination)
        # All that was made from the client has the cluster: it is forgotten when nothing is left.
        self._watched = Watched(self._cluster, "a client", self._release)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections. Objects made from this client can't be used any more, and messages
        that its producers still hold fail: close the producers first.
        """
        self._release()
        self._watched.closed()

    @property
    def coordination(self) -> Coordination:
        """The client's session with the coordination service: subscriptions, checkpoints, workers.

        Connects when it is first used. What is present by it is so until the client is closed.
        """
        return self._coordination

    def skipped_messages(self) -> Mapping[PartitionKey, int]:
        """How many messages this process could not read, and passed by because an operator decided
        so (`Queue.skipped_batches`), by partition, since this client was made.
        """
        return self._cluster.skip_counts.messages()

    def queue(self, name: str) -> Queue:
        """Open a queue.

        Raises:
            QueueNotFoundError: there is no such table.
            NotAQueueError: there is, but it was not created as a queue.
        """
        return self._opened(open_log(self, name))

    def _open(self, name: str) -> Queue:
        return self._opened(self._cluster.log(name))

    def _opened(self, log: QueueLog) -> Queue:
        return Queue(log, self._cluster.coordinate, functools.partial(self._ranges_of, log.name))

    def _ranges_of(self, queue: str, topic: str) -> Sequence[LogRange]:
        """Where the messages of a topic lie that hubs own."""
        with self.topic_metadata(queue) as metadata:
            known = metadata.persistence.read_topic_persistence_info(topic).result()
        if known is None:
            raise NoTopicPersistenceInfoError("no hub owned this topic yet", topic=topic)
        return known.value.ranges

    def create_queue(
        self,
        name: str,
        *,
        partitions: int,
        ttl: Ttl = "7d",
        exist_ok: bool = False,
        **attributes: Unpack[QueueAttributes],
    ) -> Queue:
        """Create a queue, presharded, and open it.

        Args:
            name: its name, and its table's; with ``namespace:`` before it or without.
            partitions: 1 to 32,767, and fixed for ever.
            ttl: how long messages are kept: seconds, a timedelta, a text as ``12h`` or ``7d``;
                None or ``forever``.
            exist_ok: open a queue of this name that is there with as many partitions; its TTL and
                attributes stay as they are.
            attributes: see `QueueAttributes`.

        Raises:
            InvalidInputError: an argument is out of range. Nothing was sent.
            QueueExistsError: there is a table of that name; with `exist_ok`, a queue with another
                number of partitions.
        """
        name, partitions = check_queue_name(name), check_partitions(partitions)
        if name == self.settings.metadata_table:
            raise InvalidInputError(
                "this name is reserved for the table of topics' metadata, by the setting "
                "metadata_table: choose another name",
                queue=name,
            )
        checked = check_attributes(attributes)
        check_flag(exist_ok, "exist_ok")
        try:
            self._cluster.tables.create(name, partitions, ttl_seconds(ttl), checked)
        except QueueExistsError:
            if not exist_ok:
                raise
            queue = self._open(name)
            check_same_partitions(name, queue.partitions, partitions)
            return queue
        return self._open(name)

    def queue_exists(self, name: str) -> bool:
        """Whether there is a queue of this name; a table of another kind doesn't count."""
        try:
            self.describe_queue(name)
        except (QueueNotFoundError, NotAQueueError):
            return False
        return True

    def list_queues(self) -> list[QueueDescription]:
        """All queues, by name."""
        return self._cluster.tables.list()

    def describe_queue(self, name: str) -> QueueDescription:
        """What HBase says of a queue."""
        return self._cluster.describe(name)

    def alter_queue(
        self, name: str, *, ttl: Ttl = "keep", **attributes: Unpack[AlterableAttributes]
    ) -> QueueDescription:
        """Change a queue's TTL and attributes; what is not given stays. Returns what is now.

        Messages that expired under a shorter TTL do not come back with a longer one.
        """
        name = check_queue_name(name)
        checked = check_attributes(attributes)
        if "partitions_per_region" in checked:
            raise InvalidInputError("partitions_per_region is fixed when a queue is created")
        seconds: int | Literal["keep"] | None = "keep" if ttl == "keep" else ttl_seconds(ttl)
        self._cluster.tables.alter(name, ttl_seconds=seconds, attributes=checked)
        return self.describe_queue(name)

    def enable_queue(self, name: str) -> None:
        """Enable a queue, so that it accepts puts and reads again. One that is enabled stays so."""
        self._cluster.tables.enable(check_queue_name(name))

    def disable_queue(self, name: str) -> None:
        """Disable a queue, so that it refuses puts and reads; its messages stay. Needed before
        `delete_queue`.
        """
        self._cluster.tables.disable(check_queue_name(name))

    def delete_queue(self, name: str, *, force: bool = False) -> None:
        """Delete a disabled queue with all its messages, and all metadata of its topics first,
        wherever that lies. When this fails half way the queue is still there: delete it again.
        Needs ZooKeeper. Its hubs should be gone: what they write meanwhile may stay.

        Raises:
            QueueEnabledError: it is not disabled. Nothing was deleted. With `force` an enabled one
                is disabled before.
        """
        check_flag(force, "force")
        name = check_queue_name(name)
        if self.describe_queue(name).enabled:
            if not force:
                raise QueueEnabledError(
                    "the queue is enabled: disable it before you delete it", queue=name
                )
            self.disable_queue(name)
        delete_topic_metadata(
            name,
            session=self.coordination.store,
            root=self.coordination.paths.root,
            rows=self._cluster.fields,
        )
        self._cluster.tables.delete(name)

    def truncate_queue(self, name: str) -> None:
        """Delete all messages of a queue, and keep its partitions. Takes some seconds, in which
        the queue is disabled; afterwards it is enabled.
        """
        self._cluster.tables.truncate(check_queue_name(name))

    def list_subscribers(self, queue: str) -> list[SubscriberState]:
        """Every subscriber of a queue in every partition: whether it is connected, and its lag.

        Some small requests a partition and subscriber.
        """
        return push.list_subscribers(self._cluster.log(queue), self.coordination)

    def add_subscriber(
        self,
        queue: str,
        name: str,
        *,
        start: Start = EARLIEST,
        partitions: Collection[int] | None = None,
    ) -> None:
        """Let a subscriber begin at a place that is fixed now, though it connects later.

        Args:
            queue: the queue.
            name: the subscriber's name.
            start: a `Position`, as ``earliest``,
                or ``latest``.
            partitions: which; all if None.

        Raises:
            SubscriberExistsError: there is one of this name.
        """
        push.add_subscriber(self._cluster.log(queue), self.coordination, name, start, partitions)

    def delete_subscriber(self, queue: str, name: str) -> None:
        """Forget a subscriber that is not connected, and how far it was. The queue may be gone.

        Raises:
            SubscriberNotFoundError: no subscriber has this name.
            SubscriberConnectedError: it is connected.
        """
        push.delete_subscriber(check_queue_name(queue), self.coordination, name)

    def seek_subscriber(
        self, queue: str, name: str, start: Start, *, partitions: Collection[int] | None = None
    ) -> dict[int, MessageID]:
        """Let a subscriber that is not connected go on elsewhere, further back or ahead.

        Args:
            queue: the queue.
            name: the subscriber's name.
            start: as for `add_subscriber`.
            partitions: which; all that it has if None.

        Returns:
            The checkpoints that were set, by partition.

        Raises:
            SubscriberNotFoundError: no subscriber has this name, or not in one of the partitions.
            SubscriberConnectedError: it is connected.
        """
        return push.seek_subscriber(
            self._cluster.log(queue), self.coordination, name, start, partitions
        )

    def list_groups(self) -> list[GroupListing]:
        """Every group that has a consumer or an offset, by name. Three round trips for all."""
        return groups.list_groups(self._cluster, self.coordination.store)

    def describe_group(self, group: str, *, queue: str | None = None) -> GroupDescription:
        """Who is in a group, and how far it is in each partition: of all queues, or of one.

        A record that can't be read is named (`GroupPartition.unreadable`), and hides no other. Two
        or three small requests a partition.

        Raises:
            GroupNotFoundError: no group has this name.
        """
        return groups.describe_group(self._cluster, self.coordination.store, group, queue)

    def reset_group(
        self, group: str, queue: str, start: Start, *, partitions: Collection[int] | None = None
    ) -> dict[int, MessageID]:
        """Let a group that does not consume this queue go on elsewhere, further back or ahead.

        A partition that ends before the start goes on at its end. An offset's record that can't be
        read is replaced. Other queues are left as they are. A consumer that joins meanwhile either
        begins where the group was reset to, or makes this fail: what it has taken over is not
        changed.

        Args:
            group: the group's name.
            queue: the queue.
            start: as for `add_subscriber`.
            partitions: which; all of the queue if None.

        Returns:
            The offsets that were set, by partition.

        Raises:
            GroupNotFoundError: no group has this name.
            GroupActiveError: it has consumers of this queue. With an outcome.
            InvalidInputError: there is no such partition; the ID lies beyond the end of each; or
                the time is yet to come.
        """
        log = self._cluster.log(queue)
        return groups.reset_group(
            self._cluster, self.coordination.store, group, log, start, partitions=partitions
        )

    def delete_group(self, group: str, *, queue: str | None = None) -> None:
        """Forget a group that has no consumers, and how far it was: in all queues, or in one that
        it does not consume any more. The queue may be gone.

        Raises:
            GroupNotFoundError: no group has this name, or it has no offsets in the queue.
            GroupActiveError: it has consumers. With an outcome.
        """
        groups.delete_group(self._cluster, self.coordination.store, group, queue)

    def topic_metadata(self, queue: str, *, store: str | None = None) -> TopicMetadata:
        """What hubs keep about a queue's topics: who owns each, where its messages lie, and who
        subscribed to it.

        What is ephemeral is present by the client's session. Asks nothing: the queue need not be
        there.

        Args:
            queue: the queue.
            store: None for where it is in force: where it was moved to, or what the setting
                ``metadata_store`` says. Else that store, to look into it, or to fill it before it
                is used.

        Raises:
            InvalidInputError: no queue has such a name.
            SettingsError: there is no such store.
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
        )

    def metadata_migration(self, queue: str) -> MetadataMigration:
        """What moves a queue's topics' metadata to another store while hubs run. Asks nothing.

        Raises:
            InvalidInputError: no queue has such a name.
            SettingsError: the setting ``metadata_store`` is ``memory``, which nothing moves from.
        """
        return open_migration(
            check_queue_name(queue),
            session=self.coordination.store,
            root=self.coordination.paths.root,
            first=self.settings.metadata_store,
            rows=self._cluster.fields,
            table=self.settings.metadata_table,
            check=functools.partial(self.describe_queue, queue),
            clock=self._cluster.clock,
        )

    def locations(self, name: str) -> list[PartitionLocation]:
        """Which region server serves each partition of a queue now."""
        description = self.describe_queue(name)
        return self._cluster.locations(description.name, description.partitions)


def cluster_of(client: Client) -> Cluster:
    """The open cluster below a client, for what is built on it: `hqueue.engine` and `Consumer`."""
    return client._cluster


def open_log(client: Client, name: str) -> QueueLog:
    """The log of a queue, for `Client.queue` and `hqueue.aio`. Raises as the former."""
    with OnlyReads():
        return cluster_of(client).log(name)


def ranges_of(client: Client, queue: str, topic: str) -> Sequence[LogRange]:
    """Where the messages of a topic lie that hubs own: for `hqueue.engine`."""
    return client._ranges_of(queue, topic)


def _on_append(notifier: AppendNotifier, queue: str) -> Callable[[int, Appended, Bodies], None]:
    """What tells the workers of each append to a queue."""
    key_of = functools.cache(functools.partial(PartitionKey, queue))

    def on_append(partition: int, appended: Appended, bodies: Bodies) -> None:
        notifier.appended(key_of(partition), appended.slot, appended.header, bodies.cells)

    return on_append


def _release(store: StorePort, notifier: AppendNotifier, coordination: Coordination) -> None:
    store.close()
    notifier.close()
    coordination.close()
