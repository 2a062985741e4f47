"""The IDs of messages: the identity and position of each in its partition."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import overload

from hqueue.errors import InvalidInputError
from hqueue.settings.kinds import check_kind
from hqueue.settings.limits import (
    MESSAGE_ID_MAX,
    SEQUENCE_BITS,
    SEQUENCE_MAX,
    TIMESTAMP_MS_MAX,
)
from hqueue.settings.numbers import as_whole, check_whole, whole_number

__all__ = [
    "MessageID",
    "MessageIDs",
    "check_message_id",
    "id_of",
    "sequence_of",
    "timestamp_of",
]

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


def id_of(timestamp: int, sequence: int = 0) -> int:
    """A message's ID as a plain integer, as the log reckons with it. Nothing is checked."""
    return timestamp << SEQUENCE_BITS | sequence


def timestamp_of(message_id: int) -> int:
    """The milliseconds since the epoch of an ID, also of one that is a plain integer."""
    return message_id >> SEQUENCE_BITS


def sequence_of(message_id: int) -> int:
    """The place of an ID among those of its timestamp, also of one that is a plain integer."""
    return message_id & SEQUENCE_MAX


class MessageID(int):
    """The identity and position of a message in its partition.

    It is an integer, ``timestamp << 15 | sequence``, and compares and sorts as one. Within a
    partition IDs are unique, and grow in the order in which the messages were written. An ID plus
    or minus a number is an ID: ``message.id + 1`` is the position after a message.

    Args:
        timestamp: milliseconds since the epoch, when the message was written.
        sequence: 0 to 32,767, the number of the message among those of one timestamp.

    Raises:
        InvalidInputError: the timestamp or the sequence is out of range.
    """

    __slots__ = ()

    def __new__(cls, timestamp: int, sequence: int = 0) -> MessageID:
        since_epoch = as_whole(timestamp, 0, TIMESTAMP_MS_MAX)
        if since_epoch is None:
            raise InvalidInputError(
                "a timestamp must be milliseconds since the epoch, 0 to 2**48 - 1: use "
                "MessageID.from_int for an ID that is one integer",
                timestamp=timestamp,
            )
        place = as_whole(sequence, 0, SEQUENCE_MAX)
        if place is None:
            raise InvalidInputError("a sequence must be 0 to 32767", sequence=sequence)
        return int.__new__(cls, id_of(since_epoch, place))

    @classmethod
    def from_int(cls, value: int) -> MessageID:
        """The ID from its integer, ``int(message_id)``."""
        whole = as_whole(value, 0, MESSAGE_ID_MAX)
        if whole is None:
            raise InvalidInputError("a MessageID as an integer must be 0 to 2**63 - 1", value=value)
        return int.__new__(cls, whole)

    @classmethod
    def parse(cls, text: str) -> MessageID:
        """The ID from its text, ``str(message_id)``: ``timestamp-sequence``."""
        first, _, second = check_kind(text, str, "text").strip().partition("-")
        timestamp, sequence = whole_number(first), whole_number(second)
        if timestamp is None or sequence is None:
            raise InvalidInputError(
                "a MessageID must be written as timestamp-sequence, such as 1700000000000-0",
                text=text,
            )
        return cls(timestamp, sequence)

    @property
    def timestamp(self) -> int:
        """When the message was written: milliseconds since the epoch."""
        return timestamp_of(int(self))

    @property
    def sequence(self) -> int:
        """The number of the message among those of its timestamp, 0 to 32,767."""
        return sequence_of(int(self))

    @property
    def datetime(self) -> datetime.datetime:
        """The timestamp as an aware datetime in UTC.

        Raises:
            InvalidInputError: it lies beyond the year 9999, where a datetime ends.
        """
        try:
            return _EPOCH + datetime.timedelta(milliseconds=self.timestamp)
        except OverflowError as exc:
            raise InvalidInputError(
                "the timestamp lies beyond the year 9999, where datetimes end",
                timestamp=self.timestamp,
            ) from exc

    def __add__(self, places: int, /) -> MessageID:
        """The ID this many places after this one.

        Raises:
            InvalidInputError: no ID lies there.
            TypeError: what is added is an ID, too.
        """
        if isinstance(places, MessageID):
            raise TypeError("two MessageIDs can't be added: add an integer to one of them")
        moved = int.__add__(self, places)
        return moved if moved is NotImplemented else MessageID.from_int(moved)

    __radd__ = __add__

    @overload
    def __sub__(self, other: MessageID, /) -> int: ...  # type: ignore[overload-overlap]
    @overload
    def __sub__(self, other: int, /) -> MessageID: ...
    def __sub__(self, other: int, /) -> int:
        """The ID this many places before this one; of two IDs how many places they lie apart.

        Raises:
            InvalidInputError: no ID lies there.
        """
        moved = int.__sub__(self, other)
        if moved is NotImplemented or isinstance(other, MessageID):
            return moved
        return MessageID.from_int(moved)

    def next(self) -> MessageID:
        """The smallest ID above this one: the position after this message."""
        return MessageID.from_int(int(self) + 1)

    def __repr__(self) -> str:
        return f"MessageID({self.timestamp}, {self.sequence})"

    def __str__(self) -> str:
        return f"{self.timestamp}-{self.sequence}"

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def __reduce__(self) -> tuple[object, ...]:
        return MessageID.from_int, (int(self),)


class MessageIDs(Sequence[MessageID]):
    """The IDs of the messages of one append, in their order. They are consecutive; each is made
    when it is accessed.
    """

    __slots__ = ("_range",)

    def __init__(self, first: int, count: int) -> None:
        first = check_whole(first, 0, option="first")
        self._range = range(first, first + check_whole(count, 0, sys.maxsize, option="count"))

    @overload
    def __getitem__(self, index: int) -> MessageID: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[MessageID]: ...
    def __getitem__(self, index: int | slice) -> MessageID | Sequence[MessageID]:
        if isinstance(index, slice):
            return [MessageID.from_int(value) for value in self._range[index]]
        return int.__new__(MessageID, self._range[index])

    def __len__(self) -> int:
        return len(self._range)

    def __iter__(self) -> Iterator[MessageID]:
        return map(int.__new__, repeat(MessageID), self._range)

    def __contains__(self, value: object) -> bool:
        return value in self._range

    def __eq__(self, other: object) -> bool:
        if isinstance(other, MessageIDs):
            return self._range == other._range
        if isinstance(other, (list, tuple)):
            return list(self._range) == list(other)
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self)) if len(self) <= 3 else f"[{self[0]!r}, …, {self[-1]!r}]"


def check_message_id(value: object, option: str) -> MessageID:
    """An ID.

    Raises:
        InvalidInputError: the value is not a message ID.
    """
    return check_kind(value, MessageID, option)  # type: ignore[no-any-return]
