"""Administration of queues: creating, opening, altering and deleting them, and where they are."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, Literal

from hqueue.errors import (
    InvalidInputError,
    NotAQueueError,
    QueueDisabledError,
    QueueEnabledError,
    QueueExistsError,
    QueueNotFoundError,
)
from hqueue.handle.cluster import Cluster
from hqueue.handle.queue_log import QueueLog
from hqueue.log.table_ports import PartitionLocation, RegionSize
from hqueue.metadata import Coordination
from hqueue.metadata.managers import TopicMetadataDeletion
from hqueue.runtime.only_reads import OnlyReads
from hqueue.runtime.steps import Work
from hqueue.runtime.stepwise import Stepwise, stepwise
from hqueue.settings.attributes import (
    QueueDescription,
    check_attributes,
    check_partitions,
    check_queue_name,
    check_same_partitions,
    ttl_seconds,
)
from hqueue.settings.kinds import check_flag

__all__ = ["QueueAdministration", "Ttl"]

Ttl = str | int | datetime.timedelta | None


class QueueAdministration(Stepwise):
    """Administers queues: in the caller's thread, or in an event loop. Its methods promise what
    those of `Client` do.

    Args:
        cluster: has the queues.
        coordination: a session with the coordination service, which has metadata of their topics.
    """

    def __init__(self, cluster: Cluster, coordination: Coordination) -> None:
        self._cluster = cluster
        self._coordination = coordination

    @stepwise
    def open(self, name: str) -> Work[Any, QueueLog]:
        """Like `Client.queue`."""
        with OnlyReads():
            return (yield from self._cluster.log.steps(name))

    @stepwise
    def create(
        self,
        name: str,
        partitions: int,
        ttl: Ttl,
        attributes: Mapping[str, object],
        *,
        exist_ok: bool,
    ) -> Work[Any, QueueLog]:
        """Like `Client.create_queue`."""
        name, partitions = check_queue_name(name), check_partitions(partitions)
        if name == self._cluster.settings.metadata_table:
            raise InvalidInputError(
                "the setting metadata_table reserves this name for the table of topics' "
                "metadata: choose another name",
                queue=name,
            )
        checked = check_attributes(attributes)
        check_flag(exist_ok, "exist_ok")
        existed = False
        try:
            yield self._cluster.tables.create.asked(name, partitions, ttl_seconds(ttl), checked)
        except QueueExistsError:
            if not exist_ok:
                raise
            existed = True
        log = yield from self._cluster.log.steps(name)
        if existed:
            check_same_partitions(name, log.partitions, partitions)
        yield from self._cluster.keep_opening(name, partitions)
        return log

    @stepwise
    def exists(self, name: str) -> Work[Any, bool]:
        """Like `Client.queue_exists`."""
        try:
            yield from self.describe.steps(name)
        except (QueueNotFoundError, NotAQueueError):
            return False
        return True

    @stepwise
    def describe(self, name: str) -> Work[Any, QueueDescription]:
        """Like `Client.describe_queue`."""
        return self._cluster.describe.steps(name)

    @stepwise
    def alter(
        self, name: str, ttl: Ttl, attributes: Mapping[str, object]
    ) -> Work[Any, QueueDescription]:
        """Like `Client.alter_queue`."""
        name = check_queue_name(name)
        checked = check_attributes(attributes)
        if "partitions_per_region" in checked:
            raise InvalidInputError(
                "partitions_per_region can't be changed: it is fixed when a queue is created"
            )
        seconds: int | Literal["keep"] | None = "keep" if ttl == "keep" else ttl_seconds(ttl)
        yield self._cluster.tables.alter.asked(name, ttl_seconds=seconds, attributes=checked)
        altered = yield from self.describe.steps(name)
        if altered.enabled:
            yield from self._cluster.keep_opening(name, altered.partitions)
        return altered

    @stepwise
    def enable(self, name: str) -> Work[Any, None]:
        """Like `Client.enable_queue`."""
        yield self._cluster.tables.enable.asked(check_queue_name(name))

    @stepwise
    def disable(self, name: str) -> Work[Any, None]:
        """Like `Client.disable_queue`."""
        yield self._cluster.tables.disable.asked(check_queue_name(name))

    @stepwise
    def delete(self, name: str, *, force: bool) -> Work[Any, None]:
        """Like `Client.delete_queue`."""
        check_flag(force, "force")
        name = check_queue_name(name)
        if (yield from self.describe.steps(name)).enabled:
            if not force:
                raise QueueEnabledError(
                    "the queue is enabled: disable it before you delete it", queue=name
                )
            yield from self.disable.steps(name)
        metadata = TopicMetadataDeletion(
            self._coordination.store, self._coordination.paths.root, self._cluster.fields
        )
        yield metadata.delete.asked(name)
        yield self._cluster.tables.delete.asked(name)

    @stepwise
    def truncate(self, name: str) -> Work[Any, None]:
        """Like `Client.truncate_queue`."""
        name = check_queue_name(name)
        yield self._cluster.tables.truncate.asked(name)
        partitions = (yield from self.describe.steps(name)).partitions
        yield from self._cluster.keep_opening(name, partitions)

    @stepwise
    def locations(self, name: str) -> Work[Any, list[PartitionLocation]]:
        """Like `Client.locations`."""
        description = yield from self.describe.steps(name)
        return (yield from self._cluster.locations.steps(description.name, description.partitions))

    @stepwise
    def sizes(self, name: str) -> Work[Any, list[RegionSize]]:
        """Like `Client.region_sizes`."""
        description = yield from self.describe.steps(name)
        if not description.enabled:
            raise QueueDisabledError("the queue is disabled: no server counts its size", queue=name)
        return (yield from self._cluster.sizes.steps(description.name, description.partitions))

    @stepwise
    def list(self) -> Work[Any, list[QueueDescription]]:
        """Like `Client.list_queues`."""
        found: list[QueueDescription] = yield self._cluster.tables.list.asked()
        return found
