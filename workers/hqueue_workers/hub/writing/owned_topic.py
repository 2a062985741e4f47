"""A topic that this hub owns, its publishes, and their errors."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Protocol

from hqueue import (
    Address,
    HQueueError,
    Message,
    MessageID,
    Outcome,
    StoreUnavailableError,
    TopicACL,
)
from hqueue.metadata.managers import LogRange, Verdict

__all__ = [
    "FencedTopicError",
    "OwnedListener",
    "OwnedTopic",
    "Publish",
    "PublishSequence",
    "Published",
    "RedirectedError",
    "UnknownSequenceNumbersError",
    "held_bytes",
]

HELD_BYTES = 100
"""About how much memory a message takes beside its own bytes, and each of its headers."""


class RedirectedError(Exception):
    """The caller must call another hub. Nothing was done."""

    def __init__(self, address: Address) -> None:
        super().__init__(str(address))
        self.address = address


class FencedTopicError(HQueueError):
    """The topic was released, or another owner has closed the range that this hub wrote to. Nothing
    was done.
    """

    default_outcome = Outcome.NOT_APPLIED


class UnknownSequenceNumbersError(HQueueError):
    """The publisher's sequence numbers must be read from the log first. Nothing was done."""

    default_outcome = Outcome.NOT_APPLIED


@dataclasses.dataclass(slots=True, eq=False)
class OwnedTopic:
    """A topic that this hub owns, or is about to.

    Args:
        name: the topic.
        partition: the partition for its messages.
        epoch: the epoch of this ownership.
        verdict: the result of the election, with which the topic is released.
        since_ms: since when it is owned, on the monotonic clock.
        acl: its ACL.
    """

    name: str
    partition: int
    epoch: int
    verdict: Verdict
    since_ms: float
    acl: TopicACL = dataclasses.field(default_factory=TopicACL)
    ranges: Sequence[LogRange] | None = None
    """Its ranges when it was taken over. They are needed once, and then dropped to save memory."""
    first: int = 0
    """The lowest ID that a message of it may have."""
    known_from: int = 0
    """The ID from which on publishers' sequence numbers are known. Set by `SequenceNumbers`."""
    crowded: bool = False
    """Whether more publishers used sequence numbers than can be remembered."""
    fenced: bool = False
    """Whether another owner has closed its range: this ownership never writes to it again."""
    left: bool = False
    """Whether this hub is releasing it, and only appends what waits."""
    waiting: int = 0
    """How many publishes wait to be appended. Set by the committer."""
    published: int = 0
    """How many messages were appended in this ownership."""
    rated: tuple[float, int] = (0.0, 0)
    """When its rate was last measured, and how many messages had been published by then."""

    def take_ranges(self) -> Sequence[LogRange] | None:
        """Return the ranges, and drop them; None if they were dropped before."""
        ranges, self.ranges = self.ranges, None
        return ranges

    def changes_hands(self) -> HQueueError:
        """The error of a call that was not carried out because the topic moves."""
        return StoreUnavailableError(
            "the topic is moving to another hub", topic=self.name, outcome=Outcome.NOT_APPLIED
        )


class OwnedListener(Protocol):
    """Is notified of changes of owned topics. Called by any thread."""

    def appended(
        self, publishes: Sequence[tuple[Publish, int]], uncertain: Sequence[OwnedTopic], end: int
    ) -> None:
        """Called when publishes were appended. The messages of each have consecutive IDs from the
        number beside it on, below `end`. The uncertain topics may have further messages below
        `end`, which were not known before.
        """

    def leave(self, owned: OwnedTopic, *, deleted: bool = False) -> Future[None]:
        """Called when a topic is about to be released or deleted, and nothing more is appended."""

    def lost(self, topics: Sequence[OwnedTopic]) -> None:
        """Called when topics may already have other owners."""


@dataclasses.dataclass(frozen=True, slots=True)
class Published:
    """The position of published messages, which have consecutive IDs.

    Args:
        id: the ID of the first message; if none was appended, that of the publisher's last message
            in the topic.
        partition: the partition.
        count: how many messages were appended.
        duplicates: how many of the call's messages the topic had already.
        last_id: the ID of the publisher's last message in the topic, if it gives sequence numbers.
    """

    id: MessageID
    partition: int
    count: int
    duplicates: int = 0
    last_id: MessageID | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class PublishSequence:
    """The sequence numbers that a publisher gives messages.

    Args:
        publisher: whose.
        first: the first message's; the others' follow.
        since: an ID; none of these messages was tried before it.
    """

    publisher: str
    first: int
    since: int


@dataclasses.dataclass(slots=True, eq=False)
class Publish:
    """Messages of one topic that wait to be appended, together."""

    owned: OwnedTopic
    messages: Sequence[Message]
    size: int
    done: Future[Published]
    sequence: PublishSequence | None = None
    duplicates: int = 0
    """How many messages it had more, which the topic has already."""

    @property
    def last_sequence_number(self) -> int:
        """The last message's, if they have some."""
        assert self.sequence is not None
        return self.sequence.first + self.duplicates + len(self.messages) - 1


def held_bytes(messages: Sequence[Message]) -> int:
    """What messages take in memory beside their own bytes, about: of empty ones that is all."""
    return HELD_BYTES * sum([1 + len(each.headers) for each in messages])
