"""Administers groups: lists and describes them, and resets and deletes their offsets."""

from __future__ import annotations

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
)
from hqueue.groups.descriptions import GroupDescription, GroupListing, GroupPartition
from hqueue.groups.kinds import CONSUMER, SHARE, GroupKind, GroupKinds, kinds_among
from hqueue.groups.members import GroupMembers
from hqueue.groups.offsets import UNSET, GroupOffsets
from hqueue.groups.paths import GroupPaths, group_name, groups_below
from hqueue.groups.positions import start_positions
from hqueue.groups.standalone import StandaloneOffsets
from hqueue.handle import Cluster, QueueLog
from hqueue.log.lag import PartitionLag
from hqueue.message_id import MessageID
from hqueue.metadata import MetadataStore, Owners, PartitionKey
from hqueue.metadata.ports import ANY
from hqueue.metadata.steps import Delete, Keys, OnStore, Read, Work
from hqueue.position import Start, check_start
from hqueue.runtime.steps import Wait
from hqueue.runtime.stepwise import stepwise
from hqueue.settings.attributes import check_partition, check_queue_name
from hqueue.settings.kinds import listed

__all__ = ["Group", "GroupAdministration", "chosen_partitions", "new_writer"]

TRIES_MAX = 10
"""How often a reset tries to write offsets that consumers change meanwhile."""


class GroupAdministration(OnStore):
    """Administers consumer groups, and lists groups of both kinds: in the caller's thread, or in an
    event loop.

    Args:
        cluster: has the queues.
        store: a session with the coordination service, which has the groups.
    """

    def __init__(self, cluster: Cluster, store: MetadataStore) -> None:
        super().__init__(store)
        self._cluster = cluster

    @stepwise
    def names(self) -> Work[list[str]]:
        """The names of all groups that have, or had, a consumer or an offset. Takes one request."""
        segments: Sequence[str] = yield Keys(self._below, 1)
        names = (group_name(path.rpartition("/")[2]) for path in segments)
        return sorted(name for name in names if name is not None)

    @stepwise
    def describe(self, name: str, queue: str | None = None) -> Work[GroupDescription]:
        """The members of a group, and its offset in each partition, or in those of one queue.

        Raises:
            GroupNotFoundError: no group has this name.
        """
        if queue is not None:
            queue = check_queue_name(queue)
        group = Group(self._cluster, self._store, name)
        everyone = yield from group.members.everyone.steps()
        members = {consumer: dict(streams) for consumer, streams in everyone.items()}
        owners, claims = yield from group.owners.inspect.steps()
        offsets = yield from group.offsets.list.steps()
        unreadable = {
            **claims,
            **{key: offset.unreadable for key, offset in offsets.items() if offset.unreadable},
        }
        known = owners.keys() | claims.keys() | offsets.keys()
        if not (members or known):
            raise group.not_found()
        keys = [key for key in sorted(known) if queue in (None, key.queue)]
        positions = {
            key: offsets[key].position.next if key in offsets else UNSET.next for key in keys
        }
        readable = {
            key: at
            for key, at in positions.items()
            if key not in offsets or not offsets[key].unreadable
        }
        lags = yield from self._lags(readable)
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

    @stepwise
    def reset(
        self, name: str, queue: str, start: Start, partitions: Collection[int] | None
    ) -> Work[dict[int, MessageID]]:
        """Set the offsets of a group that does not consume the queue. Returns them by partition.

        A record that can't be read is overwritten, and so repaired.

        A member that joins meanwhile is safe: a consumer that takes a partition over changes the
        version of its offset, and an offset is only set if it has the version that it had before
        the group was found to have no consumers.

        Raises:
            GroupNotFoundError: no group has this name.
            GroupActiveError: the group consumes the queue. Nothing was changed; or, if the outcome
                is unknown, a consumer that joined meanwhile begins at the new offset in some
                partitions.
            InvalidInputError: the queue has no such partition, or the start lies beyond the end.
        """
        log = yield from self._cluster.log.steps(queue)
        check_start(start)
        numbers = chosen_partitions(log, partitions)
        group = Group(self._cluster, self._store, name)
        yield from group.check_exists()
        yield from group.check_inactive(log.name)
        found = yield from start_positions(log, start, numbers)
        positions = {PartitionKey(log.name, number): at for number, at in found.items()}
        left, begun = set(positions), False
        writer = new_writer()
        for _ in range(TRIES_MAX):
            known = yield from group.offsets.read_or_create.steps(writer, left)
            yield from group.check_inactive(log.name, unknown=begun)
            moves = {key: (offset, positions[key]) for key, offset in known.items()}
            try:
                moved = yield from group.offsets.commit.steps(writer, moves)
                left -= moved.keys()
                begun |= len(left) < len(positions)
            except CommitFailedError:
                begun = True
            if not left:
                return {key.partition: positions[key].next for key in sorted(positions)}
        raise group.active(log.name, unknown=begun)

    def standalone(self, name: str, queue: str) -> StandaloneOffsets:
        """The offsets of a group in a queue, for a program that is not a member.

        Raises:
            InvalidInputError: the group's or the queue's name is not valid.
        """
        queue = check_queue_name(queue)
        group = Group(self._cluster, self._store, name)
        return StandaloneOffsets(
            group.offsets, partial(self.check_inactive.asked, name, queue), queue, new_writer()
        )

    @stepwise
    def check_inactive(self, name: str, queue: str) -> Work[None]:
        """Check that a group has no consumers of a queue, and is not a share group.

        Raises:
            GroupActiveError: the group has consumers of the queue, or is a share group.
        """
        group = Group(self._cluster, self._store, name)
        yield from group.kinds.check.steps(CONSUMER)
        yield from group.check_inactive(queue)

    @stepwise
    def delete(self, name: str, queue: str | None) -> Work[None]:
        """Delete a group without consumers, or its offsets in one queue that it does not consume.
        The queue may have been deleted before.

        Raises:
            GroupNotFoundError: no group has this name, or it has no offsets in the queue.
            GroupActiveError: the group has consumers. Nothing was changed; or, if the outcome is
                unknown, some offsets are deleted, and a consumer that joined meanwhile has the
                others.
        """
        group = Group(self._cluster, self._store, name)
        queue = None if queue is None else check_queue_name(queue)
        versions = yield from group.offsets.versions.steps(queue)
        yield from group.check_inactive(queue)
        if not versions:
            raise group.not_found(queue)
        left = yield from group.offsets.delete.steps(versions)
        if left:
            raise group.active(queue, unknown=len(left) < len(versions))
        if queue is None or not (yield from group.exists()):
            yield from group.delete_empty_nodes()

    @stepwise
    def list(self) -> Work[list[GroupListing]]:
        """Every group that has a consumer, an offset or a share group's record, by name. Takes a
        few round trips in all.
        """
        members: dict[str, list[str]] = defaultdict(list)
        queues: dict[str, set[str]] = defaultdict(set)
        kinds: dict[str, GroupKind] = {}
        for path in (yield Keys(self._below, 3)):
            segment, part, name = path.split("/")[-3:]
            group = group_name(segment)
            if group is None:
                continue
            if part == "ids":
                members[group].append(path)
            elif part in ("offsets", "shares"):
                queues[group].add(name)
                if part == "shares":
                    kinds[group] = SHARE
        new = [path for group in members.keys() - queues.keys() for path in members[group]]
        for path, record in ((yield Read(new)) if new else {}).items():
            if SHARE in kinds_among({path: record}):
                kinds[group_name(path.split("/")[-3]) or ""] = SHARE
        return [
            GroupListing(
                group,
                len(members.get(group, ())),
                tuple(sorted(queues.get(group, ()))),
                kinds.get(group, CONSUMER),
            )
            for group in sorted(members.keys() | queues.keys())
        ]

    @property
    def _below(self) -> str:
        return groups_below(self._cluster.settings.zookeeper_root)

    def _lags(
        self, positions: Mapping[PartitionKey, MessageID]
    ) -> Work[dict[PartitionKey, PartitionLag]]:
        """The lags that can be measured now. Queues that are deleted or disabled are left out."""
        by_queue: dict[str, dict[int, MessageID]] = defaultdict(dict)
        for key, position in positions.items():
            by_queue[key.queue][key.partition] = position
        lags: dict[PartitionKey, PartitionLag] = {}
        for queue, wanted in by_queue.items():
            try:
                log = yield from self._cluster.log.steps(queue)
                # It may have been made again with fewer.
                there = {number: at for number, at in wanted.items() if number < log.partitions}
                found: Mapping[int, PartitionLag] = {}
                if there:
                    found = yield Wait(
                        partial(log.reader.lag, there), partial(log.loop_reader.lag, there)
                    )
            except QueueStateError:
                continue
            lags |= {PartitionKey(queue, number): lag for number, lag in found.items()}
        return lags


