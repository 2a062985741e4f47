"""An open cluster: its queues' logs by name, where they are served, and sessions beside them."""

from __future__ import annotations

from collections.abc import Callable

from hqueue.consume.skipped_batches import SkipCounts
from hqueue.format.header import Bodies
from hqueue.handle.queue_log import QueueLog
from hqueue.log import Appended
from hqueue.log.table_ports import PartitionLocation, TablePort
from hqueue.metadata import Coordination
from hqueue.metadata.fields import ClearableRecords
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock, Deadline
from hqueue.settings.attributes import QueueDescription, check_queue_name
from hqueue.settings.connection import Settings
from hqueue.store import StorePort

__all__ = ["Cluster"]

OnAppend = Callable[[int, Appended, Bodies], None]


class Cluster:
    """What stands on a store and on a coordination service takes this. Thread-safe, and usable in a
    forked child.

    Args:
        settings: the connection's.
        store: keeps the queues.
        coordinate: begins a session with the coordination service, which connects when it is used.
            Who begins one closes it.
        on_append: makes for each queue what is called after each append to it.
        clock: where time comes from.
    """

    def __init__(
        self,
        settings: Settings,
        store: StorePort,
        coordinate: Callable[[], Coordination],
        on_append: Callable[[str], OnAppend],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.settings = settings
        self.coordinate = coordinate
        self._store = store
        self._on_append = on_append
        self.clock = clock
        self.skip_counts = SkipCounts()
        """What readers have skipped in all queues."""
        self._id: str | None = None

    @property
    def tables(self) -> TablePort:
        """The tables of all queues."""
        return self._store.tables

    def cluster_id(self) -> str:
        """What names the store's cluster, and is never another's; asked for once.

        Raises:
            StoreUnavailableError: the store stayed away for ``operation_timeout_ms``.
        """
        if self._id is None:
            self._id = self._store.cluster_id()
        return self._id

    def log(self, name: str) -> QueueLog:
        """The log of a queue.

        Raises:
            InvalidInputError: no queue has such a name.
            QueueNotFoundError, NotAQueueError: there is no such queue.
        """
        name = check_queue_name(name)
        description = self.describe(name)
        return QueueLog(
            description,
            lambda: self.describe(name),
            port=self._store.log(name),
            loop_port=self._store.async_log(name),
            on_append=self._on_append(name),
            settings=self.settings,
            clock=self.clock,
            skip_counts=self.skip_counts,
        )

    def describe(self, name: str) -> QueueDescription:
        """What the store says of a queue now."""
        return self._store.tables.describe(check_queue_name(name))

    def locations(self, name: str, partitions: int) -> list[PartitionLocation]:
        """Where the partitions of a queue are served now."""
        deadline = Deadline(self.clock, self.settings.operation_timeout_ms)
        return deadline.run(lambda: self.locate(name, partitions))

    def locate(self, name: str, partitions: int) -> list[PartitionLocation]:
        """Like `locations`, with one try."""
        return self._store.locations.locate(name, partitions)

    def fields(self) -> ClearableRecords:
        """Records of fields, which lie beside the queues."""
        return self._store.fields()
