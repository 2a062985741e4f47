"""Snapshots of queues: taking, listing, restoring and deleting them."""

from __future__ import annotations

from typing import Any

from hqueue.errors import InvalidInputError, QueueNotFoundError, SnapshotNotFoundError
from hqueue.handle.cluster import Cluster
from hqueue.log.table_ports import Snapshot
from hqueue.runtime.steps import Pause, Work
from hqueue.runtime.stepwise import Stepwise, stepwise
from hqueue.settings.attributes import QueueDescription, check_queue_name
from hqueue.settings.limits import TRUNCATE_PAUSE_MS
from hqueue.settings.names import is_name, with_closest

__all__ = ["SnapshotAdministration"]


class SnapshotAdministration(Stepwise):
    """Administers snapshots: in the caller's thread, or in an event loop. Its methods promise what
    those of `Client` do.

    Args:
        cluster: has the queues.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @stepwise
    def create(self, queue: str, snapshot: str) -> Work[Any, None]:
        """Like `Client.create_snapshot`."""
        name, snapshots = check_snapshot_name(snapshot), self._cluster.snapshots
        described: QueueDescription = yield from self._cluster.describe.steps(queue)
        yield snapshots.create.asked(name, described.name)

    @stepwise
    def list(self, queue: str | None) -> Work[Any, list[Snapshot]]:
        """Like `Client.list_snapshots`."""
        wanted = None if queue is None else check_queue_name(queue)
        found: list[Snapshot] = yield self._cluster.snapshots.list.asked()
        kept = [each for each in found if wanted is None or each.queue == wanted]
        return sorted(kept, key=lambda each: (each.queue, each.created_ms, each.name))

    @stepwise
    def delete(self, snapshot: str) -> Work[Any, None]:
        """Like `Client.delete_snapshot`."""
        name = check_snapshot_name(snapshot)
        yield self._cluster.snapshots.delete.asked(name)

    @stepwise
    def restore(self, snapshot: str, queue: str | None) -> Work[Any, str]:
        """Like `Client.restore_snapshot`."""
        found = yield from self._find(check_snapshot_name(snapshot))
        name = check_queue_name(found.queue if queue is None else queue)
        try:
            there: QueueDescription | None = yield from self._cluster.describe.steps(name)
        except QueueNotFoundError:
            there = None
        restore = self._cluster.snapshots.restore
        if there is None:
            yield restore.asked(found.name, name)
        else:
            if name != found.queue:
                raise InvalidInputError(
                    "the snapshot is of another queue: restore it under the name of a queue that "
                    "does not exist",
                    snapshot=found.name,
                    queue=name,
                    snapshot_of=found.queue,
                )
            yield self._cluster.tables.disable.asked(name)
            yield Pause(self._pause_ms)
            yield restore.asked(found.name, name)
            yield self._cluster.tables.enable.asked(name)
        restored: QueueDescription = yield from self._cluster.describe.steps(name)
        yield from self._cluster.keep_opening(name, restored.partitions)
        return name

    @property
    def _pause_ms(self) -> float:
        """For how long a queue stays disabled: longer than any writer trusts what it knows of the
        log, and until no clock of a writer is behind an ID that another clock gave. So each new
        message has a higher ID than the ones that the restoration discards, and no position that a
        reader reached in them lies beyond it.
        """
        return max(TRUNCATE_PAUSE_MS, 2 * self._cluster.settings.clock_skew_ms_max)

    def _find(self, name: str) -> Work[Any, Snapshot]:
        found: list[Snapshot] = yield self._cluster.snapshots.list.asked()
        for each in found:
            if each.name == name:
                return each
        raise with_closest(
            SnapshotNotFoundError("there is no such snapshot", snapshot=name),
            name,
            [each.name for each in found],
        )


def check_snapshot_name(name: object) -> str:
    """A snapshot's name.

    Raises:
        InvalidInputError: HBase would refuse the name.
    """
    if not is_name(name):
        raise InvalidInputError(
            "a snapshot's name may have letters, digits, '_', '-' and '.', can't begin with '-' or "
            "'.', and has 1 to 200 characters",
            snapshot=name,
        )
    return name
