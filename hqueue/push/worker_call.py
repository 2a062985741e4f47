"""A worker's call, read without a Thrift library.

    call      80 01 00 01 │ 0000000f consumeMessages │ seqid │ 0f 0001 0c count │ message … │ 00
    message   0c 0001 0a 0001 timestamp │ 06 0002 sequence │ 00 06 0002 partition │
              0b 0003 length topic │ 0b 0004 length value │ rest
    rest      00 of a message without key and headers; else see `hqueue.push.open_message`
    reply     80 01 00 02 │ 0000000f consumeMessages │ seqid │ 08 0000 status
              ( 0b 0002 length reason ) 00, or with an answer for each message
              … │ 0c 0001 ( 0d 0001 08 0b count ( index │ length reason ) … ) ( 08 0002 first )
              ( 0b 0003 length reason ) ( 08 0004 delay ) 00 │ 00
    refusal   80 01 00 03 │ 0000000f consumeMessages │ seqid │ 0b 0001 length text │
              08 0002 type │ 00

Numbers have 2, 4 or (the timestamp) 8 bytes. Thrift allows the same call in other layouts: fields
in another order, left out, or unknown ones. Workers write this one, as most Thrift libraries do,
and reading it so takes less time than making a library's objects.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Sequence

from hqueue.errors import InvalidInputError
from hqueue.message import ReceivedMessage, topic_bytes
from hqueue.message_id import MessageID
from hqueue.push.answers import Answer, MessageAnswers
from hqueue.push.open_message import OpenMessage, may_become
from hqueue.rpc.calls import NoCallError
from hqueue.rpc.messages import RefusedCallError
from hqueue.settings.limits import SEQUENCE_BITS, TIMESTAMP_MS_MAX, TOPIC_BYTES_MAX

__all__ = ["WorkerCall", "known_topic"]

MESSAGE_BYTES = 256
"""About how much memory a message takes beside its bytes in the call."""

_NAME = b"\x00\x00\x00\x0fconsumeMessages"
_LIST = b"\x0f\x00\x01\x0c"
_HEAD = struct.Struct(f">4s{len(_NAME)}si4sI")
_HEAD_PARTS = ((0, b"\x80\x01\x00\x01" + _NAME), (27, _LIST))
_MESSAGE = struct.Struct(">6sq3sh4sh3sI")
_ID, _SEQUENCE, _PARTITION, _TOPIC = (
    b"\x0c\x00\x01\x0a\x00\x01",
    b"\x06\x00\x02",
    b"\x00\x06\x00\x02",
    b"\x0b\x00\x03",
)
_MESSAGE_PARTS = ((0, _ID), (14, _SEQUENCE), (19, _PARTITION), (25, _TOPIC))
_VALUE_FIELD = b"\x0b\x00\x04"
_VALUE = struct.Struct(">3sI")
_MESSAGE_BYTES_MIN = _MESSAGE.size + _VALUE.size + 2
_REPLY = struct.Struct(f">4s{len(_NAME)}si")
_NUMBER_FIELD = struct.Struct(">bhi")
_TEXT_FIELD = struct.Struct(">bhI")
_REJECTED = struct.Struct(">bhbbi")
_REJECTED_ONE = struct.Struct(">iI")
_REFUSAL = struct.Struct(f">4s{len(_NAME)}si3sI")
_REFUSAL_TYPE = struct.Struct(">3siB")


@functools.lru_cache(maxsize=4_096)
def known_topic(encoded: bytes) -> str:
    """A topic from its UTF-8.

    Raises:
        InvalidInputError, UnicodeDecodeError: no queue can have this topic.
    """
    topic = encoded.decode()
    topic_bytes(topic)
    return topic


class WorkerCall:
    """Reads one call, piece by piece as it comes, and answers it.

    All looks at a call together take time in proportion to its bytes. Beside what has come it holds
    the messages that have come as a whole; nothing is set aside for what is only promised.

    Args:
        consume: given the messages, once all are here.
        bytes_max: what the call may have.
    """

    def __init__(
        self, consume: Callable[[Sequence[ReceivedMessage]], Answer], bytes_max: int
    ) -> None:
        self._consume = consume
        self._bytes_max = bytes_max
        self._messages: list[ReceivedMessage] = []
        self._open: OpenMessage | None = None
        """A message that has a key or headers, and has not come completely."""
        self._headers_bytes = 0
        self._seqid = 0
        self._left = -1
        """Messages that are still to come; -1 before the call says how many."""
        self._at = 0
        self._needed = 0
        """How many bytes must have come before the next look makes sense."""

    @property
    def made_bytes(self) -> int:
        """About how much memory the messages that have come take beside the call's bytes."""
        opened = 0 if self._open is None else self._open.made_bytes
        return self._at + len(self._messages) * MESSAGE_BYTES + self._headers_bytes + opened

    def end(self, data: bytes | bytearray) -> int | None:
        """Where the call ends; None if its end has not come yet. Never finds the end later than a
        `CallWalk` does.

        Args:
            data: the bytes that have come, from the call's first byte on.

        Raises:
            NoCallError: this is not a call in a worker's layout, or it must be refused. Another
                reader must read it, from its first byte on.
        """
        if len(data) < self._needed:
            return None
        if self._left < 0 and not self._begin(data):
            return None
        with memoryview(data) as view, view[self._at :] as rest:
            piece = bytes(rest)
        try:
            self._at += self._read(piece)
        except (InvalidInputError, UnicodeDecodeError) as exc:
            raise NoCallError("a queue can't hold this message") from exc
        if self._left or self._at == len(data):
            return None
        if data[self._at]:
            raise NoCallError("the arguments have an unknown field")
        return self._at + 1

    def answer(self) -> bytes:
        """Have the messages consumed. Returns the reply with their answer, or Thrift's own error
        reply if the call was refused.
        """
        try:
            status, reason, each = self._consume(self._messages)
        except RefusedCallError as exc:
            text = str(exc.message).encode()
            head = (b"\x80\x01\x00\x03", _NAME, self._seqid, b"\x0b\x00\x01", len(text))
            kind = _REFUSAL_TYPE.pack(b"\x08\x00\x02", exc.type, 0)
            return _REFUSAL.pack(*head) + text + kind
        begin = _REPLY.pack(b"\x80\x01\x00\x02", _NAME, self._seqid)
        if each is not None:
            return begin + b"\x0c\x00\x01" + _each_said(each, reason) + b"\0\0"
        said = _text_field(2, reason) if reason else b""
        return begin + _number_field(0, status) + said + b"\0"

    def _begin(self, data: bytes | bytearray) -> bool:
        if not may_become(data[: _HEAD.size], _HEAD_PARTS):
            raise NoCallError("the call does not begin like a worker's call")
        if len(data) < _HEAD.size:
            return False
        _, _, self._seqid, _, count = _HEAD.unpack_from(data)
        if count * _MESSAGE_BYTES_MIN > self._bytes_max:
            raise NoCallError("the call announces more messages than its size allows")
        self._left, self._at = count, _HEAD.size
        return True

    def _read(self, piece: bytes) -> int:
        """Read the messages that have come completely. Returns how many bytes they have."""
        unpack, unpack_value, add = _MESSAGE.unpack_from, _VALUE.unpack_from, self._messages.append
        at, last = 0, len(piece) - _MESSAGE.size
        opened = self._open
        while self._left:
            if opened is not None:
                at = opened.read(piece, at, self._bytes_max - self._at)
                if not opened.done:
                    self._needed = self._at + opened.needed
                    break
                add(opened.message())
                self._headers_bytes += opened.made_bytes
                opened = self._open = None
                self._left -= 1
                continue
            if at > last:
                self._wait_for(piece[at:], _MESSAGE_PARTS)
                break
            first, timestamp, second, sequence, third, partition, fourth, length = unpack(piece, at)
            if (
                first != _ID
                or second != _SEQUENCE
                or third != _PARTITION
                or fourth != _TOPIC
                or not 0 <= timestamp <= TIMESTAMP_MS_MAX
                or sequence < 0
                or length > TOPIC_BYTES_MAX
            ):
                raise NoCallError("a message has an unexpected layout")
            topic_at = at + _MESSAGE.size
            topic_end = topic_at + length
            value_at = topic_end + _VALUE.size
            if value_at > len(piece):
                self._wait_for(piece[topic_end:], ((0, _VALUE_FIELD),))
                break
            field, length = unpack_value(piece, topic_end)
            value_end = value_at + length
            if field != _VALUE_FIELD or self._at + value_end >= self._bytes_max:
                raise NoCallError(
                    "a message has an unexpected layout, or is larger than a call may be"
                )
            if value_end >= len(piece):
                self._needed = self._at + value_end + 1
                break
            # Built without a call in Python: all of it was checked.
            message_id = int.__new__(MessageID, timestamp << SEQUENCE_BITS | sequence)
            topic, value = known_topic(piece[topic_at:topic_end]), piece[value_at:value_end]
            if piece[value_end]:
                opened = self._open = OpenMessage(topic, value, message_id, partition)
                at = value_end
                continue
            add(tuple.__new__(ReceivedMessage, (topic, value, None, (), message_id, partition)))
            self._left -= 1
            at = value_end + 1
        return at

    def _wait_for(self, came: bytes, parts: Sequence[tuple[int, bytes]]) -> None:
        """Check that the bytes that came may become a struct with these parts: another layout may
        be shorter.
        """
        if not may_become(came, parts):
            raise NoCallError("a message has an unexpected layout")


def _each_said(each: MessageAnswers, reason: str) -> bytes:
    """The fields of an answer for each message."""
    said: list[bytes] = []
    if each.rejected:
        said.append(_REJECTED.pack(13, 1, 8, 11, len(each.rejected)))
        for index, why in each.rejected.items():
            text = why.encode()
            said += (_REJECTED_ONE.pack(index, len(text)), text)
    if each.retry_from is not None:
        said.append(_number_field(2, each.retry_from))
    if reason:
        said.append(_text_field(3, reason))
    if each.retry_delay_ms is not None:
        said.append(_number_field(4, each.retry_delay_ms))
    return b"".join(said)


def _number_field(field: int, number: int) -> bytes:
    return _NUMBER_FIELD.pack(8, field, number)


def _text_field(field: int, text: str) -> bytes:
    encoded = text.encode()
    return _TEXT_FIELD.pack(11, field, len(encoded)) + encoded
