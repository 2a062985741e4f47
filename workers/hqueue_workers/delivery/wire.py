"""The bytes of ``HQueueSubscriberService.consumeMessages``: Thrift's binary protocol, unframed.

    call     80 01 00 01 │ name │ seqid │ 0f 00 01 0c count │ message … │ 00
    message  0c 00 01 ( 0a 00 01 timestamp, 06 00 02 sequence, 00 ), 06 00 02 partition,
             0b 00 03 length topic, 0b 00 04 length value,
             if it has a key 0b 00 05 length key, if it has headers 0f 00 06 0c count header …, 00
    header   0b 00 01 length name, 0b 00 02 length value, 00
    reply    80 01 00 02 │ name │ seqid │ 08 00 00 status,
             if it says why 0b 00 02 length reason │ 00
             with an answer for each message in place of the status: 0c 00 01 TDeliveryAnswer │ 00

Encoded messages can be joined in any order to form a call. So a message that was read once is
encoded once, for all subscribers that want it, which no general Thrift library does. It is also
four times faster than building Thrift's objects first.
"""

from __future__ import annotations

import dataclasses
import itertools
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from hqueue import MessageID, ReceivedMessage
from hqueue.message import Headers
from hqueue.metadata.delays import Delayed
from hqueue.push.answers import REJECTED_MAX, RETRY_DELAY_MS_MAX, MessageAnswers, Status
from hqueue.push.service import subscriber_service
from hqueue.rpc.calls import NoCallError
from hqueue.rpc.messages import read_reasoned
from hqueue.settings.limits import REASON_LENGTH_MAX, SEQUENCE_BITS, SEQUENCE_MAX

__all__ = [
    "REPLY_CONTAINERS_MAX",
    "Call",
    "Reply",
    "ReplyError",
    "call_head",
    "call_tail",
    "decode_messages",
    "encode_message",
    "read_reply",
]

METHOD = b"consumeMessages"

REPLY_CONTAINERS_MAX = 8
"""The most structs, lists and maps in a reply. An answer for each message has two; a later release
may add some."""
NO_STATUS = "the subscriber's answer has no status"

_CALL = 0x80010001
_STOP, _I16, _I64, _STRING, _STRUCT, _LIST = 0, 6, 10, 11, 12, 15

_HEAD = struct.Struct(f">Ii{len(METHOD)}siBhBi")
_MESSAGE = struct.Struct(">BhBhqBhhBBhhBhi")
_VALUE = struct.Struct(">Bhi")
_HEADERS = struct.Struct(">BhBi")

call_tail = b"\0"
"""The bytes after the messages of a call."""


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """Messages for one call, encoded. IDs are integers.

    The call covers the IDs ``[start, end)``. A call without messages says only that no message
    there has to be delivered now.
    """

    start: int
    end: int
    parts: tuple[bytes, ...] = ()
    ids: tuple[Sequence[int], ...] = ()
    """The IDs of the messages in each part."""
    delayed: tuple[Delayed, ...] = ()
    """Messages in this range that the call leaves out, because they are not due; in ID order."""

    @property
    def count(self) -> int:
        """How many messages it has."""
        return sum(map(len, self.ids))

    def messages(self, count: int) -> list[ReceivedMessage]:
        """Its first messages, decoded: at most this many."""
        messages: list[ReceivedMessage] = []
        for part in self.parts:
            if len(messages) >= count:
                break
            messages += decode_messages(part)
        return messages[:count]

    def upto(self, count: int) -> Call:
        """The part of the call with its first messages, this many of them, as a call without
        bytes; the call itself if it has no more than that.
        """
        if count >= self.count:
            return self
        ids = list(itertools.chain.from_iterable(self.ids))
        delayed = tuple(each for each in self.delayed if each.id < ids[count])
        return Call(self.start, ids[count], (), (ids[:count],), delayed)

    @property
    def first(self) -> int:
        """The ID of its first message; its end if it has none."""
        return self.ids[0][0] if self.ids else self.end


class Reply(NamedTuple):
    """A subscriber's answer."""

    status: int
    reason: str = ""
    """Why the messages, or those of them that come again, are not done; empty if not said."""
    each: MessageAnswers | None = None
    """An answer for each message, in place of the status."""


class ReplyError(Exception):
    """A subscriber's answer that can't be used. The text says what is wrong with it."""


def call_head(seqid: int, count: int) -> bytes:
    """The bytes before the messages of a call."""
    return _HEAD.pack(_CALL, len(METHOD), METHOD, seqid, _LIST, 1, _STRUCT, count)


