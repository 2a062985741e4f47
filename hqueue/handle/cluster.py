"""An open cluster: its queues' logs by name, where they are served, and sessions beside them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from hqueue.consume.skipped_batches import SkipCounts
from hqueue.errors import (
    AuthenticationError,
    QueueStateError,
    RequestRefusedError,
    SettingsError,
    StoreUnavailableError,
)
from hqueue.format.header import Bodies
from hqueue.handle.opening_record import NAME as OPENING
from hqueue.handle.opening_record import decode_opening, encode_opening
from hqueue.handle.queue_log import QueueLog
from hqueue.log import Appended
from hqueue.log.table_ports import PartitionLocation, RegionSize, SnapshotPort, TablePort
from hqueue.metadata import Coordinate
from hqueue.metadata.fields import ClearableRecords
from hqueue.net.tokens import DelegationToken
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock, Deadline
from hqueue.runtime.logs import Log
from hqueue.runtime.steps import Wait, Work
from hqueue.runtime.stepwise import OnPorts, stepwise
from hqueue.settings.attributes import QueueDescription, check_queue_name
from hqueue.settings.connection import Settings
from hqueue.store import StorePort, TokenPort

__all__ = ["Cluster"]

logger = Log(__name__)

OnAppend = Callable[[int, Appended, Bodies], None]


class Cluster(OnPorts):
    """What stands on a store and on a coordination service takes this. Thread-safe, and usable in a
    forked child. Queues are looked up in the caller's thread, or in an event loop.

    Args:
        settings: the connection's.
        store: keeps the queues.
        coordinate: opens sessions with the coordination service. Its caller closes the session.
        on_append: makes for each queue what is called after each append to it.
        clock: where time comes from.
    """

    def __init__(
        self,
        settings: Settings,
        store: StorePort,
        coordinate: Coordinate,
        on_append: Callable[[str], OnAppend],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__(None, None, clock)
        self.settings = settings
        self.coordinate = coordinate
        self.clock = clock
        self._store = store
        self._on_append = on_append
        self.skip_counts = SkipCounts()
        """What readers have skipped in all queues."""
        self._id: str | None = None

    @property
    def tables(self) -> TablePort:
        """The tables of all queues."""
        return self._store.tables

    @property
    def snapshots(self) -> SnapshotPort:
        """Snapshots of queues' tables.

        Raises:
            SettingsError: this way to the store can't take snapshots.
        """
        if self._store.snapshots is None:
            raise SettingsError("snapshots need the native way to HBase: set hbase='native'")
        return self._store.snapshots

    @stepwise
    def cluster_id(self) -> Work[Any, str]:
        """What names the store's cluster, and is never another's; asked for once.

        Raises:
            StoreUnavailableError: the store stayed away for ``operation_timeout_ms``.
        """
        if self._id is None:
            self._id = yield self._store.cluster_id.asked()
        return self._id

    @stepwise
    def delegation_token(self) -> Work[Any, DelegationToken]:
        """Like `TokenPort.get`.

        Raises:
            SettingsError: the store has no such tokens.
        """
        found: DelegationToken = yield self._tokens.get.asked()
        return found

    def use_token(self, token: DelegationToken) -> None:
        """Like `TokenPort.use`.

        Raises:
            SettingsError: the store has no such tokens.
        """
        self._tokens.use(token)

    @property
    def _tokens(self) -> TokenPort:
        if self._store.tokens is None:
            raise SettingsError(
                "delegation tokens need the native way to HBase: set hbase='native'"
            )
        return self._store.tokens

    @stepwise
    def log(self, name: str) -> Work[Any, QueueLog]:
        """The log of a queue.

        Raises:
            InvalidInputError: no queue has such a name.
            QueueNotFoundError, NotAQueueError: there is no such queue.
            RequestRefusedError: this client may not read it.
        """
        name = check_queue_name(name)
        description = yield from self._opening(name)
        return QueueLog(
            description,
            partial(self.describe.asked, name),
            port=self._store.log(name),
            loop_port=self._store.async_log(name),
            on_append=self._on_append(name),
            settings=self.settings,
            clock=self.clock,
            skip_counts=self.skip_counts,
        )

    @stepwise
    def describe(self, name: str) -> Work[Any, QueueDescription]:
        """What the store says of a queue now."""
        found: QueueDescription
        found = yield self._store.tables.describe.asked(check_queue_name(name))
        return found

    def _opening(self, name: str) -> Work[Any, QueueDescription]:
        """What must be known of a queue to open it: as the store describes it, or, to those to whom
        it does not, as the queue's own record says.
        """
        try:
            return (yield from self.describe.steps(name))
        except AuthenticationError:
            raise
        except RequestRefusedError:
            deadline = Deadline(self.clock, self.settings.operation_timeout_ms)
            read = partial(self._opening_record, name)
            record = yield from deadline.bound(deadline.insist(read))
            if record is None:
                raise
            return decode_opening(record, name)

    @stepwise
    def recorded_partitions(self, name: str) -> Work[Any, int | None]:
        """How many partitions a queue has, as the queue's own record says: one small read at a
        region server. None if the queue has no such record.

        Raises:
            StoreUnavailableError, QueueStateError: the record can't be read now.
        """
        record = yield from self._opening_record(name)
        return None if record is None else decode_opening(record, name).partitions

    def _opening_record(self, name: str) -> Work[Any, bytes | None]:
        here, in_loop = self._store.log(name), self._store.async_log(name)
        found: bytes | None = yield Wait(
            partial(here.record, OPENING), partial(in_loop.record, OPENING)
        )
        return found

    def keep_opening(self, name: str, partitions: int) -> Work[Any, None]:
        """Keep the record by which those may open a queue to whom the store does not describe it.
        If it can't be kept now, those can't open it, and the log says so.
        """
        here, in_loop = self._store.log(name), self._store.async_log(name)
        given = OPENING, None, encode_opening(partitions)
        try:
            yield Wait(
                partial(here.replace_record, *given), partial(in_loop.replace_record, *given)
            )
        except (StoreUnavailableError, RequestRefusedError, QueueStateError) as exc:
            logger.warning(
                "principals without the right CREATE can't open the queue %s until it is altered: "
                "its record was not written: %s",
                name,
                exc,
            )

    @stepwise
    def locations(self, name: str, partitions: int) -> Work[Any, list[PartitionLocation]]:
        """Where the partitions of a queue are served now."""
        deadline = Deadline(self.clock, self.settings.operation_timeout_ms)
        located = partial(self.locate.steps, name, partitions)
        return deadline.bound(deadline.insist(located))

    @stepwise
    def locate(self, name: str, partitions: int) -> Work[Any, list[PartitionLocation]]:
        """Like `locations`, with one try."""
        located: list[PartitionLocation]
        located = yield self._store.locations.locate.asked(name, partitions)
        return located

    @stepwise
    def sizes(self, name: str, partitions: int) -> Work[Any, list[RegionSize]]:
        """How much room the regions of a queue take now.

        Raises:
            SettingsError: this way to the store can't say it.
        """
        port = self._store.sizes
        if port is None:
            raise SettingsError("sizes need the native way to HBase: set hbase='native'")
        deadline = Deadline(self.clock, self.settings.operation_timeout_ms)

        def once() -> Work[Any, list[RegionSize]]:
            found: list[RegionSize] = yield port.sizes.asked(name, partitions)
            return found

        return (yield from deadline.bound(deadline.insist(once)))

    def fields(self) -> ClearableRecords:
        """Records of fields, which lie beside the queues."""
        return self._store.fields()
