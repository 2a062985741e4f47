"""The records that a coordination service keeps. `hqueue.metadata.encoding` has their bytes."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from hqueue.errors import InvalidInputError
from hqueue.message import topic_bytes
from hqueue.message_id import MessageID
from hqueue.metadata.delays import Delay
from hqueue.metadata.ports import Version
from hqueue.metadata.unanswered_calls import UnansweredCalls
from hqueue.settings.addresses import Address
from hqueue.settings.names import is_name
from hqueue.settings.numbers import check_whole

__all__ = [
    "BrokerRecord",
    "Checkpoint",
    "DeliveryOptions",
    "PartitionKey",
    "Presence",
    "SubscriptionKey",
    "WorkerRecord",
    "check_name",
    "check_topics",
]


def check_name(name: object) -> str:
    """Check the name of a subscriber, a worker, a producer or a principal, and return it.

    Raises:
        InvalidInputError: the name is too long, or has characters that a queue's name can't have.
    """
    if not is_name(name):
        raise InvalidInputError(
            "the name of a subscriber, a worker, a producer or a principal may have letters, "
            "digits, '_', '-' and '.', can't begin with '-' or '.', and has 1 to 200 characters",
            name=name,
        )
    return name


def check_topics(topics: frozenset[str]) -> frozenset[str]:
    """Check the topics that a subscriber wants, if not all, and return them.

    Raises:
        InvalidInputError: there are no topics, or one is not valid.
    """
    if not topics:
        raise InvalidInputError("topics is empty: give at least one topic, or None for all")
    for topic in topics:
        topic_bytes(topic)
    return topics


class PartitionKey(NamedTuple):
    """A partition of a queue."""

    queue: str
    partition: int


PartitionKey.queue.__doc__ = "The queue's name."
PartitionKey.partition.__doc__ = "The partition's number, from 0."


class SubscriptionKey(NamedTuple):
    """One subscriber in one partition. It has a checkpoint, and messages are delivered to it."""

    queue: str
    partition: int
    subscriber: str

    @property
    def partition_key(self) -> PartitionKey:
        return PartitionKey(self.queue, self.partition)


@dataclasses.dataclass(frozen=True, slots=True)
class DeliveryOptions:
    """How workers deliver messages to a subscriber. Times are in milliseconds.

    Raises:
        InvalidInputError: an option is out of range.
    """

    attempts_max: int | None = None
    """How many times a message may be answered with *retry* before it becomes a dead letter; None
    for no limit. A call that does not reach the subscriber does not count.
    """

    backoff_ms_min: int = 100
    """The pause before the first retry. Each further pause is twice as long."""

    backoff_ms_max: int = 30_000
    """The longest pause between retries."""

    delay_ms: int = 0
    """The least age of a message when it is delivered."""

    timeout_ms: int = 30_000
    """How long the listeners may take for one call. An answer that comes later is ignored."""

    batch_messages_max: int = 1_000
    """How many messages one call may have."""

    batch_bytes_max: int = 1024 * 1024
    """About how many bytes of messages one call may have; at least one message."""

    unanswered_calls_max: int = 5
    """After how many calls without an answer the worker sends the messages in smaller and smaller
    calls, until one message alone has got as many: that message becomes a dead letter. 0 turns this
    off. A call counts if the subscriber's process has received it but not answered: the connection
    broke, or `timeout_ms` passed.
    """

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value, (low, high) = getattr(self, field.name), _BOUNDS[field.name]
            if value is None and field.name == "attempts_max":
                continue
            number = check_whole(value, low, high, option=field.name)
            object.__setattr__(self, field.name, number)
        if self.backoff_ms_min > self.backoff_ms_max:
            raise InvalidInputError(
                "backoff_ms_min is greater than backoff_ms_max",
                backoff_ms_min=self.backoff_ms_min,
                backoff_ms_max=self.backoff_ms_max,
            )


_BOUNDS = {
    "attempts_max": (1, 1_000_000),
    "backoff_ms_min": (1, 3_600_000),
    "backoff_ms_max": (1, 86_400_000),
    "delay_ms": (0, 30 * 86_400_000),
    "timeout_ms": (100, 3_600_000),
    "batch_messages_max": (1, 65_536),
    "batch_bytes_max": (1, 8 * 1024 * 1024),
    "unanswered_calls_max": (0, 1_000_000),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Presence:
    """The registration of a connected subscriber: its address, topics and options of delivery."""

    address: Address
    topics: frozenset[str] | None = None
    """The topics that it receives; None for all."""
    delivery: DeliveryOptions = DeliveryOptions()
    revision: int = 0
    """Changes whenever the registration is made again, even with the same content. The store sets
    it; give 0 to register.
    """

    def __post_init__(self) -> None:
        if self.topics is not None:
            check_topics(self.topics)


@dataclasses.dataclass(frozen=True, slots=True)
class Checkpoint:
    """The position of a subscriber in a partition."""

    next: MessageID
    """The first ID that is not yet delivered. A message with this ID need not exist."""
    revision: Version
    """The version for compare-and-set. It has no other meaning."""
    unanswered: UnansweredCalls | None = None
    """The calls from `next` on that got no answer; None if there are none."""
    delays: tuple[Delay, ...] = ()
    """The records of delayed messages before `next`."""


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerRecord:
    """A registered worker."""

    name: str
    address: Address
    """The address for notifications."""
    region_host: str
    """The host of the region server on the worker's machine, as HBase names it."""
    load: int = 0
    """The worker's load, in a measure that all workers share."""


@dataclasses.dataclass(frozen=True, slots=True)
class BrokerRecord:
    """A registered HQueue cluster. It corresponds to a broker of Kafka's first consumers."""

    address: Address
    """The address for notifications of the worker that registered it."""
    cluster: str
    """The unique ID of the store's cluster: HBase's own cluster ID."""