def encode_message(message: ReceivedMessage) -> bytes:
    """Encode a message as an element of the call's list."""
    fields: Any = message  # Read as a tuple, which is fastest.
    name, value, key, headers, message_id, partition = fields[:6]
    topic = name.encode()
    return b"".join(
        (
            _MESSAGE.pack(
                _STRUCT, 1,
                _I64, 1, message_id >> SEQUENCE_BITS,
                _I16, 2, message_id & SEQUENCE_MAX, _STOP,
                _I16, 2, partition, _STRING, 3, len(topic),
            ),
            topic,
            _VALUE.pack(_STRING, 4, len(value)),
            value,
            b"\0" if key is None and not headers else _encode_rest(key, headers),
        )
    )  # fmt: skip


def _encode_rest(key: bytes | None, headers: Headers) -> bytes:
    """The bytes after the value of a message that has a key or headers."""
    parts = [] if key is None else [_VALUE.pack(_STRING, 5, len(key)), key]
    if headers:
        parts.append(_HEADERS.pack(_LIST, 6, _STRUCT, len(headers)))
    for name, value in headers:
        encoded = name.encode()
        parts += (
            _VALUE.pack(_STRING, 1, len(encoded)), encoded,
            _VALUE.pack(_STRING, 2, len(value)), value, b"\0",
        )  # fmt: skip
    parts.append(b"\0")
    return b"".join(parts)


def decode_messages(data: bytes) -> list[ReceivedMessage]:
    """The messages that `encode_message` made these bytes of."""
    messages = []
    at = 0
    while at < len(data):
        fields = _MESSAGE.unpack_from(data, at)
        topic_at = at + _MESSAGE.size
        topic_end = topic_at + fields[-1]
        value, at = _text_at(data, topic_end)
        key: bytes | None = None
        if data[at] == _STRING:
            key, at = _text_at(data, at)
        headers: list[tuple[str, bytes]] = []
        if data[at] == _LIST:
            count = _HEADERS.unpack_from(data, at)[3]
            at += _HEADERS.size
            for _ in range(count):
                name, at = _text_at(data, at)
                content, at = _text_at(data, at)
                headers.append((name.decode(), content))
                at += 1
        messages.append(
            ReceivedMessage(
                data[topic_at:topic_end].decode(),
                value,
                MessageID(fields[4], fields[7]),
                fields[11],
                key=key,
                headers=headers,
            )
        )
        at += 1
    return messages


def _text_at(data: bytes, at: int) -> tuple[bytes, int]:
    """The bytes of a field, and the position of its end."""
    begin = at + _VALUE.size
    end = begin + int(_VALUE.unpack_from(data, at)[2])
    return data[begin:end], end


def read_reply(reply: bytes, seqid: int, count: int) -> Reply:
    """Read the answer to a call.

    Args:
        reply: the answer, whose end a `CallWalk` has found.
        seqid: the sequence ID of the call.
        count: how many messages the call had.

    Raises:
        ReplyError: it is not an answer to this call.
    """
    try:
        said = read_reasoned(subscriber_service(), METHOD.decode(), seqid, reply)
    except NoCallError as exc:
        raise ReplyError(str(exc) or NO_STATUS) from exc
    if said.answer is not None:
        return _reply_for_each(said.answer, count)
    if said.success is None:
        raise ReplyError(NO_STATUS)
    return Reply(said.success, _line(said.reason))


def _reply_for_each(said: Any, count: int) -> Reply:
    """Read an answer for each message. An answer that does not fit the call is refused whole."""
    rejected, first, delay_ms = said.rejected or {}, said.retryFrom, said.retryDelayMs
    end = count if first is None else first
    if first is not None and not 0 <= first < count:
        raise ReplyError(f"the answer's retryFrom is {first}: it must be 0 to {count - 1}")
    if not rejected and first is None:
        raise ReplyError("the answer names no message: it needs rejected, retryFrom or both")
    if len(rejected) > REJECTED_MAX:
        raise ReplyError(f"the answer rejects more than {REJECTED_MAX} messages")
    for index in rejected:
        if not 0 <= index < end:
            raise ReplyError(
                f"the answer rejects message {index}: it can only reject messages before {end}"
            )
    if delay_ms is not None and (first is None or not 0 <= delay_ms <= RETRY_DELAY_MS_MAX):
        raise ReplyError(
            f"the answer's retryDelayMs is {delay_ms}: it must be 0 to {RETRY_DELAY_MS_MAX}, and "
            "needs retryFrom"
        )
    reasons = {index: _line(rejected[index]) for index in sorted(rejected)}
    return Reply(Status.RETRY, _line(said.reason), MessageAnswers(reasons, first, delay_ms))


def _line(said: bytes | None) -> str:
    """The beginning of a text, without the characters that a terminal would act on."""
    text = (said or b"")[: 4 * REASON_LENGTH_MAX].decode(errors="replace")
    return "".join([each if each.isprintable() else " " for each in text[:REASON_LENGTH_MAX]])
