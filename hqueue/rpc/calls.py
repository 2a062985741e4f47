"""Where a call of Thrift's binary protocol ends, found before a Thrift library believes it.

    call        80 01 00 kind │ length name │ seqid │ struct        kind: 01 a call, 04 oneway
    struct      field … 00
    field       type │ number, 2 bytes │ value
    value       bool, byte 1 byte · i16 2 · i32 4 · i64, double 8 │ string: length bytes
    list, set   type │ count │ value …
    map         type type │ count │ key value …

Lengths, counts and the seqid have 4 bytes. A library that takes them as they come can be made to
count to 2^30 over elements that have no bytes, in C, while no other thread runs; to set memory
aside for what never comes; and to go down from list to list until its stack ends. So anyone who
serves a port to strangers lets a `CallWalk` look first.
"""

from __future__ import annotations

import struct

__all__ = [
    "DEPTH_MAX",
    "HEAD_BYTES_MAX",
    "NAME_BYTES_MAX",
    "OBJECT_BYTES",
    "REPLIES",
    "CallWalk",
    "NoCallError",
    "NotThriftError",
    "TlsHelloError",
    "call_head",
    "check_call",
]

DEPTH_MAX = 8
"""Structs, lists, sets and maps in one another, the arguments included. Ours have five at most."""

NAME_BYTES_MAX = 255
"""Of a method."""

OBJECT_BYTES, TEXT_BYTES, NUMBER_BYTES = 512, 64, 40
"""Of memory, about, that reading a call takes beside its bytes: for each struct, list, set and map
with what a handler makes of it, and for each text and number in a list. A struct alone has 140.
"""

HEAD_BYTES_MAX = 8 + NAME_BYTES_MAX + 4
"""Of what comes before the arguments."""

_CALL, _ONEWAY = 0x80010001, 0x80010004
REPLIES = 0x80010002, 0x80010003
"""What a reply begins with: an answer, or Thrift's own error."""
_STOP, _STRING, _STRUCT, _MAP, _SET, _LIST = 0, 11, 12, 13, 14, 15
_BYTES = {2: 1, 3: 1, 4: 8, 6: 2, 8: 4, 10: 8}
"""What a value of a type has, where all have the same."""
_BYTES_MIN = {**_BYTES, _STRING: 4, _STRUCT: 1, _MAP: 6, _SET: 5, _LIST: 5}
_ELEMENT_BYTES = {_STRING: TEXT_BYTES, **dict.fromkeys(_BYTES, NUMBER_BYTES)}
_HEAD_BYTES = {_STRING: 4, _MAP: 6, _SET: 5, _LIST: 5}
"""What says how long the rest of a value is."""
_BYTES_OF = bytes(_BYTES.get(kind, 0) for kind in range(256))

_HEAD = struct.Struct(">II")
_WORD = struct.Struct(">I")
_SEQID = struct.Struct(">i")
_PAIRS = struct.Struct(">BBI")
_ELEMENTS = struct.Struct(">BI")


TLS_HANDSHAKE = b"\x16\x03"
"""How a caller's handshake of TLS begins."""


class NoCallError(Exception):
    """These bytes begin no call, whatever comes after them."""


class NotThriftError(NoCallError):
    """These bytes are not Thrift's binary protocol."""


class TlsHelloError(NotThriftError):
    """These bytes begin a handshake of TLS."""


class _Open:
    """A struct, list, set or map whose end was not reached."""

    __slots__ = ("left", "types")

    def __init__(self, types: tuple[int, ...] = (), left: int = 0) -> None:
        self.types = types
        """Of its values, in turn, from the last one on; of a struct none: its fields say theirs."""
        self.left = left


