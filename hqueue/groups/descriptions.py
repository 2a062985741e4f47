"""What the administration of groups says of them."""

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
    """What a share group has of a partition, by its record."""

    acquired: int
    """Messages that consumers have. Those of a consumer that is gone count until others take
    them."""
    acquired_age_ms: int
    """How long ago the first of them was written; 0 if there is none, or if the queue can't be read
    now."""
    redelivered: int
    """How many of them were delivered before."""
    released: int
    """Messages that consumers had and gave back, and that nobody has now."""
    holders: Mapping[str, int]
    """How many messages each consumer has, by the consumers' IDs."""


@dataclasses.dataclass(frozen=True, slots=True)
class GroupPartition:
    """A group's state in one partition."""

    queue: str
    partition: int
    owner: str | None
    """The ID of the consumer that has the partition; None if none has it."""
    committed: MessageID | None
    """The committed offset: the first ID that the group has not consumed. None if it has no offset
    yet. Of a share group all messages before it are done, and some after it may be.
    """
    lag: PartitionLag | None
    """The lag between the committed offset and the end; for a group without an offset, the whole
    partition; for a share group, without the messages that are done. None if the queue or the
    offset can't be read now.
    """
    unreadable: UnsupportedFormatError | None = None
    """The reason why the record of the offset or of the claim can't be read; None if all can."""
    shared: SharedMessages | None = None
    """What a share group has of the partition; None for a group of consumers."""


@dataclasses.dataclass(frozen=True, slots=True)
class GroupDescription:
    """The members and partitions of a group."""

    group: str
    members: Mapping[str, Mapping[str, int]]
    """The group's consumers by their IDs, each with the number of its streams for each queue. That
    mapping is empty if the consumer's record can't be read.
    """
    partitions: tuple[GroupPartition, ...]
    """The partitions in which it has an offset or an owner, by queue and number. If it is a share
    group, those in which it has a record.
    """
    kind: GroupKind = CONSUMER
    """``"consumer"``, or ``"share"`` for a share group."""