class Group:
    """A group with its members, owners, offsets and kind."""

    def __init__(self, cluster: Cluster, store: MetadataStore, name: str) -> None:
        settings = cluster.settings
        self._name = name
        self.paths = GroupPaths(settings.zookeeper_root, name, settings.broker_id)
        self.members = GroupMembers(store, self.paths)
        self.owners = Owners(store, self.paths, "consumer")
        self.offsets = GroupOffsets(store, self.paths)
        self.kinds = GroupKinds(store, self.paths)

    def exists(self) -> Work[bool]:
        if (yield from self.members.consuming.steps()):
            return True
        return bool((yield from self.offsets.versions.steps()))

    def check_exists(self) -> Work[None]:
        if not (yield from self.exists()):
            raise self.not_found()

    def check_inactive(self, queue: str | None, *, unknown: bool = False) -> Work[None]:
        """Check that the group has no consumers of this queue, or of any if it is None."""
        consumers = set((yield from self.members.consuming.steps(queue)))
        claims, unreadable = yield from self.owners.inspect.steps()
        consumers |= {owner for key, owner in claims.items() if queue in (None, key.queue)}
        consumers |= {
            f"the claimer of {key.queue}/{key.partition}, whose record can't be read"
            for key in unreadable
            if queue in (None, key.queue)
        }
        if consumers:
            raise self.active(queue, unknown=unknown, consumers=sorted(consumers))

    def delete_empty_nodes(self) -> Work[None]:
        """Delete the group's empty nodes. A consumer that joins now makes again what it needs."""
        paths = self.paths
        left = [*(yield Keys(paths.owners, 1)), *(yield Keys(paths.plans, 1))]
        yield Delete(dict.fromkeys(left, ANY))
        parts = (paths.ids, paths.owners, paths.offsets, paths.shares, paths.plans)
        yield Delete(dict.fromkeys(parts, ANY), levels_above=1)

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


def chosen_partitions(log: QueueLog, partitions: Collection[int] | None) -> list[int]:
    """The partitions of a queue that a call names, sorted; all if `partitions` is None.

    Raises:
        InvalidInputError: the queue does not have one of the partitions, or the collection is
            empty.
    """
    chosen = range(log.partitions) if partitions is None else partitions
    numbers = sorted({check_partition(p, log.partitions) for p in listed(chosen, "partitions")})
    if not numbers:
        raise InvalidInputError("give at least one partition to reset", queue=log.name)
    return numbers


def new_writer() -> str:
    """A unique name for a writer of offsets."""
    return f"{socket.gethostname()}:{uuid.uuid4()}"
