"""Messages to put, and messages that were read."""

from __future__ import annotations

import contextlib
import datetime
import functools
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple, cast, overload

from hqueue.errors import InvalidInputError, MessageTooLargeError
from hqueue.message_id import MessageID
from hqueue.position import as_due_ms
from hqueue.settings.kinds import listed
from hqueue.settings.limits import (
    BATCH_BYTES_MAX,
    BATCH_HEADERS_MAX,
    SEQUENCE_BITS,
    TIMESTAMP_MS_MAX,
    TOPIC_BYTES_MAX,
)
from hqueue.settings.numbers import whole_number
from hqueue.settings.reserved import PREFIX

__all__ = [
    "DELIVER_AT",
    "ConsumedMessage",
    "Headers",
    "Message",
    "Messages",
    "ReceivedMessage",
    "check_header_count",
    "check_headers_of",
    "checked_headers",
    "checked_key",
    "encoded_key",
    "headers_size",
    "partition_of_key",
    "plain_text",
    "topic_bytes",
]


def partition_of_key(key: bytes, partitions: int) -> int:
    """The partition of a key, in a queue of this many: CRC-32 of the key, modulo their number."""
    return zlib.crc32(key) % partitions


DELIVER_AT = "deliver-at"
"""The header with the time at which share groups deliver a message. Any client may write it."""
DELIVER_AT_BYTES_MAX = 21

Headers = tuple[tuple[str, bytes], ...]
"""A message's headers: pairs of a name and a value, in their order. A name may occur more than
once."""


class _Fields(NamedTuple):
    """How messages lie in memory: tuples, for those are made in bulk and read fastest."""

    topic: str
    value: bytes
    key: bytes | None
    headers: Headers
    id: MessageID
    partition: int
    queue: str


def _field(name: str, text: str) -> Any:
    """A field's descriptor, with its documentation."""
    found = vars(_Fields)[name]
    found.__doc__ = text
    return found


class Message(tuple[str | bytes | int | Headers | None, ...]):
    """A message to put: a topic, a value, a key and headers. Immutable.

    A message that was read is a `ReceivedMessage`, and can be put again. Two messages are equal if
    all their fields are equal, so a message that was read never equals one to put.

    Args:
        topic: 1 to 255 bytes of UTF-8. Topics and header names that begin with ``hqueue.`` are the
            system's own: a put refuses them.
        value: any bytes, which may be empty.
        key: any bytes that name what the value belongs to, such as a customer's ID. Messages with
            the same key go to the same partition, unless the put chooses one. None for no key; an
            empty key is a key.
        headers: pairs of a name, any text, and a value, any bytes. They keep their order, and a
            name may occur several times.

    Raises:
        InvalidInputError: an argument is of the wrong type or out of range.
        MessageTooLargeError: the message is larger than a batch may be.
    """

    __slots__ = ()

    topic: Final[str] = _field("topic", "The topic, a label that readers can filter by.")

    value: Final[bytes] = _field("value", "The value.")

    key: Final[bytes | None] = _field("key", "The key; None if it has none.")

    headers: Final[Headers] = _field(
        "headers", "The headers: pairs of name and value. Most messages have none."
    )

    def __new__(
        cls,
        topic: str,
        value: bytes | bytearray | memoryview,
        key: bytes | bytearray | memoryview | None = None,
        headers: Iterable[tuple[str, bytes | bytearray | memoryview]] = (),
    ) -> Message:
        if type(topic) is not str:
            topic = plain_text(topic, "a topic must be a str")
        topic_bytes(topic)
        if type(value) is not bytes:
            value = _plain_bytes(value, "a value must be bytes: encode text first")
        size = len(value)
        if key is not None:
            key = checked_key(key)
            size += len(key)
        if type(headers) is not tuple or headers:
            headers = checked_headers(headers)
            if len(headers) > BATCH_HEADERS_MAX:
                check_headers_of((headers,))
            size += headers_size(headers)
        if size > BATCH_BYTES_MAX:
            raise MessageTooLargeError(
                "the message is larger than the maximum size of a batch",
                bytes=size,
                bytes_max=BATCH_BYTES_MAX,
            )
        return tuple.__new__(cls, (topic, value, key, headers))

    def header(self, name: str) -> bytes | None:
        """The value of a header, of the last one if the name occurs several times; None if there is
        none.
        """
        return next((value for each, value in reversed(self.headers) if each == name), None)

    @property
    def deliver_at_ms(self) -> int | None:
        """When share groups and push deliver the message at the earliest, in milliseconds since the
        epoch. None if the message has no ``deliver-at`` header with a valid time.
        """
        value = self.header(DELIVER_AT)
        text = "" if value is None else value[:DELIVER_AT_BYTES_MAX].decode(errors="replace")
        due_ms = whole_number(text)
        return due_ms if due_ms is not None and due_ms <= TIMESTAMP_MS_MAX else None

    def delayed(self, until: datetime.datetime | datetime.timedelta | int) -> Message:
        """A copy of this message to put, which share groups and push don't deliver before a time:
        its header ``deliver-at`` has the milliseconds since the epoch as decimal digits. Scans,
        consumers with offsets and hubs deliver the copy at once.

        Args:
            until: the time: an aware datetime, a timedelta from now by this machine's clock, or
                milliseconds since the epoch.

        Raises:
            InvalidInputError: the time is not valid.
        """
        headers = [each for each in self.headers if each[0] != DELIVER_AT]
        due = str(as_due_ms(until)).encode()
        return Message(self.topic, self.value, self.key, [*headers, (DELIVER_AT, due)])

    @property
    def size(self) -> int:
        """The size of the message's value, key and headers in bytes."""
        key = self.key
        size = len(self.value) if key is None else len(self.value) + len(key)
        return size + headers_size(self.headers) if self.headers else size

    def __getnewargs__(self) -> tuple[object, ...]:
        return tuple(self)

    def __repr__(self) -> str:
        return f"Message({self._shown()})"

    def _shown(self, **more: object) -> str:
        """Its fields, without those that say that there is nothing."""
        fields: dict[str, object] = {"topic": self.topic, "value": self.value, **more}
        if self.key is not None:
            fields["key"] = self.key
        if self.headers:
            fields["headers"] = self.headers
        return ", ".join(f"{name}={value!r}" for name, value in fields.items())


