"""Descriptions of groups, as `Client.list_groups` and `Client.describe_group` return them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from hqueue.errors import UnsupportedFormatError
from hqueue.groups.kinds import CONSUMER, GroupKind
from hqueue.log.lag import PartitionLag
from hqueue.message_id import MessageID

__all__ = ["GroupDescription", "GroupListing", "GroupPartition", "SharedMessages"]


@dataclasses.dataclass(frozen=True, slots=True)
class GroupListing:
    """A group in a list of groups."""

    group: str
    members: int
    """The number of its consumers."""
    queues: tuple[str, ...]
    """The queues in which it has offsets or, if it is a share group, records of messages."""
    kind: GroupKind = CONSUMER
    """``"consumer"``, or ``"share"`` for a share group."""


@dataclasses.dataclass(frozen=True, slots=True)
class SharedMessages:
    """The messages of a partition that consumers of a share group have or had, by the group's
    record.
    """

    acquired: int
    """How many messages consumers have. Messages of a consumer that is gone count until other
    consumers take them."""
    acquired_age_ms: int
    """How long ago the first acquired message was written; 0 if no message is acquired, or if the
    queue can't be read now."""
    redelivered: int
    """How many acquired messages were delivered before."""
    released: int
    """How many messages consumers had and gave back, and no consumer has now."""
    holders: Mapping[str, int]
    """How many messages each consumer has, by the consumers' IDs."""
    delayed: int = 0
    """How many messages wait for their time, as far as consumers have read."""
    next_due_ms: int | None = None
    """When the first of them is due, in milliseconds since the epoch; None if none waits."""
    rejected: int = 0
    """How many messages became dead letters because programs rejected them, since the group began
    with the partition or was reset."""
    exhausted: int = 0
    """How many messages became dead letters because they were delivered too often, since then."""


@dataclasses.dataclass(frozen=True, slots=True)
class GroupPartition:
    """A group's state in one partition."""

    queue: str
    partition: int
    owner: str | None
    """The ID of the consumer that has the partition; None if none has it."""
    committed: MessageID | None
    """The committed offset: the first ID that the group has not consumed. None if the group has no
    offset yet. A share group is done with all messages before it, and perhaps with some after it.
    """
    lag: PartitionLag | None
    """The lag between the committed offset and the end. Without an offset it is that of the whole
    partition; for a share group it does not include messages that are done. None if the queue or
    the offset can't be read now.
    """
    unreadable: UnsupportedFormatError | None = None
    """The reason why the record of the offset or of the claim can't be read; None if all can."""
    shared: SharedMessages | None = None
    """The messages of the partition that a share group's consumers have; None for other groups."""


@dataclasses.dataclass(frozen=True, slots=True)
class GroupDescription:
    """The members and partitions of a group."""

    group: str
    members: Mapping[str, Mapping[str, int]]
    """The group's consumers by their IDs, each with the number of its streams for each queue. That
    mapping is empty if the consumer's record can't be read.
    """
    partitions: tuple[GroupPartition, ...]
    """The partitions in which the group has an offset or an owner or, if it is a share group, a
    record; by queue and number.
    """
    kind: GroupKind = CONSUMER
    """``"consumer"``, or ``"share"`` for a share group."""
