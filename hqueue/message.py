"""Messages and their IDs."""

from __future__ import annotations

import datetime
import functools
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Final, NamedTuple, cast, overload

from hqueue.errors import InvalidInputError, MessageTooLargeError
from hqueue.settings.limits import (
    BATCH_BYTES_MAX,
    MESSAGE_ID_MAX,
    SEQUENCE_BITS,
    SEQUENCE_MAX,
    TIMESTAMP_MS_MAX,
    TOPIC_BYTES_MAX,
)
from hqueue.settings.numbers import is_whole, whole_number

__all__ = [
    "ConsumedMessage",
    "Message",
    "MessageID",
    "MessageIDs",
    "Messages",
    "Moment",
    "ReceivedMessage",
    "as_message_id",
    "id_of",
    "partition_of_key",
    "sequence_of",
    "timestamp_of",
    "topic_bytes",
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


def partition_of_key(key: bytes, partitions: int) -> int:
    """The partition of a key, in a queue of so many: CRC-32 of the key, modulo their number."""
    return zlib.crc32(key) % partitions


class MessageID(int):
    """The identity and the place of a message in its partition.

    It is an integer, ``timestamp << 15 | sequence``, and compares and sorts as one. Within a
    partition IDs are unique and grow in the order in which the messages were written.

    Args:
        timestamp: milliseconds since the epoch, when the message was written.
        sequence: 0 to 32,767, the place among the messages of one timestamp.

    Raises:
        InvalidInputError: a part is out of range.
    """

    __slots__ = ()

    def __new__(cls, timestamp: int, sequence: int = 0) -> MessageID:
        if not is_whole(timestamp, 0, TIMESTAMP_MS_MAX):
            raise InvalidInputError(
                "a timestamp is milliseconds since the epoch, 0 to 2**48 - 1; an ID that is one "
                "integer is read by MessageID.from_int",
                timestamp=timestamp,
            )
        if not is_whole(sequence, 0, SEQUENCE_MAX):
            raise InvalidInputError("a sequence is 0 to 32767", sequence=sequence)
        return int.__new__(cls, id_of(timestamp, sequence))

    @classmethod
    def from_int(cls, value: int) -> MessageID:
        """The ID that ``int(message_id)`` gave."""
        if not is_whole(value, 0, MESSAGE_ID_MAX):
            raise InvalidInputError("a MessageID as an integer is 0 to 2**63 - 1", value=value)
        return int.__new__(cls, value)

    @classmethod
    def parse(cls, text: str) -> MessageID:
        """The ID that ``str(message_id)`` gave: ``timestamp-sequence``."""
        first, _, second = text.strip().partition("-")
        timestamp, sequence = whole_number(first), whole_number(second)
        if timestamp is None or sequence is None:
            raise InvalidInputError("a MessageID is written timestamp-sequence", text=text)
        return cls(timestamp, sequence)

    @property
    def timestamp(self) -> int:
        """Milliseconds since the epoch."""
        return timestamp_of(int(self))

    @property
    def sequence(self) -> int:
        """The place among the messages of this timestamp, 0 to 32,767."""
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
                "a datetime ends with the year 9999", timestamp=self.timestamp
            ) from exc

    def next(self) -> MessageID:
        """The smallest ID above this one: where to go on after this message."""
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
    """The IDs of the messages of one append, in their order; consecutive, made when asked for."""

    __slots__ = ("_range",)

    def __init__(self, first: int, count: int) -> None:
        self._range = range(first, first + count)

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


class _Fields(NamedTuple):
    """How messages lie in memory: tuples, for those are made in bulk and read fastest."""

    topic: str
    value: bytes
    id: MessageID
    partition: int
    queue: str


_field = vars(_Fields)


class Message(tuple[str | bytes | int, ...]):
    """A topic and a value, to be put. Immutable.

    One that was read is a `ReceivedMessage`, and can be put again. Two are equal if all their
    fields are; so one that was read equals none that is to be put.

    Args:
        topic: 1 to 255 bytes of UTF-8.
        value: any bytes, also none.

    Raises:
        InvalidInputError: the topic or the value is of the wrong type or out of range.
        MessageTooLargeError: the value is larger than a batch may be.
    """

    __slots__ = ()

    topic: Final[str] = _field["topic"]
    """What the message is about."""

    value: Final[bytes] = _field["value"]
    """What it says."""

    def __new__(cls, topic: str, value: bytes | bytearray | memoryview) -> Message:
        if type(topic) is not str:
            raise InvalidInputError("a topic is a str", topic=topic)
        topic_bytes(topic)
        if type(value) is not bytes:
            if not isinstance(value, (bytes, bytearray, memoryview)):
                raise InvalidInputError(
                    "a value is bytes; encode text first", type=type(value).__name__
                )
            value = bytes(value)
        if len(value) > BATCH_BYTES_MAX:
            raise MessageTooLargeError(
                "the value is larger than a batch may be",
                bytes=len(value),
                bytes_max=BATCH_BYTES_MAX,
            )
        return tuple.__new__(cls, (topic, value))

    def __getnewargs__(self) -> tuple[str | bytes | int, ...]:
        return tuple(self)

    def __repr__(self) -> str:
        return f"Message(topic={self.topic!r}, value={self.value!r})"


