"""A consumer's membership of its group: its session, its claims of partitions, and the queues that
exist.
"""

from __future__ import annotations

import socket
import threading
import uuid
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from hqueue.errors import ClosedError, HQueueError, InvalidInputError, QueueNotFoundError
from hqueue.groups.assigned import HandAssigned
from hqueue.groups.assignors import ASSIGNORS
from hqueue.groups.catalog import Catalog, QueueCatalog, Selection
from hqueue.groups.consumer_options import ConsumerSettings
from hqueue.groups.kinds import CONSUMER, GroupKinds
from hqueue.groups.member import GroupMember
from hqueue.groups.offsets import GroupOffsets
from hqueue.groups.paths import GroupPaths
from hqueue.handle import Cluster
from hqueue.metadata import Coordination, PartitionKey, Watch
from hqueue.runtime.logs import Log
from hqueue.runtime.loop import BackgroundLoop
from hqueue.runtime.steps import Work
from hqueue.runtime.stepwise import Stepwise, or_closed, stepwise

__all__ = ["GroupMembership"]

logger = Log(__name__)


class GroupMembership(Stepwise):
    """A consumer's membership of its group. A consumer without a group has one, too.

    The consumer's thread uses it, under the consumer's lock; or one task at a time of the
    consumer's event loop. That loop, or the process's if threads use the consumer, watches the
    group and the queues, and only leaves notes here.

    Args:
        cluster: the cluster that has the queues.
        group: the group's name; None for a consumer without a group.
        settings: the consumer's settings.
        on_note: called by other threads when there is something to do.
        on_idle: as `GroupMember` takes it.
        streams: how many members the consumer counts as.
        loop: the event loop that the consumer belongs to; None if threads use it.

    Raises:
        InvalidInputError: the group's name or the instance ID is not valid.
    """

    def __init__(
        self,
        cluster: Cluster,
        group: str | None,
        settings: ConsumerSettings,
        on_note: Callable[[], None],
        on_idle: Callable[[], Awaitable[object]],
        *,
        streams: int,
        loop: BackgroundLoop | None = None,
    ) -> None:
        self._unique = f"{socket.gethostname()}:{uuid.uuid4()}"
        self.consumer_id = settings.instance_id or self._unique
        """The consumer's ID in its group."""
        self.in_group = group is not None
        """Whether the consumer has a group, and so commits."""
        self.holder: GroupMember | HandAssigned | None = None
        """Holds the consumer's partitions; None while it has none."""
        self.found: Catalog | None = None
        """The queues that exist; None while the consumer has not subscribed."""
        self.missing: frozenset[str] = frozenset()
        """Queues that the consumer subscribed to by name and that were deleted. The caller that
        reports them empties this set."""
        self._paths: GroupPaths | None = None
        if group is not None:
            root, broker = cluster.settings.zookeeper_root, cluster.settings.broker_id
            self._paths = GroupPaths(root, group, broker)
            self._paths.member(self.consumer_id)  # It may be no name.
        self._cluster = cluster
        self._settings = settings
        self._streams = streams
        self._on_note = on_note
        self._on_idle = on_idle
        self._loop = loop
        self._coordination: Coordination | None = None
        self._catalog: QueueCatalog | None = None
        self._broker_watch: Watch | None = None
        self._selected = Selection()
        self._lock = threading.RLock()
        """Held during the close, and while resources are stored that must be closed."""
        self._closed = False
        self._leaving: list[GroupMember | HandAssigned | Watch | QueueCatalog] = []
        """Resources that were given up, and must be closed. After an interruption the next call
        closes them."""

    def offsets(self) -> GroupOffsets | None:
        """The group's offsets; None without a group."""
        return None if self._paths is None else GroupOffsets(self._session().store, self._paths)

    @stepwise
    def check_selection(self, selection: Selection) -> Work[Any, Catalog]:
        """Look for queues from now on. Returns those that exist.

        Raises:
            InvalidInputError: the consumer has no group, or partitions were assigned by hand.
            QueueNotFoundError: a queue that is selected by name does not exist. Nothing has
                changed.
            StoreUnavailableError: HBase or ZooKeeper was unavailable.
        """
        yield from self._finish_leaving()
        if self._paths is None:
            raise InvalidInputError(
                "a consumer without a group can't subscribe: give it a group, or assign "
                "partitions to it"
            )
        if isinstance(self.holder, HandAssigned):
            raise InvalidInputError("partitions were assigned by hand; unsubscribe first")
        if self._catalog is None:
            yield from self._open_catalog()
        assert self._catalog is not None
        found: Catalog = yield self._catalog.select.asked(selection)
        if found.missing:
            yield self._catalog.select.asked(self._selected)
            raise QueueNotFoundError("there is no such queue", queue=min(found.missing))
        return found

    @stepwise
    def subscribe(self, selection: Selection, found: Catalog) -> Work[Any, bool]:
        """Consume these queues as a member of the group. Returns whether the consumer has just
        become a member.
        """
        holder = self.holder
        joined = not isinstance(holder, GroupMember)
        if isinstance(holder, GroupMember):
            yield holder.subscribe.asked(self._shares(found))
            self._selected, self.found = selection, found
        else:
            yield from self._join(selection, found)
        self._see(found)
        return joined

    @stepwise
    def assign(self, partitions: Collection[PartitionKey]) -> Work[Any, None]:
        """Take these partitions, even if another consumer has them."""
        yield from self._finish_leaving()
        if self._paths is not None:
            yield from self._check_broker()
            yield GroupKinds(self._session().store, self._paths).check.asked(CONSUMER)
        assigned = HandAssigned(self.offsets(), self._unique, partitions)
        yield assigned.begin.asked()
        with self._lock:
            self._check_open()
            self.holder = assigned

    @stepwise
    def rejoin(self) -> Work[Any, None]:
        """Join the group again, after the member has left."""
        assert isinstance(self.holder, GroupMember)
        assert self.found is not None
        yield self.holder.close.asked()
        yield from self._join(self._selected, self.found)
        self._see(self.found)

    @stepwise
    def leave(self) -> Work[Any, None]:
        """Give up all partitions, and stop looking for queues."""
        had = (self.holder, self._broker_watch, self._catalog)
        self._leaving += [each for each in had if each is not None]
        yield from self._finish_leaving()

    def _finish_leaving(self) -> Work[Any, None]:
        """Close the resources that were given up. The membership and the catalog go first."""
        if self._leaving:
            self.holder = self.found = self._broker_watch = self._catalog = None
            self._selected = Selection()
        while self._leaving:
            first = self._leaving[0]
            if isinstance(first, GroupMember):
                yield first.close.asked()
            else:
                first.close()
            del self._leaving[0]

    @stepwise
    def close(self) -> Work[Any, None]:
        """End the session. The session of a static member ends by itself, so that a successor can
        come in time.
        """
        with self._lock:
            self._closed = True
        yield from self.leave.steps()  # It may have joined meanwhile, for a cancelled caller.
        coordination = self._coordination
        if coordination is None:
            return
        if self._settings.instance_id is None:
            yield coordination.close.asked()
            return
        coordination.store.close_later(coordination.store.session_timeout_ms)

    def _join(self, selection: Selection, found: Catalog) -> Work[Any, None]:
        """Join the group. The membership and the subscription change together, at the end."""
        member = self._new_member(found)
        entering = self._enter(member, selection, found)
        loop = self._session().store.loop
        yield from or_closed(entering, member.close, loop, lambda: self.holder is member)

    def _enter(self, member: GroupMember, selection: Selection, found: Catalog) -> Work[Any, None]:
        yield member.join.asked()
        with self._lock:
            self._check_open()
            self._selected, self.found, self.holder = selection, found, member

    def _new_member(self, found: Catalog) -> GroupMember:
        catalog, paths = self._catalog, self._paths
        assert catalog is not None and paths is not None  # noqa: PT018
        settings = self._settings
        return GroupMember(
            self._session().store,
            paths,
            self.consumer_id,
            self._shares(found),
            assignor=ASSIGNORS[settings.assignor],
            eager=settings.assignor == "range",
            writer=self._unique,
            static=settings.instance_id is not None,
            on_change=self._on_note,
            on_queues=catalog.include,
            on_idle=self._on_idle,
            idle_ms_max=settings.poll_interval_ms_max,
            clock=self._cluster.clock,
        )

    def _open_catalog(self) -> Work[Any, None]:
        """Look for queues at intervals, and at once when a worker registers others."""
        yield from self._check_broker()
        brokers = self._session().brokers
        with self._lock:
            self._check_open()
            catalog = QueueCatalog(
                self._cluster,
                self._on_catalog,
                self._settings.metadata_age_ms_max,
                self._loop,
                self._cluster.clock,
            )
            self._catalog = catalog
        watch = brokers.watch_queues(lambda _: catalog.refresh())
        with self._lock:
            self._broker_watch = watch
        if self._closed:
            yield from self.leave.steps()

    def _check_broker(self) -> Work[Any, None]:
        broker, own = self._cluster.settings.broker_id, self._cluster.cluster_id.asked()
        yield self._session().brokers.check.asked(broker, own)

    def _session(self) -> Coordination:
        with self._lock:
            if self._coordination is None:
                self._check_open()
                self._coordination = self._cluster.coordinate(self._loop)
            return self._coordination

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the consumer was closed")

    def _shares(self, found: Catalog) -> dict[str, int]:
        return dict.fromkeys(found.selected, self._streams)

    def _on_catalog(self, found: Catalog) -> Work[Any, bool]:
        """Note that the catalog found other queues. Returns whether the group knows of them."""
        holder, before = self.holder, self.found
        if not isinstance(holder, GroupMember) or before is None:
            return False  # It joins just now, with what was found before.
        try:
            if found.selected != before.selected:
                yield holder.subscribe.asked(self._shares(found))
        except ClosedError:
            return False
        except HQueueError as exc:
            logger.warning(
                "a consumer can't subscribe to new queues that match its pattern yet: %s", exc
            )
            return False
        self.found = found
        self._see(found)
        return True

    def _see(self, found: Catalog) -> None:
        holder = self.holder
        if isinstance(holder, GroupMember):
            holder.see_partitions(found.partitions)
        self.missing = found.missing
        self._on_note()
