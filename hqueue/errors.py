"""The errors that hqueue raises.

Every error that this library raises on purpose is an `HQueueError`. Errors of underlying libraries
and servers are translated to one, with the original as ``__cause__``.

    HQueueError
    ├── InvalidInputError (also ValueError)   an argument is out of range; nothing was sent
    │   └── MessageTooLargeError              a message or a batch exceeds its bound
    ├── SettingsError (also ValueError)       a setting is unknown or has a wrong value
    ├── QueueStateError                       the queue is not what the operation needs
    │   ├── QueueNotFoundError
    │   ├── QueueExistsError
    │   ├── QueueDisabledError
    │   ├── QueueEnabledError                 the operation needs a disabled queue
    │   └── NotAQueueError                    the table exists, but it is not a queue
    ├── SnapshotError                         a snapshot is not what the operation needs
    │   ├── SnapshotNotFoundError
    │   └── SnapshotExistsError
    ├── SubscriptionStateError                a subscriber is not what the operation needs
    │   ├── SubscriberNotFoundError
    │   ├── SubscriberExistsError
    │   ├── SubscriberConnectedError          the operation needs one that is not connected
    │   └── CheckpointMovedError              somebody else changed the checkpoint
    ├── GroupError                            a consumer's group does not let it go on so
    │   ├── CommitFailedError                 others have these partitions now
    │   ├── OffsetOutOfRangeError             the log has no messages at an offset any more, or yet
    │   ├── GroupNotFoundError
    │   └── GroupActiveError                  the operation needs a group without consumers
    ├── HubError                              a hub refused a call or could not do it
    │   ├── HubUnavailableError               no hub carried out the call in time
    │   └── NotAllowedError                   the caller may not do this
    ├── MetadataError                         a topic's metadata is not what the operation needs
    │   ├── BadVersionError                   somebody else changed it
    │   ├── NoTopicOwnerInfoError
    │   ├── NoTopicPersistenceInfoError
    │   ├── NoSubscriptionStateError
    │   ├── SubscriptionStateExistsError
    │   └── MetadataReadOnlyError             it is being moved to another store
    ├── StoreError                            HBase or ZooKeeper refused a request or gave no answer
    │   ├── StoreUnavailableError             no usable answer within the time limit
    │   │   └── RowsUnreadableError           HBase can't read its files, now or for good
    │   └── RequestRefusedError               the server refused the request for good
    │       └── AuthenticationError           client and server don't accept each other
    ├── IdempotencyKeyError                   a put might not be the only one with its key
    │   ├── IdempotencyKeyReusedError         the key was put before, with other messages
    │   ├── IdempotencyKeyTooOldError         the part of the log to search is not all kept any more
    │   └── FencedError                       a later epoch of the producer was claimed
    ├── OwnershipError                        a writer does not own the topics that it writes to
    │   ├── TopicFencedError                  the writer does not own a topic, or not any more
    │   └── OwnershipLostError                the writer does not know what was appended meanwhile
    ├── ClockSkewError                        this machine's clock is too far off to append
    ├── CorruptLogError                       the log has bytes that no writer of a queue wrote
    │   └── UnsupportedFormatError            a format version or a codec this release doesn't know
    ├── ClosedError                           the object was closed, or inherited through a fork
    ├── BufferFullError                       a producer's buffer had no room within the time limit
    └── LocalServerError                      the local server could not be started or stopped
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import ClassVar

__all__ = [
    "AuthenticationError",
    "BadVersionError",
    "BufferFullError",
    "CheckpointMovedError",
    "ClockSkewError",
    "ClosedError",
    "CommitFailedError",
    "CorruptLogError",
    "FencedError",
    "GroupActiveError",
    "GroupError",
    "GroupNotFoundError",
    "HQueueError",
    "HubError",
    "HubUnavailableError",
    "IdempotencyKeyError",
    "IdempotencyKeyReusedError",
    "IdempotencyKeyTooOldError",
    "InvalidInputError",
    "LocalServerError",
    "MessageTooLargeError",
    "MetadataError",
    "MetadataReadOnlyError",
    "NoSubscriptionStateError",
    "NoTopicOwnerInfoError",
    "NoTopicPersistenceInfoError",
    "NotAQueueError",
    "NotAllowedError",
    "OffsetOutOfRangeError",
    "Outcome",
    "OwnershipError",
    "OwnershipLostError",
    "QueueDisabledError",
    "QueueEnabledError",
    "QueueExistsError",
    "QueueNotFoundError",
    "QueueStateError",
    "RequestRefusedError",
    "RowsUnreadableError",
    "SettingsError",
    "SnapshotError",
    "SnapshotExistsError",
    "SnapshotNotFoundError",
    "StoreError",
    "StoreUnavailableError",
    "SubscriberConnectedError",
    "SubscriberExistsError",
    "SubscriberNotFoundError",
    "SubscriptionStateError",
    "SubscriptionStateExistsError",
    "TopicFencedError",
    "UnsupportedFormatError",
]


FACT_LENGTH_MAX = 2_000
"""Characters of one fact in an error's text."""