class CallWalk:
    """Walks over the bytes of one call, as far as they have come.

    Guarantees of a call whose end it has found: all types are known, nothing lies deeper than
    `DEPTH_MAX`, and every length and every count is filled by bytes that are there. So reading it
    takes time and memory in proportion to its bytes. What a newer release may have added, fields
    of known types under any number, is part of a call.

    All looks at a call together take time in proportion to its bytes, in however many pieces they
    come, and no memory but for what is open.

    Args:
        bytes_max: what the call may have.
        containers_max: how many structs, lists, sets and maps it may have. Each becomes an object,
            which may have a hundred times the bytes that it is made of.
        kinds: what it may begin with: those of a call, or `REPLIES`, which are built alike.
    """

    __slots__ = ("_at", "_bytes_max", "_containers_left", "_kinds", "_open", "made_bytes")

    def __init__(
        self, bytes_max: int, containers_max: int, kinds: tuple[int, int] = (_CALL, _ONEWAY)
    ) -> None:
        self._kinds = kinds
        self._bytes_max = bytes_max
        self._containers_left = containers_max
        self.made_bytes = 0
        """What is made of the call takes this much memory beside its bytes, about."""
        self._at = 0
        """Where the next step begins, which may be beyond what has come."""
        self._open: list[_Open] = []

    def end(self, data: bytes | bytearray) -> int | None:
        """Where the call ends, or None if that has not come yet.

        Args:
            data: what has come, from the call's first byte on: what was there at the last look,
                and what came since then.

        Raises:
            NoCallError: this is not a call, or a larger one than allowed.
        """
        if not self._at:
            self._begin(data)
        opened, at = self._open, self._at
        while opened:
            top = opened[-1]
            at = self._elements(top, data, at) if top.types else self._fields(data, at)
            if opened and opened[-1] is top:
                break
        self._at = at
        if at > self._bytes_max:
            raise NoCallError(f"the call announces more than {self._bytes_max} bytes")
        if at and not opened and at <= len(data):
            return at
        if len(data) >= self._bytes_max:
            raise NoCallError(f"the call has more than {self._bytes_max} bytes, or ends too early")
        return None

    def _begin(self, data: bytes | bytearray) -> None:
        """Go over what comes before the arguments, if it is there."""
        if len(data) < _HEAD.size:
            return
        kind, length = _HEAD.unpack_from(data)
        if kind not in self._kinds or length > NAME_BYTES_MAX:
            if data.startswith(TLS_HANDSHAKE):
                raise TlsHelloError("the caller speaks TLS, and this port does not")
            raise NotThriftError("the call does not begin like a call of Thrift's binary protocol")
        self._at = _HEAD.size + length + 4
        self._open.append(_Open())

    def _fields(self, data: bytes | bytearray, at: int) -> int:
        """Go over fields, to the end of their struct or the beginning of what has values of its
        own; where the next step begins.
        """
        come = len(data)
        while at < come:
            kind = data[at]
            if size := _BYTES_OF[kind]:
                at += 3 + size
            elif kind == _STOP:
                self._open.pop()
                return at + 1
            elif at + 3 + _HEAD_BYTES.get(kind, 0) > come:
                break
            elif kind == _STRING:
                at += 7 + int(_WORD.unpack_from(data, at + 3)[0])
            else:
                depth = len(self._open)
                at = self._go_down(kind, data, at + 3)
                if len(self._open) > depth:
                    break
        return at

    def _elements(self, top: _Open, data: bytes | bytearray, at: int) -> int:
        """The same for the elements of a list or set, or for the keys and values of a map."""
        come = len(data)
        while top.left:
            kind = top.types[(top.left - 1) % len(top.types)]
            if at + _HEAD_BYTES.get(kind, 0) > come:
                return at
            top.left -= 1
            if kind == _STRING:
                at += 4 + int(_WORD.unpack_from(data, at)[0])
            elif kind in _BYTES:
                at += _BYTES[kind]
            else:
                depth = len(self._open)
                at = self._go_down(kind, data, at)
                if len(self._open) > depth:
                    return at
        self._open.pop()
        return at

    def _go_down(self, kind: int, data: bytes | bytearray, at: int) -> int:
        """Begin a struct, list, set or map; where what is in it begins, or what follows it.

        All of a list of numbers is passed over at once: the bytes of each are known.
        """
        self._containers_left -= 1
        self.made_bytes += OBJECT_BYTES
        if len(self._open) >= DEPTH_MAX:
            raise NoCallError(f"the call nests structs, lists and maps more than {DEPTH_MAX} deep")
        if self._containers_left < 0:
            raise NoCallError("the call has more structs, lists and maps than a call may have")
        if kind == _STRUCT:
            self._open.append(_Open())
            return at
        types: tuple[int, ...]
        count: int
        if kind == _MAP:
            keys, values, count = _PAIRS.unpack_from(data, at)
            types = values, keys
            at += _PAIRS.size
        elif kind in (_LIST, _SET):
            elements, count = _ELEMENTS.unpack_from(data, at)
            types = (elements,)
            at += _ELEMENTS.size
        else:
            raise NoCallError("the call has an unknown type")
        if not count:  # Some libraries know no types then.
            return at
        if any(each not in _BYTES_MIN for each in types):
            raise NoCallError("the call has an unknown type")
        bytes_min = count * sum(map(_BYTES_MIN.__getitem__, types))
        if bytes_min > self._bytes_max - at:
            raise NoCallError("the call announces more elements than it has bytes for")
        self.made_bytes += count * sum(_ELEMENT_BYTES.get(each, 0) for each in types)
        if all(each in _BYTES for each in types):
            return at + bytes_min
        self._open.append(_Open(types, count * len(types)))
        return at


def call_head(data: bytes) -> tuple[str, int] | None:
    """The method and the seqid of a call whose answer is waited for, by the bytes that it begins
    with; None if they are not there.
    """
    if len(data) < _HEAD.size:
        return None
    kind, length = _HEAD.unpack_from(data)
    end = _HEAD.size + length
    if kind != _CALL or length > NAME_BYTES_MAX or len(data) < end + 4:
        return None
    return data[_HEAD.size : end].decode("latin-1"), int(_SEQID.unpack_from(data, end)[0])


def check_call(data: bytes | bytearray, containers_max: int) -> None:
    """See that bytes are one call, from the first to the last, as `CallWalk` sees it.

    Raises:
        NoCallError: they are not.
    """
    if CallWalk(len(data), containers_max).end(data) != len(data):
        raise NoCallError("more bytes follow the end of the call")
