"""Administration of groups: listing and describing them, moving, resetting and deleting offsets."""

from __future__ import annotations

import dataclasses
import socket
import uuid
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import partial

from hqueue.errors import (
    CommitFailedError,
    GroupActiveError,
    GroupNotFoundError,
    InvalidInputError,
    Outcome,
    QueueStateError,
    UnsupportedFormatError,
)
from hqueue.groups.members import GroupMembers
from hqueue.groups.offsets import UNSET, GroupOffsets, Position
from hqueue.groups.paths import GroupPaths, group_name, groups_below
from hqueue.groups.positions import BEGINNING, end_of, is_to_come, position_since
from hqueue.handle import Cluster, QueueLog
from hqueue.log.lag import PartitionLag
from hqueue.message_id import MessageID
from hqueue.metadata import MetadataStore, Owners, PartitionKey
from hqueue.metadata.ports import ANY
from hqueue.position import EARLIEST, LATEST, Start, as_message_id, check_start, is_time
from hqueue.runtime.clock import SYSTEM_CLOCK, do_step
from hqueue.runtime.steps import carry_out
from hqueue.settings.attributes import check_partition, check_queue_name
from hqueue.settings.kinds import listed

__all__ = [
    "GroupDescription",
    "GroupListing",
    "GroupPartition",
    "delete_group",
    "describe_group",
    "group_names",
    "list_groups",
    "reset_group",
]

TRIES_MAX = 10
"""How often the offsets may be changed by others while they are reset."""


@dataclasses.dataclass(frozen=True, slots=True)
class GroupListing:
    """A group in a list of groups."""

    group: str
    members: int
    """The number of its consumers."""
    queues: tuple[str, ...]
    """The queues in which it has offsets."""


@dataclasses.dataclass(frozen=True, slots=True)
class GroupPartition:
    """A group's state in one partition."""

    queue: str
    partition: int
    owner: str | None
    """The ID of the consumer that has the partition; None if none has it."""
    committed: MessageID | None
    """The committed offset: the first ID that the group has not consumed. None if it has no offset
    yet.
    """
    lag: PartitionLag | None
    """The lag between the committed offset and the end; for a group without an offset, the whole
    partition. None if the queue or the offset can't be read now.
    """
    unreadable: UnsupportedFormatError | None = None
    """The reason why the record of the offset or of the claim can't be read; None if all can."""


@dataclasses.dataclass(frozen=True, slots=True)
class GroupDescription:
    """The members and partitions of a group."""

    group: str
    members: Mapping[str, Mapping[str, int]]
    """The group's consumers by their IDs, each with the number of its streams for each queue. That
    mapping is empty if the consumer's record can't be read.
    """
    partitions: tuple[GroupPartition, ...]
    """The partitions in which it has an offset or an owner, by queue and number."""


def group_names(cluster: Cluster, store: MetadataStore) -> list[str]:
    """Every name of a group that has, or had, a consumer or an offset. One request."""
    segments = store.records.keys(groups_below(cluster.settings.zookeeper_root), 1)
    names = (group_name(path.rpartition("/")[2]) for path in segments)
    return sorted(name for name in names if name is not None)


def list_groups(cluster: Cluster, store: MetadataStore) -> list[GroupListing]:
    """Every group that has a consumer or an offset, by name. A few round trips for all."""
    members: dict[str, int] = defaultdict(int)
    queues: dict[str, set[str]] = defaultdict(set)
    for path in store.records.keys(groups_below(cluster.settings.zookeeper_root), 3):
        segment, kind, name = path.split("/")[-3:]
        group = group_name(segment)
        if group is None:
            continue
        if kind == "ids":
            members[group] += 1
        elif kind == "offsets":
            queues[group].add(name)
    return [
        GroupListing(group, members.get(group, 0), tuple(sorted(queues.get(group, ()))))
        for group in sorted(members.keys() | queues.keys())
    ]


