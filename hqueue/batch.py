"""Batches: the bytes of a header and of the bodies.

A batch is one row. Its header lies in ``log:batch``, the bodies of each of its topics in
``message:<topic>``. Numbers of the header are big-endian.

    header
     offset  size  field
     0       2     magic              "HQ"
     2       1     format version     1
     3       1     kind               0 messages, 1 control
     4       1     flags              bits 0 to 3: codec of the bodies (0 none); others 0
     5       1     reserved           0
     6       2     topics             entries of the directory
     8       8     base               MessageID of the first message
     16      4     span               IDs covered: [base, base + span)
     20      4     count              messages: the span, or 0 in a control record
     24      8     ordinal            messages that the partition had before this batch
     32      8     nonce              chosen by the writer: whose batch this is
     40      8     published_ms       the writer's clock
     48      4     control bytes      length of the control record's payload
     52      …     directory          one entry a topic, ascending by the topic's bytes
             …     control            the payload of a control record
     -4      4     checksum           CRC-32 of the row key and of everything before

    an entry of the directory
     0       4     count              messages in this topic
     4       4     first              position in the batch of the first of them
     8       4     size               bytes of the cell
     12      4     checksum           CRC-32 of the cell
     16      1     layout             0 raw, 1 packed, 2 scattered
     17      1     length             bytes of the topic
     18      …     topic              UTF-8

    a cell of bodies, by its layout; int32 and uint32 are little-endian
     raw        the body of the topic's only message, as it is
     packed     int32 offsets [0, e1, …, en], then the bytes: Arrow's binary layout.
                The messages have the positions first, first + 1, …
     scattered  uint32 positions [p1, …, pn], ascending, then as packed

A message's ID is the base plus its position. The checksum takes the row key in, so that a header
counts in its own row only. An unknown version, flag or layout is an `UnsupportedFormatError`.
"""

from __future__ import annotations

import dataclasses
import struct
import sys
import zlib
from array import array
from collections.abc import Sequence
from itertools import accumulate, pairwise
from operator import itemgetter

from hqueue.errors import (
    CorruptLogError,
    InvalidInputError,
    MessageTooLargeError,
    UnsupportedFormatError,
)
from hqueue.limits import (
    BATCH_BYTES_MAX,
    BATCH_MESSAGES_MAX,
    MESSAGE_ID_MAX,
    TOPICS_PER_BATCH_MAX,
)
from hqueue.message import Message, topic_bytes

__all__ = [
    "CONTROL",
    "FORMAT_VERSION",
    "MESSAGES",
    "PACKED",
    "RAW",
    "SCATTERED",
    "Bodies",
    "Header",
    "TopicEntry",
    "control_record",
    "decode_bodies",
    "decode_header",
    "encode_bodies",
    "encode_header",
    "positions",
]

FORMAT_VERSION = 1
MESSAGES, CONTROL = 0, 1
RAW, PACKED, SCATTERED = 0, 1, 2
CONTROL_BYTES_MAX = 64 * 1024

_MAGIC = b"HQ"
_FIXED = struct.Struct(">2sBBBBHQIIQ8sQI")
_ENTRY = struct.Struct(">IIIIBB")
_CHECKSUM = struct.Struct(">I")
NONCE_BYTES = 8


@dataclasses.dataclass(frozen=True, slots=True)
class TopicEntry:
    """What a header says of one topic's cell. Counts in messages, size in bytes."""

    topic: str
    count: int
    first: int
    size: int
    checksum: int
    layout: int


@dataclasses.dataclass(frozen=True, slots=True)
class Header:
    """A batch's header. Times in milliseconds since the epoch, `base` as an integer ID."""

    base: int
    span: int
    count: int
    ordinal: int
    nonce: bytes
    published_ms: int
    topics: tuple[TopicEntry, ...] = ()
    kind: int = MESSAGES
    control: bytes = b""

    @property
    def end(self) -> int:
        """The first ID beyond the batch, and the slot of the batch after it."""
        return self.base + self.span

    @property
    def next_ordinal(self) -> int:
        """How many messages the partition had with this batch."""
        return self.ordinal + self.count