class Outcome(enum.Enum):
    """Whether the operation that raised an error may have been applied."""

    NOT_APPLIED = "not applied"
    """Nothing was changed, and nothing of the operation will show up later. It is safe to
    repeat.
    """

    UNKNOWN = "unknown"
    """The operation may have been applied, or may be applied later. Repeating it may apply it
    twice.
    """


class HQueueError(Exception):
    """The root of all errors of this library.

    The text is the same for every occurrence of an error. The details of this occurrence are in
    `facts`, and each fact is an attribute as well: ``error.queue``, ``error.partition``. Facts that
    every error of a class has are declared in the class, with their types. `outcome` says whether
    the operation that failed is `Outcome.NOT_APPLIED` or `Outcome.UNKNOWN`; a read of the log is
    always not applied. The text shows an unknown outcome.

    Args:
        text: what happened, to what, and what to do next.
        outcome: the outcome of the operation; by default `default_outcome`.
        facts: the details of this occurrence, by name.
    """

    default_outcome: ClassVar[Outcome] = Outcome.UNKNOWN
    """The outcome of an error that was made without one: *not applied* for classes whose errors
    always mean that nothing was done.
    """

    def __init__(self, text: str, /, *, outcome: Outcome | None = None, **facts: object) -> None:
        super().__init__(text)
        self.text = text
        self.outcome = self.default_outcome if outcome is None else outcome
        self.facts = facts

    def __getattr__(self, name: str) -> object:
        try:
            return self.__dict__["facts"][name]
        except KeyError:
            raise AttributeError(name) from None

    def __str__(self) -> str:
        facts = dict(self.facts)
        if self.outcome is Outcome.UNKNOWN:
            facts["outcome"] = self.outcome.value
        if not facts:
            return self.text
        listed = ", ".join(f"{key}={_shown(value)}" for key, value in facts.items())
        return f"{self.text} [{listed}]"

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.text, self.outcome, self.facts)


def _shown(value: object) -> str:
    """A fact in an error's text: what was read may be of any length."""
    text = repr(value)
    return text if len(text) <= FACT_LENGTH_MAX else f"{text[:FACT_LENGTH_MAX]}…"


def _rebuild(
    kind: type[HQueueError], text: str, outcome: Outcome, facts: dict[str, object]
) -> HQueueError:
    return kind(text, outcome=outcome, **facts)


class InvalidInputError(HQueueError, ValueError):
    """An argument is out of range. Raised before anything is sent."""

    default_outcome = Outcome.NOT_APPLIED


class MessageTooLargeError(InvalidInputError):
    """A message or a batch exceeds its size limit. Raised before anything is sent."""


