"""What hubs keep about topics: who owns one, where its messages lie, who subscribed to it."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from hqueue.errors import InvalidInputError
from hqueue.message_id import MessageID
from hqueue.metadata.ports import Version
from hqueue.metadata.records import check_name
from hqueue.settings.addresses import Address
from hqueue.settings.limits import APPLICATION_MAX, PARTITIONS_MAX
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
    "is_among",
]

Value = TypeVar("Value")

COUNT_MAX = 2**31 - 1
EVERYBODY = "*"
NAMES_MAX = 256
"""Names in a list of an ACL, at most."""


@dataclasses.dataclass(frozen=True, slots=True)
class Versioned(Generic[Value]):
    """What was read, and what a later write of it compares."""

    value: Value
    version: Version


@dataclasses.dataclass(frozen=True, slots=True)
class HubInfo:
    """A hub.

    Args:
        address: where it listens.
        incarnation: another each time that it starts: a hub that comes back is another one.
    """

    address: Address
    incarnation: str

    def __post_init__(self) -> None:
        if not isinstance(self.address, Address):
            raise InvalidInputError("a hub's address is an Address", address=self.address)
        _check_text(self.incarnation, "incarnation")
        if not self.incarnation:
            raise InvalidInputError("an incarnation has a name")


@dataclasses.dataclass(frozen=True, slots=True)
class LogRange:
    """Where some of a topic's messages lie: in a partition, from one ID to another.

    Args:
        partition: the partition of the queue.
        first: the ID from which on they lie there.
        last: the last ID of the range; None while it is open.
        epoch: the owner's, who opened it. It grows from one range to the next.
        marked: whether each batch of its owner says that epoch: then what doesn't, as what somebody
            put into the queue, is nothing of the topic. Hubs of earlier releases opened others: of
            those everything counts that lies in them under the topic's name.

    Raises:
        InvalidInputError: it ends before it begins, or a number is out of range.
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
            raise InvalidInputError("a range is marked, or is not", marked=self.marked)
        if self.last is not None and self.last < self.first:
            raise InvalidInputError(
                "a range ends before it begins", first=str(self.first), last=str(self.last)
            )


@dataclasses.dataclass(frozen=True, slots=True)
class TopicACL:
    """A topic's access control list: who may do what with it, by the names that callers give. A
    name that ends with ``*`` stands for all that begin so. An empty list allows nobody.

    Args:
        publish: who may publish.
        subscribe: who may subscribe, consume and unsubscribe.
        manage: who may move and delete it, and see and change this ACL.

    Raises:
        InvalidInputError: a list is no sequence of names of 1 to 200 characters, or has more than
            256.
    """

    publish: Sequence[str] = (EVERYBODY,)
    subscribe: Sequence[str] = (EVERYBODY,)
    manage: Sequence[str] = (EVERYBODY,)

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            names = getattr(self, field.name)
            object.__setattr__(self, field.name, check_names(names, option=field.name))


def check_names(names: object, *, option: str) -> tuple[str, ...]:
    """The names of a list of an ACL, each once, in their order.

    Raises:
        InvalidInputError: these are none.
    """
    if isinstance(names, (str, bytes)) or not isinstance(names, Iterable):
        raise InvalidInputError("a list of an ACL is a sequence of names", option=option)
    checked = tuple(itertools.islice(names, NAMES_MAX + 1))
    if len(checked) > NAMES_MAX:
        raise InvalidInputError(
            "a list of an ACL has at most 256 names", option=option, names_max=NAMES_MAX
        )
    for name in checked:
        if name != EVERYBODY:
            check_name(name.removesuffix(EVERYBODY) if isinstance(name, str) else name)
    return tuple(dict.fromkeys(checked))


def is_among(names: Sequence[str], caller: str) -> bool:
    """Whether names of an ACL stand for a caller."""
    return any(
        caller.startswith(name[:-1]) if name.endswith(EVERYBODY) else caller == name
        for name in names
    )


@dataclasses.dataclass(frozen=True, slots=True)
class TopicPersistenceInfo:
    """What is kept of a topic as a whole.

    Args:
        ranges: where its messages lie: ranges of its queue's log, oldest first.
        acl: who may do what with it.

    Raises:
        InvalidInputError: these are no ranges, or no ACL.
    """

    ranges: Sequence[LogRange] = ()
    acl: TopicACL = TopicACL()

    def __post_init__(self) -> None:
        object.__setattr__(self, "ranges", tuple(self.ranges))  # They stay as they are.
        if not all(isinstance(each, LogRange) for each in self.ranges):
            raise InvalidInputError("persistence info is ranges of a log")
        if not isinstance(self.acl, TopicACL):
            raise InvalidInputError("acl is no TopicACL", type=type(self.acl).__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class SubscriptionPreferences:
    """How a subscriber wants its messages.

    Args:
        message_bound: so many messages wait for it at most: the oldest are dropped. None: all wait.
        consume_interval: its cursor is stored at the latest after so many messages.
        delivery_window: so many messages are under way to it at most.
        application: what its application keeps here.

    Raises:
        InvalidInputError: a number is out of range, or a text is no string.
    """

    message_bound: int | None = None
    consume_interval: int | None = None
    delivery_window: int | None = None
    application: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("message_bound", "consume_interval", "delivery_window"):
            number = getattr(self, name)
            if number is not None:
                check_whole(number, 1, COUNT_MAX, option=name)
        if not isinstance(self.application, Mapping):
            raise InvalidInputError("an application's preferences are a mapping")
        object.__setattr__(self, "application", dict(self.application))  # It stays as it is.
        if len(self.application) > APPLICATION_MAX:
            raise InvalidInputError(
                "an application keeps no more preferences here",
                number=len(self.application),
                number_max=APPLICATION_MAX,
            )
        for name, value in self.application.items():
            _check_text(name, "application")
            _check_text(value, "application")


@dataclasses.dataclass(frozen=True, slots=True)
class SubscriptionState:
    """How far a subscriber is.

    Args:
        consumed: its cursor: it is done with this message and all before it.
    """

    consumed: MessageID

    def __post_init__(self) -> None:
        _check_id(self.consumed, "consumed")


@dataclasses.dataclass(frozen=True, slots=True)
class SubscriptionData:
    """What is kept of a subscription. To create one, or to replace it, both parts are given; to
    update it one is enough where the store can update them apart.
    """

    preferences: SubscriptionPreferences | None = None
    state: SubscriptionState | None = None

    def __post_init__(self) -> None:
        for part, kind in (
            (self.preferences, SubscriptionPreferences),
            (self.state, SubscriptionState),
        ):
            if part is not None and not isinstance(part, kind):
                raise InvalidInputError(
                    f"a part of a subscription is no {kind.__name__}", type=type(part).__name__
                )


def _check_id(value: object, option: str) -> None:
    if not isinstance(value, MessageID):
        raise InvalidInputError(f"{option} is a MessageID", value=value)


def _check_text(text: object, option: str) -> None:
    if not isinstance(text, str) or not text.isprintable():
        raise InvalidInputError(f"{option} is a text that can be printed", text=text)