@dataclasses.dataclass(frozen=True, slots=True)
class Bodies:
    """Everything of a batch that does not depend on where it will lie."""

    count: int
    cells: dict[bytes, bytes]
    """Qualifier to value, in family ``message``."""
    directory: bytes
    kind: int = MESSAGES
    control: bytes = b""

    @property
    def span(self) -> int:
        return self.count if self.kind == MESSAGES else 1


def encode_bodies(messages: Sequence[Message]) -> Bodies:
    """Pack messages, in their order.

    Raises:
        InvalidInputError: no messages, too many messages or topics, or something else than
            a `Message` among them.
        MessageTooLargeError: together they are larger than a batch may be.
    """
    count = len(messages)
    if not 1 <= count <= BATCH_MESSAGES_MAX:
        raise InvalidInputError(
            "a batch has 1 to 65536 messages; a Producer cuts batches by itself", messages=count
        )
    for kind in set(map(type, messages)):
        if not issubclass(kind, Message):
            raise InvalidInputError("a batch consists of Message objects", type=kind.__name__)
    topics = set(map(_topic_of, messages))
    cells: dict[bytes, bytes] = {}
    entries: list[bytes] = []
    if len(topics) == 1:
        _add_cell(cells, entries, topics.pop(), list(map(_value_of, messages)), None)
    else:
        if len(topics) > TOPICS_PER_BATCH_MAX:
            raise InvalidInputError("a batch has at most 1024 topics", topics=len(topics))
        grouped: dict[str, list[int]] = {}
        for position, message in enumerate(messages):
            grouped.setdefault(message[0], []).append(position)
        for topic in sorted(grouped, key=topic_bytes):
            places = grouped[topic]
            _add_cell(cells, entries, topic, [messages[place][1] for place in places], places)
    size = sum(map(len, cells.values()))
    if size > BATCH_BYTES_MAX:
        raise MessageTooLargeError(
            "the batch is larger than a batch may be; a Producer cuts batches by itself",
            bytes=size,
            bytes_max=BATCH_BYTES_MAX,
        )
    return Bodies(count, cells, b"".join(entries))


_topic_of = itemgetter(0)
_value_of = itemgetter(1)


def _add_cell(
    cells: dict[bytes, bytes],
    entries: list[bytes],
    topic: str,
    values: list[bytes],
    places: list[int] | None,
) -> None:
    count, first, layout = len(values), places[0] if places else 0, PACKED
    if count == 1:
        cell, layout = values[0], RAW
    else:
        parts = [_little_endian(array("i", accumulate(map(len, values), initial=0)))]
        if places is not None and places[-1] - first != count - 1:
            layout = SCATTERED
            parts.insert(0, _little_endian(array("I", places)))
        cell = b"".join([*parts, *values])
    name = topic_bytes(topic)
    cells[name] = cell
    checksum = zlib.crc32(cell)
    entries.append(_ENTRY.pack(count, first, len(cell), checksum, layout, len(name)) + name)


def control_record(payload: bytes) -> Bodies:
    """A batch without messages. It covers one ID, so that its end lies beyond its slot."""
    if len(payload) > CONTROL_BYTES_MAX:
        raise MessageTooLargeError("a control record has at most 65536 bytes", bytes=len(payload))
    return Bodies(0, {}, b"", kind=CONTROL, control=payload)


def encode_header(
    row: bytes, bodies: Bodies, *, base: int, ordinal: int, nonce: bytes, published_ms: int
) -> bytes:
    """The header's bytes for these bodies in this row."""
    fixed = _FIXED.pack(
        _MAGIC,
        FORMAT_VERSION,
        bodies.kind,
        0,
        0,
        len(bodies.cells),
        base,
        bodies.span,
        bodies.count,
        ordinal,
        nonce,
        published_ms,
        len(bodies.control),
    )
    header = fixed + bodies.directory + bodies.control
    return header + _CHECKSUM.pack(zlib.crc32(header, zlib.crc32(row)))