class ReceivedMessage(Message):
    """A message that was read, with its ID and partition. Immutable.

    Args:
        topic, value, key, headers: as in a `Message`.
        id: its position in its partition.
        partition: its partition. When the message is put again, the put ignores `id`, `partition`,
            and headers that begin with ``hqueue.``, which are the system's own.
    """

    __slots__ = ()

    id: Final[MessageID] = _field(
        "id", "The ID: its position in its partition, and when it was written."
    )

    partition: Final[int] = _field("partition", "The partition from which it was read.")

    def __new__(
        cls,
        topic: str,
        value: bytes | bytearray | memoryview,
        id: MessageID,
        partition: int,
        *,
        key: bytes | bytearray | memoryview | None = None,
        headers: Iterable[tuple[str, bytes | bytearray | memoryview]] = (),
    ) -> ReceivedMessage:
        return tuple.__new__(cls, (*Message(topic, value, key, headers), id, partition))

    @property
    def timestamp(self) -> int:
        """When it was written: milliseconds since the epoch."""
        return int(self.id) >> SEQUENCE_BITS

    @property
    def datetime(self) -> datetime.datetime:
        """When it was written, as an aware datetime in UTC."""
        return self.id.datetime

    def __getnewargs_ex__(self) -> tuple[tuple[object, ...], dict[str, object]]:
        given = (self.topic, self.value, self.id, self.partition)
        return given, {"key": self.key, "headers": self.headers}

    def __repr__(self) -> str:
        return f"ReceivedMessage({self._shown(id=self.id, partition=self.partition)})"


class ConsumedMessage(ReceivedMessage):
    """A message that a `Consumer` returned, with its queue. Immutable.

    Args:
        topic, value, id, partition, key, headers: as in a `ReceivedMessage`.
        queue: the queue's name.
    """

    __slots__ = ()

    queue: Final[str] = _field("queue", "The queue from which it was read.")

    def __new__(
        cls,
        topic: str,
        value: bytes | bytearray | memoryview,
        id: MessageID,
        partition: int,
        queue: str,
        *,
        key: bytes | bytearray | memoryview | None = None,
        headers: Iterable[tuple[str, bytes | bytearray | memoryview]] = (),
    ) -> ConsumedMessage:
        return tuple.__new__(cls, (*Message(topic, value, key, headers), id, partition, queue))

    def __getnewargs_ex__(self) -> tuple[tuple[object, ...], dict[str, object]]:
        given, named = super().__getnewargs_ex__()
        return (*given, self.queue), named

    def __repr__(self) -> str:
        shown = self._shown(id=self.id, partition=self.partition, queue=self.queue)
        return f"ConsumedMessage({shown})"


