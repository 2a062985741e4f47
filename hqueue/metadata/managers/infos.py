"""The records that hubs keep about topics: owners, ranges of the log, ACLs and subscriptions."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from hqueue.errors import InvalidInputError
from hqueue.message_id import MessageID
from hqueue.metadata.ports import Version
from hqueue.metadata.records import check_name
from hqueue.metadata.unanswered_calls import UnansweredCalls
from hqueue.settings.addresses import Address
from hqueue.settings.limits import APPLICATION_MAX, PARTITIONS_MAX
from hqueue.settings.names import EVERYBODY
from hqueue.settings.numbers import check_whole

__all__ = [
    "HubInfo",
    "LogRange",
    "SubscriptionData",
    "SubscriptionPreferences",
    "SubscriptionState",
    "TopicACL",
    "TopicPersistenceInfo",
    "Versioned",
    "check_names",
]

Value = TypeVar("Value")

COUNT_MAX = 2**31 - 1
NAMES_MAX = 256
"""The largest number of names in a list of an ACL."""


@dataclasses.dataclass(frozen=True, slots=True)
class Versioned(Generic[Value]):
    """A value that was read, and its version, which a later write compares."""

    value: Value
    version: Version


@dataclasses.dataclass(frozen=True, slots=True)
class HubInfo:
    """A registered hub.

    Args:
        address: the address on which it listens.
        incarnation: an ID that differs for each start of a hub. A hub that restarts counts as
            another hub.
    """

    address: Address
    incarnation: str

    def __post_init__(self) -> None:
        if not isinstance(self.address, Address):
            raise InvalidInputError("a hub's address must be an Address", address=self.address)
        _check_text(self.incarnation, "incarnation")
        if not self.incarnation:
            raise InvalidInputError("a hub's incarnation can't be empty")


@dataclasses.dataclass(frozen=True, slots=True)
class LogRange:
    """A range of the log in which messages of a topic lie: in a partition, from one ID to another.

    Args:
        partition: the partition of the queue.
        first: the first ID of the range.
        last: the last ID of the range; None while it is open.
        epoch: the epoch of the owner that opened the range. It grows from one range to the next.
        marked: whether each batch of the owner carries that epoch. Then batches without it, such as
            those of a put into the queue, do not belong to the topic. In ranges that hubs of
            earlier releases opened, every message under the topic's name belongs to the topic.

    Raises:
        InvalidInputError: the range ends before it begins, or a number is out of range.
    """

    partition: int
    first: MessageID
    last: MessageID | None = None
    epoch: int = 0
    marked: bool = False

    def __post_init__(self) -> None:
        check_whole(self.partition, 0, PARTITIONS_MAX - 1, option="partition")
        check_whole(self.epoch, 0, 2**63 - 1, option="epoch")
        _check_id(self.first, "first")
        if self.last is not None:
            _check_id(self.last, "last")
        if not isinstance(self.marked, bool):
            raise InvalidInputError("marked must be True or False", marked=self.marked)
        if self.last is not None and self.last < self.first:
            raise InvalidInputError(
                "a range ends before it begins", first=str(self.first), last=str(self.last)
            )


@dataclasses.dataclass(frozen=True, slots=True)
class TopicACL:
    """A topic's access control list, by the names that callers give. A name that ends with ``*``
    stands for all names that begin with the text before it. An empty list allows nobody.

    Args:
        publish: the callers that may publish.
        subscribe: the callers that may subscribe, consume and unsubscribe.
        manage: the callers that may move and delete the topic, and see and change this ACL.

    Raises:
        InvalidInputError: a list is not a sequence of names of 1 to 200 characters, or has more
            than 256 names.
    """

    publish: Sequence[str] = (EVERYBODY,)
    subscribe: Sequence[str] = (EVERYBODY,)
    manage: Sequence[str] = (EVERYBODY,)

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            names = getattr(self, field.name)
            object.__setattr__(self, field.name, check_names(names, option=field.name))


def check_names(names: object, *, option: str) -> tuple[str, ...]:
    """Check the names of a list of an ACL. Returns each name once, in their order.

    Raises:
        InvalidInputError: this is not a sequence of valid names, or has too many.
    """
    if isinstance(names, (str, bytes)) or not isinstance(names, Iterable):
        raise InvalidInputError("a list of an ACL must be a sequence of names", option=option)
    checked = tuple(itertools.islice(names, NAMES_MAX + 1))
    if len(checked) > NAMES_MAX:
        raise InvalidInputError(
            "a list of an ACL can have at most 256 names", option=option, names_max=NAMES_MAX
        )
    for name in checked:
        if name != EVERYBODY:
            check_name(name.removesuffix(EVERYBODY) if isinstance(name, str) else name)
    return tuple(dict.fromkeys(checked))


@dataclasses.dataclass(frozen=True, slots=True)
class TopicPersistenceInfo:
    """The metadata of a topic as a whole.

    Args:
        ranges: the ranges of its queue's log in which its messages lie, oldest first.
        acl: the topic's ACL.

    Raises:
        InvalidInputError: an argument is of the wrong type.
    """

    ranges: Sequence[LogRange] = ()
    acl: TopicACL = TopicACL()

    def __post_init__(self) -> None:
        object.__setattr__(self, "ranges", tuple(self.ranges))  # They stay as they are.
        if not all(isinstance(each, LogRange) for each in self.ranges):
            raise InvalidInputError("ranges must be a sequence of LogRange objects")
        if not isinstance(self.acl, TopicACL):
            raise InvalidInputError("acl must be a TopicACL", type=type(self.acl).__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class SubscriptionPreferences:
    """How a subscriber wants its messages delivered.

    Args:
        message_bound: at most this many messages wait for the subscriber; the oldest are dropped.
            None for no limit.
        consume_interval: the cursor is stored at the latest after this many messages.
        delivery_window: at most this many messages are in flight to the subscriber.
        application: names and values that the subscriber's application keeps here.
        unanswered_calls_max: as in `DeliveryOptions`; None for the default, 5.

    Raises:
        InvalidInputError: a number is out of range, or a text is not a string.
    """

    message_bound: int | None = None
    consume_interval: int | None = None
    delivery_window: int | None = None
    application: Mapping[str, str] = dataclasses.field(default_factory=dict)
    unanswered_calls_max: int | None = None

    def __post_init__(self) -> None:
        if self.unanswered_calls_max is not None:
            check_whole(self.unanswered_calls_max, 0, COUNT_MAX, option="unanswered_calls_max")
        for name in ("message_bound", "consume_interval", "delivery_window"):
            number = getattr(self, name)
            if number is not None:
                check_whole(number, 1, COUNT_MAX, option=name)
        if not isinstance(self.application, Mapping):
            raise InvalidInputError("application must be a mapping from names to values")
        object.__setattr__(self, "application", dict(self.application))  # It stays as it is.
        if len(self.application) > APPLICATION_MAX:
            raise InvalidInputError(
                "a subscription can't keep so many preferences of its application",
                number=len(self.application),
                number_max=APPLICATION_MAX,
            )
        for name, value in self.application.items():
            _check_text(name, "application")
            _check_text(value, "application")


@dataclasses.dataclass(frozen=True, slots=True)
class SubscriptionState:
    """The cursor of a subscription.

    Args:
        consumed: the ID of the last consumed message. All earlier messages are consumed, too.
        unanswered: the calls after that message that got no answer; None if there are none.
    """

    consumed: MessageID
    unanswered: UnansweredCalls | None = None

    def __post_init__(self) -> None:
        _check_id(self.consumed, "consumed")


@dataclasses.dataclass(frozen=True, slots=True)
class SubscriptionData:
    """The metadata of a subscription. Give preferences and state to create or replace it. To update
    it, one part is enough if the store can update them separately.

    Args:
        preferences: how the subscriber wants its messages.
        state: its cursor.
        owner: the principal that it belongs to; None if that has the subscriber's name. An update
            without it keeps the owner only if the store can update the parts separately.

    Raises:
        InvalidInputError: an argument is of the wrong type.
    """

    preferences: SubscriptionPreferences | None = None
    state: SubscriptionState | None = None
    owner: str | None = None

    def __post_init__(self) -> None:
        if self.owner is not None:
            check_name(self.owner)
        for field, given, kind in (
            ("preferences", self.preferences, SubscriptionPreferences),
            ("state", self.state, SubscriptionState),
        ):
            if given is not None and not isinstance(given, kind):
                raise InvalidInputError(
                    f"a subscription's {field} must be a {kind.__name__}",
                    type=type(given).__name__,
                )


def _check_id(value: object, option: str) -> None:
    if not isinstance(value, MessageID):
        raise InvalidInputError(f"{option} must be a MessageID", value=value)


def _check_text(text: object, option: str) -> None:
    if not isinstance(text, str) or not text.isprintable():
        raise InvalidInputError(f"{option} must be a printable string", text=text)