def decode_header(row: bytes, data: bytes) -> Header:
    """Read a header from its row.

    Raises:
        UnsupportedFormatError: the format version, a flag or a layout is not known here.
        CorruptLogError: it isn't what a writer of a queue wrote. Both name the row.
    """
    if len(data) < _FIXED.size + _CHECKSUM.size or data[:2] != _MAGIC:
        raise CorruptLogError("this cell is no batch header", row=row.hex())
    if data[2] != FORMAT_VERSION:
        raise UnsupportedFormatError(
            "unknown format version of a batch; a newer release may read it",
            row=row.hex(),
            version=data[2],
        )
    body = data[: -_CHECKSUM.size]
    if zlib.crc32(body, zlib.crc32(row)) != _CHECKSUM.unpack(data[-_CHECKSUM.size :])[0]:
        raise CorruptLogError("a batch header fails its checksum", row=row.hex())
    (_, _, kind, flags, spare, topics, base, span, count, ordinal, nonce, published_ms, control) = (
        _FIXED.unpack_from(data)
    )
    if kind not in (MESSAGES, CONTROL) or flags or spare:
        raise UnsupportedFormatError(
            "unknown kind or flags of a batch; a newer release may read it",
            row=row.hex(),
            kind=kind,
            flags=flags,
            reserved=spare,
        )
    entries = []
    at = _FIXED.size
    try:
        for _ in range(topics):
            number, first, size, checksum, layout, length = _ENTRY.unpack_from(body, at)
            at += _ENTRY.size + length
            if layout not in (RAW, PACKED, SCATTERED):
                raise UnsupportedFormatError(
                    "unknown layout of a cell; a newer release may read it",
                    row=row.hex(),
                    layout=layout,
                )
            name = struct.unpack_from(f"{length}s", body, at - length)[0]
            entries.append(TopicEntry(name.decode(), number, first, size, checksum, layout))
    except (struct.error, UnicodeDecodeError) as exc:
        raise CorruptLogError("a batch header's directory is cut off", row=row.hex()) from exc
    header = Header(
        base,
        span,
        count,
        ordinal,
        nonce,
        published_ms,
        tuple(entries),
        kind,
        body[at:],
    )
    consistent = (
        len(header.control) == control
        and header.end <= MESSAGE_ID_MAX
        and (
            span == count == sum(entry.count for entry in entries) > 0
            if kind == MESSAGES
            else span == 1 and count == 0 and not entries
        )
    )
    if not consistent:
        raise CorruptLogError("a batch header contradicts itself", row=row.hex())
    return header


def _offsets_at(entry: TopicEntry) -> int:
    return 4 * entry.count if entry.layout == SCATTERED else 0


def check_cell(row: bytes, entry: TopicEntry, cell: bytes) -> None:
    """Compare a cell with what its header says of it.

    Raises:
        CorruptLogError: its size, checksum or offsets are off.
    """
    intact = len(cell) == entry.size and zlib.crc32(cell) == entry.checksum
    if intact and entry.layout != RAW:
        data_at = _offsets_at(entry) + 4 * (entry.count + 1)
        intact = data_at <= len(cell) and (
            int.from_bytes(cell[data_at - 4 : data_at], "little") == len(cell) - data_at
        )
    elif intact:
        intact = entry.count == 1
    if not intact:
        raise CorruptLogError("the bodies fail their checksum", row=row.hex(), topic=entry.topic)


def positions(entry: TopicEntry, cell: bytes) -> Sequence[int]:
    """The positions in the batch of a cell's messages, ascending."""
    if entry.layout == SCATTERED:
        return _from_little_endian("I", cell[: 4 * entry.count])
    return range(entry.first, entry.first + entry.count)


def decode_bodies(entry: TopicEntry, cell: bytes) -> list[bytes]:
    """The bodies of a cell that was checked, in their order."""
    if entry.layout == RAW:
        return [cell]
    at = _offsets_at(entry)
    data_at = at + 4 * (entry.count + 1)
    offsets = _from_little_endian("i", cell[at:data_at])
    data = cell[data_at:]
    return [data[start:stop] for start, stop in pairwise(offsets)]


def _little_endian(numbers: array[int]) -> bytes:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def _from_little_endian(code: str, data: bytes) -> list[int]:
    numbers = array(code, data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tolist()