class Messages(Sequence[Message]):
    """Messages of one topic to put, given as lists of values, keys and headers. Immutable.

    Use it for many values: a `Message` is made only when an item is accessed, so a batch of
    thousands is put in a fraction of the time that a list of messages takes.

    Args:
        topic: 1 to 255 bytes of UTF-8.
        values: the values, each any bytes. Mutable ones are copied.
        keys: the key of each message, None for one without a key. None if no message has a key.
        headers: the headers of each message. None if no message has any.

    Raises:
        InvalidInputError: an argument is of the wrong type or out of range, or the numbers of
            values, keys and headers differ.
    """

    __slots__ = ("_headers", "_keys", "_topic", "_values")

    def __init__(
        self,
        topic: str,
        values: Iterable[bytes | bytearray | memoryview],
        keys: Iterable[bytes | bytearray | memoryview | None] | None = None,
        headers: Iterable[Iterable[tuple[str, bytes | bytearray | memoryview]]] | None = None,
    ) -> None:
        topic = plain_text(topic, "a topic must be a str")
        topic_bytes(topic)
        if isinstance(values, (bytes, bytearray, memoryview, str)):
            raise InvalidInputError(
                "values must be a sequence of values, not a single one", type=type(values).__name__
            )
        if isinstance(keys, (bytes, bytearray, memoryview, str)):
            raise InvalidInputError(
                "keys must be a sequence of keys, not a single one", type=type(keys).__name__
            )
        self._topic = topic
        self._values = _checked_values(values)
        self._keys = None if keys is None else _checked_keys(keys)
        self._headers = None if headers is None else _checked_headers_of(headers)
        for name, more in (("keys", self._keys), ("headers", self._headers)):
            if more is not None and len(more) != len(self._values):
                raise InvalidInputError(
                    f"there must be as many {name} as values",
                    values=len(self._values),
                    found=len(more),
                )

    @property
    def topic(self) -> str:
        """The topic of all messages."""
        return self._topic

    @property
    def values(self) -> tuple[bytes, ...]:
        """The value of each message."""
        return self._values

    @property
    def keys(self) -> tuple[bytes | None, ...] | None:
        """The key of each message; None if none has a key."""
        return self._keys

    @property
    def headers(self) -> tuple[Headers, ...] | None:
        """The headers of each message; None if none has any."""
        return self._headers

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Messages: ...
    def __getitem__(self, index: int | slice) -> Message | Messages:
        keys, headers = self.keys, self.headers
        if isinstance(index, slice):
            return Messages(
                self.topic,
                self.values[index],
                None if keys is None else keys[index],
                None if headers is None else headers[index],
            )
        return Message(
            self.topic,
            self.values[index],
            None if keys is None else keys[index],
            () if headers is None else headers[index],
        )

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        return f"Messages({self.topic!r}, {len(self)} values)"


@overload
def checked_key(key: bytes | bytearray | memoryview) -> bytes: ...
@overload
def checked_key(key: bytes | bytearray | memoryview | None) -> bytes | None: ...
def checked_key(key: bytes | bytearray | memoryview | None) -> bytes | None:
    """A message's key.

    Raises:
        InvalidInputError: it is of the wrong type.
    """
    if key is None or type(key) is bytes:
        return key
    return _plain_bytes(key, "a key must be bytes: encode text first")


def checked_headers(headers: Iterable[tuple[str, bytes | bytearray | memoryview]]) -> Headers:
    """A message's headers.

    Raises:
        InvalidInputError: something is of the wrong type, or a name has no UTF-8.
    """
    if isinstance(headers, (str, bytes, Mapping)) or not isinstance(headers, Iterable):
        raise InvalidInputError(
            "headers must be pairs of a name and a value: for a dict, give its items()",
            type=type(headers).__name__,
        )
    return tuple([_header(pair) for pair in headers])


def _checked_values(values: Iterable[bytes | bytearray | memoryview]) -> tuple[bytes, ...]:
    """The values of many messages: what they should be already is looked at without a loop."""
    given = tuple(listed(values, "values"))
    if set(map(type, given)) <= {bytes}:
        return cast("tuple[bytes, ...]", given)
    return tuple([_plain_bytes(each, "a value must be bytes: encode text first") for each in given])


def _checked_keys(
    keys: Iterable[bytes | bytearray | memoryview | None],
) -> tuple[bytes | None, ...]:
    """The keys of many messages, likewise."""
    given = tuple(listed(keys, "keys"))
    if set(map(type, given)) <= {bytes, type(None)}:
        return cast("tuple[bytes | None, ...]", given)
    return tuple(map(checked_key, given))


