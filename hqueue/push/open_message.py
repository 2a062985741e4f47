"""What follows a message's value in a worker's call: its key, its headers and its end.

    ( 0b 0005 length key ) ( 0f 0006 0c count header … ) 00
    header    0b 0001 length name │ 0b 0002 length value │ 00

Lengths and counts have 4 bytes. A message without key and headers has its end alone.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from hqueue.message import ReceivedMessage
from hqueue.message_id import MessageID
from hqueue.rpc.calls import NoCallError

__all__ = ["OpenMessage", "may_become"]

HEADER_BYTES = 256
"""Of memory, about, that a header takes beside its bytes in the call."""

_END = 0
_KEY = b"\x0b\x00\x05"
_HEADERS = b"\x0f\x00\x06\x0c"
_NAME = b"\x0b\x00\x01"
_VALUE = b"\x0b\x00\x02"
_TEXT = struct.Struct(">3sI")
_LIST = struct.Struct(">4sI")
_HEADER_BYTES_MIN = 2 * _TEXT.size + 1


class OpenMessage:
    """A message whose value has come, and reads the rest as it comes. What was read once is not
    looked at again.
    """

    __slots__ = ("_begun", "_headers", "_key", "_left", "done", "needed")

    def __init__(self, topic: str, value: bytes, message_id: MessageID, partition: int) -> None:
        self._begun = topic, value, message_id, partition
        self._key: bytes | None = None
        self._headers: list[tuple[str, bytes]] = []
        self.done = False
        """Whether all of it has come."""
        self.needed = 0
        """Before the piece has this many bytes, there is nothing to look at."""
        self._left = -1
        """Headers that are still to come; -1 before the call says how many."""

    @property
    def made_bytes(self) -> int:
        """Its headers take this much memory beside their bytes, about."""
        return len(self._headers) * HEADER_BYTES

    def message(self) -> ReceivedMessage:
        """The message, once it is done."""
        topic, value, message_id, partition = self._begun
        headers = tuple(self._headers)
        fields = topic, value, self._key, headers, message_id, partition
        return tuple.__new__(ReceivedMessage, fields)

    def read(self, piece: bytes, at: int, bytes_max: int) -> int:
        """Read on; where what was not read begins.

        Args:
            piece: what has come of the call.
            at: where in it to begin.
            bytes_max: how many bytes it may have, with all that is still to come.

        Raises:
            NoCallError: a message does not match the IDL, or the call is too large.
            UnicodeDecodeError: a header's name is not UTF-8.
        """
        self.needed = 0
        while not self.done:
            end = (self._header if self._left > 0 else self._field)(piece, at, bytes_max)
            if not end:
                break
            at = end
        return at

    def _field(self, piece: bytes, at: int, bytes_max: int) -> int:
        """Read a key, the beginning of headers, or the end; where that ends, 0 if it is not there
        as a whole.
        """
        head = piece[at : at + _LIST.size]
        if not head:
            return 0
        if head[0] == _END:
            self.done = True
            return at + 1
        if self._left >= 0 or (self._key is not None and head[0] == _KEY[0]):
            raise NoCallError("a message has an unknown field")
        if head[0] == _KEY[0]:
            self._key = self._text(piece, at, _KEY, bytes_max)
            return 0 if self._key is None else at + _TEXT.size + len(self._key)
        if not may_become(head, ((0, _HEADERS),)):
            raise NoCallError("a message has an unknown field")
        if len(head) < _LIST.size:
            return 0
        self._left = int(_LIST.unpack(head)[1])
        if self._left * _HEADER_BYTES_MIN > bytes_max - at:
            raise NoCallError("a message announces more headers than its size allows")
        return at + _LIST.size

    def _header(self, piece: bytes, at: int, bytes_max: int) -> int:
        """Read a header, likewise."""
        name = self._text(piece, at, _NAME, bytes_max)
        if name is None:
            return 0
        value_at = at + _TEXT.size + len(name)
        value = self._text(piece, value_at, _VALUE, bytes_max)
        if value is None:
            return 0
        end = value_at + _TEXT.size + len(value)
        if piece[end] != _END:
            raise NoCallError("a header has an unknown field")
        self._headers.append((name.decode(), value))
        self._left -= 1
        return end + 1

    def _text(self, piece: bytes, at: int, field: bytes, bytes_max: int) -> bytes | None:
        """The bytes of a field; None if they, and one byte more, are not there as a whole."""
        begin = at + _TEXT.size
        if begin > len(piece):
            if not may_become(piece[at:], ((0, field),)):
                raise NoCallError("a message of the call does not match the IDL")
            return None
        found, length = _TEXT.unpack_from(piece, at)
        if found != field:
            raise NoCallError("a message of the call does not match the IDL")
        end = begin + int(length)
        if end >= bytes_max:
            raise NoCallError("the call has more bytes than a call may have")
        # In any layout something follows, if only the end.
        self.needed = end + 1
        return piece[begin:end] if end < len(piece) else None


def may_become(came: bytes | bytearray, parts: Sequence[tuple[int, bytes]]) -> bool:
    """Whether what came may still become what has these parts at these places."""
    return all(part.startswith(bytes(came[at : at + len(part)])) for at, part in parts)
