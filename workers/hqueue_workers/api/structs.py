"""Converts between the structs of the API's IDL and the library's types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hqueue import InvalidInputError, Message, MessageID, ReceivedMessage, Scan
from hqueue.rpc.services import load
from hqueue.settings.limits import BATCH_BYTES_MAX, NAME_BYTES_MAX, SEQUENCE_BITS, SEQUENCE_MAX

__all__ = [
    "API",
    "END",
    "SERVICE",
    "answer_size",
    "id_of",
    "id_struct",
    "message_of",
    "messages_of_list",
    "put_answer",
    "scan_of",
    "struct_of",
    "text_of",
]

API: Any = load("hqueue")
"""What ``thrift/hqueue.thrift`` declares."""

SERVICE: Any = API.HQueueService

_SHARED: Any = API.subscriber

END: Any = _SHARED.TMessage(topic=b"", value=b"")
"""What `messageScannerGet` answers at the end: a message without an ID."""

MESSAGE_OVERHEAD_BYTES = 48
HEADER_OVERHEAD_BYTES = 16
"""What Thrift's binary protocol puts beside the bytes of a message, and of a header, at most."""


def text_of(given: object, name: str, bytes_max: int = NAME_BYTES_MAX) -> str:
    """An argument that is a text of at most this many bytes.

    Raises:
        InvalidInputError: the text is missing, too long, or not UTF-8.
    """
    if given is None:
        raise InvalidInputError("an argument is missing", argument=name)
    text = given if isinstance(given, (bytes, str)) else str(given)
    if len(text) > bytes_max:
        raise InvalidInputError(
            "an argument is too long", argument=name, bytes=len(text), bytes_max=bytes_max
        )
    try:
        return text.decode() if isinstance(text, bytes) else text
    except UnicodeDecodeError as exc:
        raise InvalidInputError("a string must be UTF-8", argument=name) from exc


def scan_of(given: Any) -> Scan:
    """Convert a `TMessageScan`.

    Raises:
        InvalidInputError: it is missing, or one of its fields is out of range.
    """
    if given is None:
        raise InvalidInputError("an argument is missing", argument="messageScan")
    return Scan(
        id_of(given.startMessageID, "startMessageID"),
        id_of(given.stopMessageID, "stopMessageID"),
        [text_of(topic, "topics") for topic in given.topics or ()],
    )


def id_of(given: Any, name: str) -> MessageID | None:
    """Convert a `TMessageID`; None if it is not given.

    Raises:
        InvalidInputError: one of its fields is missing, or out of range.
    """
    if given is None:
        return None
    if given.timestamp is None or given.sequenceID is None:
        raise InvalidInputError("an ID needs a timestamp and a sequenceID", argument=name)
    return MessageID(given.timestamp, given.sequenceID)


def id_struct(given: MessageID) -> Any:
    """The `TMessageID` of an ID."""
    return _SHARED.TMessageID(timestamp=given.timestamp, sequenceID=given.sequence)


def message_of(given: Any) -> Message:
    """Convert a `TMessage` to put.

    Raises:
        InvalidInputError: it is missing, or one of its fields is out of range.
    """
    if given is None:
        raise InvalidInputError("an argument is missing", argument="tMessage")
    if given.value is None:
        raise InvalidInputError("a message needs a value, which may be empty")
    headers = []
    for header in given.headers or ():
        if header.value is None:
            raise InvalidInputError("a header needs a value, which may be empty")
        headers.append((text_of(header.name, "headers", BATCH_BYTES_MAX), header.value))
    return Message(text_of(given.topic, "topic"), given.value, given.key, headers)


def messages_of_list(given: Sequence[Any] | None) -> list[Message]:
    """Convert the messages to put.

    Raises:
        InvalidInputError: they are missing, or a field of one is out of range.
    """
    if given is None:
        raise InvalidInputError("an argument is missing", argument="tMessages")
    return [message_of(each) for each in given]


def put_answer(first: MessageID, count: int) -> Any:
    """The answer to a put of this many messages."""
    return API.TPutAnswer(firstID=id_struct(first), count=count)


def struct_of(message: ReceivedMessage) -> Any:
    """The `TMessage` of a message that was read."""
    return _SHARED.TMessage(
        id=_SHARED.TMessageID(
            timestamp=message.id >> SEQUENCE_BITS, sequenceID=message.id & SEQUENCE_MAX
        ),
        partitionID=message.partition,
        topic=message.topic.encode(),
        value=message.value,
        key=message.key,
        headers=[
            _SHARED.THeader(name=name.encode(), value=value) for name, value in message.headers
        ]
        or None,
    )


def answer_size(message: ReceivedMessage) -> int:
    """The most bytes that a message takes in an answer."""
    size = message.size + 4 * len(message.topic) + MESSAGE_OVERHEAD_BYTES
    return size + HEADER_OVERHEAD_BYTES * len(message.headers)