def describe_group(
    cluster: Cluster, store: MetadataStore, name: str, queue: str | None = None
) -> GroupDescription:
    """Who is in a group, and how far it is in each partition, or in those of one queue.

    Raises:
        GroupNotFoundError: no group has this name.
    """
    if queue is not None:
        queue = check_queue_name(queue)
    group = _Group(cluster, store, name)
    members = {consumer: dict(streams) for consumer, streams in group.members.everyone().items()}
    (owners, claims), offsets = group.owners.inspect(), group.offsets.list()
    unreadable = {
        **claims,
        **{key: offset.unreadable for key, offset in offsets.items() if offset.unreadable},
    }
    known = owners.keys() | claims.keys() | offsets.keys()
    if not (members or known):
        raise group.not_found()
    keys = [key for key in sorted(known) if queue in (None, key.queue)]
    positions = {key: offsets[key].position.next if key in offsets else UNSET.next for key in keys}
    readable = {
        key: at
        for key, at in positions.items()
        if key not in offsets or not offsets[key].unreadable
    }
    lags = _lags(cluster, readable)
    return GroupDescription(
        name,
        members,
        tuple(
            GroupPartition(
                *key,
                owner=owners.get(key),
                committed=None if positions[key] == UNSET.next else positions[key],
                lag=lags.get(key),
                unreadable=unreadable.get(key),
            )
            for key in keys
        ),
    )


def reset_group(
    cluster: Cluster,
    store: MetadataStore,
    name: str,
    log: QueueLog,
    start: Start,
    *,
    partitions: Collection[int] | None,
) -> dict[int, MessageID]:
    """Set the offsets of a group that does not consume the queue; returns them by partition.

    A record that can't be read is written over: that is its repair.

    A member that joins meanwhile is safe: a consumer that takes a partition over gives its offset
    another version, and an offset is only set if it has the version that it had before the group
    was found to be without consumers.

    Raises:
        GroupNotFoundError: no group has this name.
        GroupActiveError: it consumes the queue. Nothing was changed; or, where the outcome is
            unknown, one that joined meanwhile begins in some partitions where it was reset to.
        InvalidInputError: there is no such partition, or the start lies beyond the end.
    """
    check_start(start)
    chosen = range(log.partitions) if partitions is None else partitions
    numbers = sorted(
        {check_partition(partition, log.partitions) for partition in listed(chosen, "partitions")}
    )
    if not numbers:
        raise InvalidInputError("give at least one partition to reset", queue=log.name)
    group = _Group(cluster, store, name)
    group.check_exists()
    group.check_inactive(log.name)
    positions = {
        PartitionKey(log.name, partition): position
        for partition, position in _positions(log, start, numbers).items()
    }
    left, begun = set(positions), False
    writer = f"{socket.gethostname()}:{uuid.uuid4()}"
    for _ in range(TRIES_MAX):
        known = group.offsets.read_or_create(writer, left)
        group.check_inactive(log.name, unknown=begun)
        moves = {key: (offset, positions[key]) for key, offset in known.items()}
        try:
            left -= group.offsets.commit(writer, moves).keys()
            begun |= len(left) < len(positions)
        except CommitFailedError:
            begun = True
        if not left:
            return {key.partition: positions[key].next for key in sorted(positions)}
    raise group.active(log.name, unknown=begun)


def delete_group(cluster: Cluster, store: MetadataStore, name: str, queue: str | None) -> None:
    """Forget a group without consumers, or its offsets in one queue that it does not consume. The
    queue may be gone.

    Raises:
        GroupNotFoundError: no group has this name, or it has no offsets in the queue.
        GroupActiveError: it has consumers. Nothing was changed; or, where the outcome is unknown,
            some offsets are deleted, and one that joined meanwhile has the others.
    """
    group = _Group(cluster, store, name)
    queue = None if queue is None else check_queue_name(queue)
    versions = group.offsets.versions(queue)
    group.check_inactive(queue)
    if not versions:
        raise group.not_found(queue)
    left = group.offsets.delete(versions)
    if left:
        raise group.active(queue, unknown=len(left) < len(versions))
    if queue is None or not group.exists():
        group.delete_empty_nodes()


