"""The client: administering queues, and opening them."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Callable, Collection
from typing import Literal

from hqueue import push
from hqueue.errors import InvalidInputError
from hqueue.handle import QueueLog
from hqueue.log.store import PartitionLocation, StorePort
from hqueue.message import MessageID
from hqueue.metadata import Coordination, PartitionKey
from hqueue.push import EARLIEST, Start, SubscriberState
from hqueue.push.append_notifier import AppendNotifier
from hqueue.queue import Queue
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock, Deadline
from hqueue.runtime.memory import keep_freed
from hqueue.settings.attributes import (
    QueueDescription,
    check_attributes,
    check_partitions,
    check_queue_name,
    ttl_seconds,
)
from hqueue.settings.connection import Settings
from hqueue.settings.options import AlterableAttributes, QueueAttributes, Unpack

__all__ = ["Client"]

Ttl = str | int | datetime.timedelta | None


class Client:
    """A connection to a cluster. Thread-safe, and usable in a forked child. Made by `connect`.

    Connections are pooled and opened when needed. Use it as a context manager, or `close` it.

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
        self._store = store
        self._coordinate = coordinate
        self._clock = clock
        self._coordination = coordinate()
        self._notifier = AppendNotifier(lambda: self._coordination, settings.zookeeper)
        if not settings.notify_workers:
            self._notifier.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections. What was made from this client can't be used any more."""
        self._store.close()
        self._notifier.close()
        self._coordination.close()

    @property
    def coordination(self) -> Coordination:
        """The client's session with the coordination service: subscriptions, checkpoints, workers.

        Connects when it is first used. What is present by it is so until the client is closed.
        """
        return self._coordination

    def queue(self, name: str) -> Queue:
        """Open a queue.

        Raises:
            QueueNotFoundError: there is no such table.
            NotAQueueError: there is, but it was not created as a queue.
        """
        return Queue(self._log(name), self._coordinate)

    def _log(self, name: str) -> QueueLog:
        description = self.describe_queue(name)
        log = self._store.log(name)
        key_of = functools.cache(functools.partial(PartitionKey, name))
        return QueueLog(
            description,
            lambda: self.describe_queue(name),
            appends=log,
            reads=log,
            on_append=lambda partition, appended, bodies: self._notifier.appended(
                key_of(partition), appended.slot, appended.header, bodies.cells
            ),
            settings=self.settings,
            clock=self._clock,
        )

    def create_queue(
        self,
        name: str,
        *,
        partitions: int,
        ttl: Ttl = "7d",
        **attributes: Unpack[QueueAttributes],
    ) -> Queue:
        """Create a queue, presharded, and open it.

        Args:
            name: its name, and its table's; with ``namespace:`` before it or without.
            partitions: 1 to 32,767, and fixed for ever.
            ttl: how long messages are kept: seconds, a timedelta, a text as ``12h`` or ``7d``;
                None or ``forever``.
            attributes: see `QueueAttributes`.

        Raises:
            InvalidInputError: an argument is out of range. Nothing was sent.
            QueueExistsError: there is a table of that name.
        """
        check_queue_name(name)
        check_partitions(partitions)
        checked = check_attributes(attributes)
        self._store.tables.create(name, partitions, ttl_seconds(ttl), checked)
        return self.queue(name)

    def list_queues(self) -> list[QueueDescription]:
        """All queues, by name."""
        return self._store.tables.list()

    def describe_queue(self, name: str) -> QueueDescription:
        """What HBase says of a queue."""
        return self._store.tables.describe(check_queue_name(name))

    def alter_queue(
        self, name: str, *, ttl: Ttl = "keep", **attributes: Unpack[AlterableAttributes]
    ) -> QueueDescription:
        """Change a queue's TTL and attributes; what is not given stays. Returns what is now.

        Messages that expired under a shorter TTL do not come back with a longer one.
        """
        check_queue_name(name)
        checked = check_attributes(attributes)
        if "partitions_per_region" in checked:
            raise InvalidInputError("partitions_per_region is fixed when a queue is created")
        seconds: int | Literal["keep"] | None = "keep" if ttl == "keep" else ttl_seconds(ttl)
        self._store.tables.alter(name, ttl_seconds=seconds, attributes=checked)
        return self.describe_queue(name)

    def enable_queue(self, name: str) -> None:
        """Let a queue take puts and reads again. One that is enabled stays so."""
        self._store.tables.enable(check_queue_name(name))

    def disable_queue(self, name: str) -> None:
        """Let a queue refuse puts and reads; its messages stay. Needed before `delete_queue`."""
        self._store.tables.disable(check_queue_name(name))

    def delete_queue(self, name: str) -> None:
        """Delete a disabled queue with all its messages.

        Raises:
            QueueEnabledError: it is not disabled.
        """
        self._store.tables.delete(check_queue_name(name))

    def truncate_queue(self, name: str) -> None:
        """Delete all messages of a queue, and keep its partitions. Takes some seconds, in which
        the queue is disabled; afterwards it is enabled.
        """
        self._store.tables.truncate(check_queue_name(name))

    def list_subscribers(self, queue: str) -> list[SubscriberState]:
        """Every subscriber of a queue in every partition: whether it is connected, and its lag.

        Some small requests a partition and subscriber.
        """
        return push.list_subscribers(self._log(queue), self.coordination)

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
            start: a `MessageID`, an aware datetime, milliseconds since the epoch, ``earliest``
                or ``latest``.
            partitions: which; all if None.

        Raises:
            SubscriberExistsError: there is one of this name.
        """
        push.add_subscriber(self._log(queue), self.coordination, name, start, partitions)

    def delete_subscriber(self, queue: str, name: str) -> None:
        """Forget a subscriber that is not connected, and how far it was. The queue may be gone.

        Raises:
            SubscriberNotFoundError: there is none of this name.
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
            SubscriberNotFoundError: there is none of this name, or not in one of the partitions.
            SubscriberConnectedError: it is connected.
        """
        return push.seek_subscriber(self._log(queue), self.coordination, name, start, partitions)

    def locations(self, name: str) -> list[PartitionLocation]:
        """Which region server serves each partition of a queue now."""
        description = self.describe_queue(name)
        deadline = Deadline(self._clock, self.settings.operation_timeout_ms)
        return deadline.run(lambda: self._store.locations.locate(name, description.partitions))