class SettingsError(HQueueError, ValueError):
    """A setting is unknown or has a wrong value."""

    default_outcome = Outcome.NOT_APPLIED


class QueueStateError(HQueueError):
    """The queue is not in the state that the operation needs."""

    default_outcome = Outcome.NOT_APPLIED


class QueueNotFoundError(QueueStateError):
    """There is no table of this name."""


class QueueExistsError(QueueStateError):
    """There is a table of this name already."""


class QueueDisabledError(QueueStateError):
    """The queue is disabled: it takes no puts and no reads until it is enabled."""


class QueueEnabledError(QueueStateError):
    """The operation needs a disabled queue, and this one is enabled."""


class NotAQueueError(QueueStateError):
    """The table exists, but hqueue did not create it as a queue."""


class SnapshotError(HQueueError):
    """A snapshot is not in the state that the operation needs."""

    default_outcome = Outcome.NOT_APPLIED


class SnapshotNotFoundError(SnapshotError):
    """There is no snapshot of this name, or it is a snapshot of another table."""


class SnapshotExistsError(SnapshotError):
    """There is a snapshot of this name already."""


class SubscriptionStateError(HQueueError):
    """A subscriber is not in the state that the operation needs."""

    default_outcome = Outcome.NOT_APPLIED


class SubscriberNotFoundError(SubscriptionStateError):
    """There is no subscriber of this name."""


class SubscriberExistsError(SubscriptionStateError):
    """There is a subscriber of this name already."""


class SubscriberConnectedError(SubscriptionStateError):
    """The subscriber is connected, and the operation needs one that is not."""


class CheckpointMovedError(SubscriptionStateError):
    """Another process changed or deleted the checkpoint, so this worker may not move it any
    more.
    """


class GroupError(HQueueError):
    """A consumer group is not in the state that the operation needs."""


class CommitFailedError(GroupError):
    """Other consumers have these partitions now, or their offsets were reset. Messages of these
    partitions that were returned already may be delivered again.
    """

    partitions: Sequence[tuple[str, int]]
    """The partitions that were not committed and to which the outcome applies, each a queue and a
    number.
    """
    unknown: Sequence[tuple[str, int]]
    """Those of `partitions` whose outcome is unknown. The others are not applied."""
    committed: Sequence[tuple[str, int]]
    """The partitions that were committed all the same."""


class OffsetOutOfRangeError(GroupError):
    """The log has no messages at the offset any more, or not yet, and ``auto_offset_reset`` is
    ``error``.
    """

    default_outcome = Outcome.NOT_APPLIED

    queue: str
    partition: int
    offset: str
    """The offset as text, which `MessageID.parse` reads."""
    lost: int | None
    """How many messages were lost; None if that is not known."""


class GroupNotFoundError(GroupError):
    """There is no group of this name."""

    default_outcome = Outcome.NOT_APPLIED


class GroupActiveError(GroupError):
    """The group has consumers, and the operation needs a group without any; or the name belongs to
    a group of the other kind: a share group or a consumer group.
    """


class HubError(HQueueError):
    """A hub refused a call, or could not do it."""


class HubUnavailableError(HubError):
    """No hub carried out the call within the time limit. The error's outcome says whether the
    call may have taken effect, or may do so later.
    """


class NotAllowedError(HubError):
    """The caller may not do this. Nothing was done."""

    default_outcome = Outcome.NOT_APPLIED


class MetadataError(HQueueError):
    """A topic's metadata is not in the state that the operation needs."""


class BadVersionError(MetadataError):
    """Another process changed the metadata, so its version is not the given one. Nothing was
    changed.
    """

    default_outcome = Outcome.NOT_APPLIED


class NoTopicOwnerInfoError(MetadataError):
    """The topic has no owner."""

    default_outcome = Outcome.NOT_APPLIED


class NoTopicPersistenceInfoError(MetadataError):
    """The topic has no record of where its messages lie."""

    default_outcome = Outcome.NOT_APPLIED