class _Group:
    """A group, and where all of it lies."""

    def __init__(self, cluster: Cluster, store: MetadataStore, name: str) -> None:
        settings = cluster.settings
        self._store = store
        self._name = name
        self._paths = GroupPaths(settings.zookeeper_root, name, settings.broker_id)
        self.members = GroupMembers(store, self._paths)
        self.owners = Owners(store, self._paths, "consumer")
        self.offsets = GroupOffsets(store, self._paths)

    def exists(self) -> bool:
        return bool(self.members.consuming() or self.offsets.versions())

    def check_exists(self) -> None:
        if not self.exists():
            raise self.not_found()

    def check_inactive(self, queue: str | None, *, unknown: bool = False) -> None:
        """Return if nobody consumes this queue, or any."""
        consumers = set(self.members.consuming(queue))
        claims, unreadable = self.owners.inspect()
        consumers |= {owner for key, owner in claims.items() if queue in (None, key.queue)}
        consumers |= {
            f"the claimer of {key.queue}/{key.partition}, whose record can't be read"
            for key in unreadable
            if queue in (None, key.queue)
        }
        if consumers:
            raise self.active(queue, unknown=unknown, consumers=sorted(consumers))

    def delete_empty_nodes(self) -> None:
        """What leads nowhere any more. A consumer that joins now makes again what it needs."""
        paths = self._paths
        left = [key for above in (paths.owners, paths.plans) for key in self._keys(above)]
        self._store.records.delete(dict.fromkeys(left, ANY))
        parts = (paths.ids, paths.owners, paths.offsets, paths.plans)
        self._store.records.delete(dict.fromkeys(parts, ANY), levels_above=1)

    def _keys(self, above: str) -> Sequence[str]:
        return self._store.records.keys(above, 1)

    def not_found(self, queue: str | None = None) -> GroupNotFoundError:
        if queue is None:
            return GroupNotFoundError("there is no such group", group=self._name)
        return GroupNotFoundError(
            "the group does not exist, or has no offsets in this queue",
            group=self._name,
            queue=queue,
        )

    def active(
        self, queue: str | None, *, unknown: bool, consumers: Collection[str] = ()
    ) -> GroupActiveError:
        return GroupActiveError(
            "the group has consumers; stop them first",
            outcome=Outcome.UNKNOWN if unknown else Outcome.NOT_APPLIED,
            group=self._name,
            **({} if queue is None else {"queue": queue}),
            consumers=list(consumers),
        )


def _positions(log: QueueLog, start: Start, partitions: Sequence[int]) -> dict[int, Position]:
    """Where a start lies in each partition now. What ends before it is at its end.

    Raises:
        InvalidInputError: an ID that lies beyond the end of each, or a time to come.
    """
    if start == EARLIEST:
        return dict.fromkeys(partitions, BEGINNING)
    offsets = log.reader.offsets(partitions)
    ends = {each.partition: end_of(each) for each in offsets}
    if start == LATEST:
        return ends
    at = as_message_id(start)
    beyond = all(at > end.next for end in ends.values())
    if beyond and (not is_time(start) or _is_to_come(at, log)):
        raise InvalidInputError(
            "this start lies beyond the end of the log: give 'latest' to start with the next "
            "message",
            queue=log.name,
            start=str(start),
        )
    return {partition: position_since(at, end) for partition, end in ends.items()}


def _is_to_come(time: MessageID, log: QueueLog) -> bool:
    return carry_out(is_to_come(time, log), partial(do_step, None, SYSTEM_CLOCK))


def _lags(
    cluster: Cluster, positions: Mapping[PartitionKey, MessageID]
) -> dict[PartitionKey, PartitionLag]:
    """The lags that can be measured now: not of queues that are gone or disabled."""
    by_queue: dict[str, dict[int, MessageID]] = defaultdict(dict)
    for key, position in positions.items():
        by_queue[key.queue][key.partition] = position
    lags: dict[PartitionKey, PartitionLag] = {}
    for queue, wanted in by_queue.items():
        try:
            log = cluster.log(queue)
            # It may have been made again with fewer.
            there = {number: at for number, at in wanted.items() if number < log.partitions}
            found = log.reader.lag(there) if there else {}
        except QueueStateError:
            continue
        lags |= {PartitionKey(queue, number): lag for number, lag in found.items()}
    return lags