def _checked_headers_of(
    headers: Iterable[Iterable[tuple[str, bytes | bytearray | memoryview]]],
) -> tuple[Headers, ...]:
    """The headers of many messages, likewise."""
    given = tuple(listed(headers, "headers"))
    if set(map(type, given)) <= {tuple}:
        pairs = list(chain.from_iterable(given))
        if set(map(type, pairs)) <= {tuple} and set(map(len, pairs)) <= {2}:
            names, values = zip(*pairs, strict=True) if pairs else ((), ())
            if set(map(type, names)) <= {str} and set(map(type, values)) <= {bytes}:
                with contextlib.suppress(UnicodeEncodeError):
                    "".join(names).encode()
                    return cast("tuple[Headers, ...]", given)
    return tuple(map(checked_headers, given))


def _header(pair: tuple[str, bytes | bytearray | memoryview]) -> tuple[str, bytes]:
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise InvalidInputError(
            "a header must be a pair of a name and a value", header=repr(pair)[:80]
        )
    name, value = pair
    name = plain_text(name, "a header's name must be a str")
    try:
        name.encode()
    except UnicodeEncodeError as exc:
        raise InvalidInputError("a header's name can't be encoded as UTF-8", name=name) from exc
    if type(value) is not bytes:
        value = _plain_bytes(value, "a header's value must be bytes: encode text first", name=name)
    return name, value


def _plain_bytes(given: object, wrong: str, **facts: Any) -> bytes:
    """Bytes as a plain `bytes`, also those of a derived class: one with methods of its own may say
    one length and have another.

    Raises:
        InvalidInputError: they are of another type, which `wrong` says, or a view that was
            released.
    """
    if not isinstance(given, (bytes, bytearray, memoryview)):
        raise InvalidInputError(wrong, type=type(given).__name__, **facts)
    try:
        return bytes(memoryview(given))
    except (ValueError, TypeError, BufferError, NotImplementedError) as exc:
        raise InvalidInputError(
            "the bytes can't be read: their memoryview was released, or has no plain layout",
            type=type(given).__name__,
            **facts,
        ) from exc


def plain_text(text: object, wrong: str) -> str:
    """A text as a plain str, also where it is of a class derived from it, as a `StrEnum`'s member.

    Raises:
        InvalidInputError: the value has another type; `wrong` is the error's text.
    """
    if not isinstance(text, str):
        raise InvalidInputError(wrong, value=text)
    return str.__str__(text)


def encoded_key(key: str | bytes) -> bytes:
    """A key that chooses a partition, as the bytes that do.

    Raises:
        InvalidInputError: it is neither bytes nor a text with a UTF-8 encoding.
    """
    if isinstance(key, str):
        try:
            return key.encode()
        except UnicodeEncodeError as exc:
            raise InvalidInputError("the key can't be encoded as UTF-8: give it as bytes") from exc
    if not isinstance(key, bytes):
        raise InvalidInputError("a key must be str or bytes", type=type(key).__name__)
    return key


def check_header_count(count: int, count_own: Callable[[], int]) -> None:
    """Refuse a number of headers that a batch can't have.

    Args:
        count: of all messages.
        count_own: counts those of them that are the system's own, where that matters.
    """
    if count > BATCH_HEADERS_MAX and (count := count - count_own()) > BATCH_HEADERS_MAX:
        raise MessageTooLargeError(
            "the messages have more headers than a batch can hold: send them with a Producer, "
            "which cuts batches by itself, or move one message's headers into its value",
            headers=count,
            headers_max=BATCH_HEADERS_MAX,
        )


def check_headers_of(headers: Sequence[Headers]) -> None:
    """The same, of the headers of several messages."""
    check_header_count(
        sum(map(len, headers)),
        lambda: sum(name.startswith(PREFIX) for name, _ in chain.from_iterable(headers)),
    )


def headers_size(headers: Headers) -> int:
    """The bytes of the names and values."""
    return sum([len(name.encode()) + len(value) for name, value in headers])


def topic_bytes(topic: str) -> bytes:
    """A topic as HBase holds it: its UTF-8.

    Raises:
        InvalidInputError: it is empty, too long, or has no UTF-8.
    """
    try:
        return _topic_bytes(topic)
    except TypeError:  # What can't be hashed.
        raise InvalidInputError("a topic must be a str", topic=topic) from None


@functools.lru_cache(maxsize=4_096)
def _topic_bytes(topic: str) -> bytes:
    if not isinstance(topic, str):
        raise InvalidInputError("a topic must be a str", topic=topic)
    try:
        encoded = topic.encode()
    except UnicodeEncodeError as exc:
        raise InvalidInputError("the topic can't be encoded as UTF-8", topic=topic) from exc
    if not 1 <= len(encoded) <= TOPIC_BYTES_MAX:
        raise InvalidInputError("a topic must have 1 to 255 bytes in UTF-8", topic=topic[:80])
    return encoded
