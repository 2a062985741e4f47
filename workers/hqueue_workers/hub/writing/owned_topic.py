"""A topic that this hub owns, and what the log must do for it."""

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
"""What a message takes in memory beside its own bytes, about, and each of its headers."""


class RedirectedError(Exception):
    """The caller must call another hub. Nothing was done."""

    def __init__(self, address: Address) -> None:
        super().__init__(str(address))
        self.address = address


class FencedTopicError(HQueueError):
    """The topic was left, or another owner has closed the range that this hub wrote to. Nothing was
    done.
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
        partition: where its messages go.
        epoch: of this ownership.
        verdict: with which it is released.
        since_ms: since when it is owned, on the clock that does not jump.
        acl: who may do what with it.
    """

    name: str
    partition: int
    epoch: int
    verdict: Verdict
    since_ms: float
    acl: TopicACL = dataclasses.field(default_factory=TopicACL)
    ranges: Sequence[LogRange] | None = None
    """Where it lay when it was taken over, until somebody has asked: it is asked once, and there
    may be very many topics."""
    first: int = 0
    """The lowest ID that a message of it may have."""
    known_from: int = 0
    """From this ID on publishers' sequence numbers are known. Kept by `SequenceNumbers`."""
    crowded: bool = False
    """Whether more publishers gave its messages sequence numbers than can be remembered."""
    fenced: bool = False
    """Whether another owner has closed its range: never again written to by this ownership."""
    left: bool = False
    """Whether it is not this hub's any more, and ends with what waits."""
    waiting: int = 0
    """Publishes that wait to be appended. Kept by the committer."""
    published: int = 0
    """Messages that were appended since it is owned."""
    rated: tuple[float, int] = (0.0, 0)
    """When its rate was last measured, and how many had been published by then."""

    def take_ranges(self) -> Sequence[LogRange] | None:
        """Where it lies, if that is known still; then it is known no more."""
        ranges, self.ranges = self.ranges, None
        return ranges

    def changes_hands(self) -> HQueueError:
        """The error of a call for it that was not carried out."""
        return StoreUnavailableError(
            "the topic is moving to another hub", topic=self.name, outcome=Outcome.NOT_APPLIED
        )


class OwnedListener(Protocol):
    """Is notified of what becomes of owned topics. Called by any thread."""

    def appended(
        self, publishes: Sequence[tuple[Publish, int]], uncertain: Sequence[OwnedTopic], end: int
    ) -> None:
        """Messages were appended, with IDs from the number beside them on and below `end`. Of the
        uncertain topics there may be others below it, too, that were unknown before.
        """

    def leave(self, owned: OwnedTopic, *, deleted: bool = False) -> Future[None]:
        """A topic is about to be released, or deleted, and nothing more is appended to it."""

    def lost(self, topics: Sequence[OwnedTopic]) -> None:
        """Topics may be others' already."""


@dataclasses.dataclass(frozen=True, slots=True)
class Published:
    """Where messages lie that were published: with consecutive IDs.

    Args:
        id: the first one's; of none the publisher's last one's in the topic.
        partition: where they are.
        count: how many were appended.
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