class ReceivedMessage(Message):
    """A message that was read: also its ID and its partition. Immutable.

    Args:
        topic, value: as of a `Message`.
        id: where it lies in its partition.
        partition: the partition. A put takes neither over.
    """

    __slots__ = ()

    id: Final[MessageID] = _field["id"]
    """Where it lies in its partition, and when it was written."""

    partition: Final[int] = _field["partition"]
    """The partition that it was read from."""

    def __new__(
        cls,
        topic: str,
        value: bytes | bytearray | memoryview,
        id: MessageID,
        partition: int,
    ) -> ReceivedMessage:
        return tuple.__new__(cls, (*Message(topic, value), id, partition))

    @property
    def timestamp(self) -> int:
        """When it was written: milliseconds since the epoch."""
        return int(self.id) >> SEQUENCE_BITS

    def __repr__(self) -> str:
        return (
            f"ReceivedMessage(topic={self.topic!r}, value={self.value!r}, id={self.id!r}, "
            f"partition={self.partition})"
        )


class ConsumedMessage(ReceivedMessage):
    """A message that a `Consumer` handed out: also its queue. Immutable.

    Args:
        topic, value, id, partition: as of a `ReceivedMessage`.
        queue: the queue's name.
    """

    __slots__ = ()

    queue: Final[str] = _field["queue"]
    """The queue that it was read from."""

    def __new__(
        cls,
        topic: str,
        value: bytes | bytearray | memoryview,
        id: MessageID,
        partition: int,
        queue: str,
    ) -> ConsumedMessage:
        return tuple.__new__(cls, (*Message(topic, value), id, partition, queue))

    def __repr__(self) -> str:
        return (
            f"ConsumedMessage(topic={self.topic!r}, value={self.value!r}, id={self.id!r}, "
            f"partition={self.partition}, queue={self.queue!r})"
        )


class Messages(Sequence[Message]):
    """Values of one topic, in their order, as messages that are to be put.

    For a caller with many values: a `Message` is made only where one is asked for, so that a batch
    of thousands is put in a fraction of the time that a list of messages takes.

    Args:
        topic: 1 to 255 bytes of UTF-8.
        values: the values, each any bytes, also none. They are taken over as they are now.

    Raises:
        InvalidInputError: the topic or a value is of the wrong type or out of range.
    """

    __slots__ = ("topic", "values")

    def __init__(self, topic: str, values: Iterable[bytes | bytearray | memoryview]) -> None:
        topic_bytes(topic)
        if isinstance(values, (bytes, bytearray, memoryview, str)):
            raise InvalidInputError("these are several values, not one", type=type(values).__name__)
        given = list(values)
        kinds = set(map(type, given))
        for kind in kinds:
            if not issubclass(kind, (bytes, bytearray, memoryview)):
                raise InvalidInputError("a value is bytes; encode text first", type=kind.__name__)
        self.topic = topic
        self.values = cast("list[bytes]", given if kinds <= {bytes} else list(map(bytes, given)))

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Messages: ...
    def __getitem__(self, index: int | slice) -> Message | Messages:
        if isinstance(index, slice):
            return Messages(self.topic, self.values[index])
        return Message(self.topic, self.values[index])

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        return f"Messages({self.topic!r}, {len(self)} values)"


@functools.lru_cache(maxsize=4_096)
def topic_bytes(topic: str) -> bytes:
    """A topic as HBase holds it: its UTF-8.

    Raises:
        InvalidInputError: it is empty, too long, or has no UTF-8.
    """
    if not isinstance(topic, str):
        raise InvalidInputError("a topic is a str", topic=topic)
    try:
        encoded = topic.encode()
    except UnicodeEncodeError as exc:
        raise InvalidInputError("a topic must have a UTF-8 encoding", topic=topic) from exc
    if not 1 <= len(encoded) <= TOPIC_BYTES_MAX:
        raise InvalidInputError("a topic has 1 to 255 bytes of UTF-8", topic=topic[:80])
    return encoded


Moment = MessageID | datetime.datetime | int
"""A place in a partition: a MessageID, an aware datetime, or milliseconds since the epoch."""


def as_message_id(moment: Moment) -> MessageID:
    """The smallest ID that a message written at this moment can have.

    Raises:
        InvalidInputError: a naive datetime, or out of range.
    """
    if isinstance(moment, MessageID):
        return moment
    if isinstance(moment, datetime.datetime):
        if moment.tzinfo is None:
            raise InvalidInputError("a datetime needs a time zone here", datetime=moment)
        return MessageID((moment - _EPOCH) // datetime.timedelta(milliseconds=1))
    return MessageID(moment)