class NoSubscriptionStateError(MetadataError):
    """There is no such subscription."""

    default_outcome = Outcome.NOT_APPLIED


class SubscriptionStateExistsError(MetadataError):
    """The subscription to create exists already."""

    default_outcome = Outcome.NOT_APPLIED


class MetadataReadOnlyError(MetadataError):
    """The topics' metadata is being moved to another store, and can't be changed until that is
    done.
    """

    default_outcome = Outcome.NOT_APPLIED


class StoreError(HQueueError):
    """HBase or ZooKeeper refused a request, or gave no answer."""


class StoreUnavailableError(StoreError):
    """HBase, its gateways or ZooKeeper gave no usable answer within the time limit."""


class RowsUnreadableError(StoreUnavailableError):
    """HBase answered each try that it failed to read one of its files. They may be damaged, or all
    their replicas may be away. Facts: `answer`, what HBase said; and where a log was read, `row`,
    the first row that could not be read.
    """


class RequestRefusedError(StoreError):
    """HBase or ZooKeeper refused the request. Trying again won't help."""

    default_outcome = Outcome.NOT_APPLIED


class AuthenticationError(RequestRefusedError):
    """HBase or ZooKeeper did not accept this client's proof of identity, or could not prove its
    own. Nothing of the refused request was done. The text says what to check.
    """


class IdempotencyKeyError(HQueueError):
    """A put was refused, since it might not be the only one with its key."""

    default_outcome = Outcome.NOT_APPLIED


class IdempotencyKeyReusedError(IdempotencyKeyError):
    """The log has a batch with this idempotency key and other messages. An `ExactlyOnceProcessor`
    also raises it if the group's offset was set back and the target queue has the results already.
    """

    count: int
    """How many messages the call has."""
    count_before: int
    """How many messages the batch in the log has."""


class IdempotencyKeyTooOldError(IdempotencyKeyError):
    """Some of the log's headers that must be searched for the idempotency key were deleted."""


class FencedError(IdempotencyKeyError):
    """A later epoch of the same producer was claimed, which fences this one."""

    producer: str
    epoch: int
    latest: int
    """The epoch that was claimed last."""


class OwnershipError(HQueueError):
    """A writer does not own the topics that it writes to."""


class TopicFencedError(OwnershipError):
    """The writer does not own the topic: it never did, or the log says that a later owner does."""

    default_outcome = Outcome.NOT_APPLIED

    topic: str
    partition: int


class OwnershipLostError(OwnershipError):
    """The writer does not know what was appended to a partition after the end that it knew, so
    other writers may own its topics. It owns none of them any more.
    """

    partition: int


class ClockSkewError(HQueueError):
    """This machine's clock differs from the region server's by more than the limit."""

    default_outcome = Outcome.NOT_APPLIED

    store_ahead_ms: int
    """How far the region server's clock is ahead of this machine's; below 0 if it is behind."""
    error_ms: int
    """The error of that measurement."""
    clock_skew_ms_max: int
    """The limit."""


class CorruptLogError(HQueueError):
    """The log holds something that no writer of a queue put there. Facts: `row`, `queue`."""

    default_outcome = Outcome.NOT_APPLIED  # It was read; a writer that reads on says its own.


class UnsupportedFormatError(CorruptLogError):
    """A batch or a record has a format version or a codec that this release does not know."""


class ClosedError(HQueueError):
    """The object was closed, or it was inherited through a fork and can't be used here."""

    default_outcome = Outcome.NOT_APPLIED


class BufferFullError(HQueueError):
    """A producer's buffer had no room for the message within the time limit; or a share group has
    as many delayed messages of a partition as it may have.
    """

    default_outcome = Outcome.NOT_APPLIED


class LocalServerError(HQueueError):
    """The local server could not be started or stopped. The fact `log` has the last lines of its
    log.
    """

    default_outcome = Outcome.NOT_APPLIED  # Of what is in queues: safe to do again.
