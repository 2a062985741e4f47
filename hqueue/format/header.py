"""A batch's header. Its numbers are big-endian.

    header
     offset  size  field
     0       2     magic              "HQ"
     2       1     format version     1, or 2 if a message has a key or headers
     3       1     kind               0 messages, 1 control
     4       1     flags              bits 0 to 3: codec of the cells, 0 none, 1 ZSTD; others 0
     5       1     reserved           0
     6       2     topics             entries of the directory
     8       8     base               MessageID of the first message
     16      4     span               IDs covered: [base, base + span)
     20      4     count              messages: the span, or 0 in a control record
     24      8     ordinal            messages that the partition had before this batch
     32      8     nonce              chosen by the writer: whose batch this is
     40      8     published_ms       the writer's clock
     48      4     control bytes      length of the payload for control, 0 where there is none
     52      …     directory          one entry a topic, ascending by the topic's bytes
             …     control            what hubs say, as `hqueue.format.control` shows it: a control
                                      record's payload, or by which owners the messages are
     -4      4     checksum           CRC-32 of the row key and of everything before

    an entry of the directory
     0       4     count              messages in this topic
     4       4     first              position in the batch of the first of them
     8       4     size               bytes of the cell, before it was compressed
     12      4     checksum           CRC-32 of the cell, before it was compressed
     16      1     layout             0 raw, 1 packed, 2 scattered
     17      1     length             bytes of the topic
     in format 2 only
     18      4     key bytes          of the cell's column of keys; 0 if it has none
     22      4     header bytes       of the cell's column of headers; 0 if it has none
     in both
             …     topic              UTF-8

The checksum takes the row key in, so that a header counts in its own row only.
"""

from __future__ import annotations

import dataclasses
import struct

from hqueue.errors import CorruptLogError, RequestRefusedError, UnsupportedFormatError
from hqueue.format import rowkey
from hqueue.format.checksum import crc32
from hqueue.settings.limits import BATCH_MESSAGES_MAX, MESSAGE_ID_MAX

__all__ = [
    "CONTROL",
    "FORMAT_1",
    "FORMAT_2",
    "MESSAGES",
    "NONCE_BYTES",
    "PACKED",
    "PLAIN",
    "RAW",
    "SCATTERED",
    "ZSTD",
    "Bodies",
    "Header",
    "TopicEntry",
    "decode_header",
    "encode_columns",
    "encode_entry",
    "encode_header",
    "framing_bytes",
]

FORMAT_1, FORMAT_2 = 1, 2
MESSAGES, CONTROL = 0, 1
PLAIN, ZSTD = 0, 1
RAW, PACKED, SCATTERED = 0, 1, 2
NONCE_BYTES = 8
EPOCH_MAX = 2**63 - 1
OWNERS_VERSION = 1
"""The format version of the owners' epochs in a header."""

_MAGIC = b"HQ"
_FIXED = struct.Struct(">2sBBBBHQIIQ8sQI")
_ENTRY = struct.Struct(">IIIIBB")
_COLUMNS = struct.Struct(">II")
_CHECKSUM = struct.Struct(">I")


def framing_bytes(layout: int, count: int) -> int:
    """How many bytes of a cell tell this many messages apart."""
    return {RAW: 0, PACKED: 4 * count + 4, SCATTERED: 8 * count + 4}[layout]


@dataclasses.dataclass(frozen=True, slots=True)
class TopicEntry:
    """A header's entry for one topic's cell. Counts are in messages, sizes in bytes.

    Size and checksum are those of the cell before it was compressed.
    """

    topic: str
    count: int
    first: int
    size: int
    checksum: int
    layout: int
    key_bytes: int = 0
    """The size of the topic's column of keys in bytes."""
    header_bytes: int = 0
    """The size of the topic's column of headers in bytes."""

    @property
    def values_at(self) -> int:
        """The offset in the cell at which the columns end and the values begin."""
        return self.key_bytes + self.header_bytes

    @property
    def value_bytes(self) -> int:
        """The size of its values in bytes, without the framing that separates them in the cell."""
        return self.size - self.values_at - framing_bytes(self.layout, self.count)


@dataclasses.dataclass(frozen=True, slots=True)
class Header:
    """A batch's header. Times are in milliseconds since the epoch; `base` is an ID as an
    integer.
    """

    base: int
    span: int
    count: int
    ordinal: int
    nonce: bytes
    published_ms: int
    topics: tuple[TopicEntry, ...] = ()
    kind: int = MESSAGES
    control: bytes = b""
    codec: int = PLAIN
    version: int = FORMAT_1

    @property
    def end(self) -> int:
        """The first ID after the batch, and the slot of the next batch."""
        return self.base + self.span

    @property
    def next_ordinal(self) -> int:
        """How many messages the partition had up to and including this batch."""
        return self.ordinal + self.count

    @property
    def owner_epochs(self) -> dict[str, int]:
        """The epoch of the owner that appended the messages of each topic; empty for a batch that
        no owner appended.

        Raises:
            UnsupportedFormatError: this release does not know the version of the epochs.
            CorruptLogError: the epochs are malformed; no owner writes such.
        """
        said = self.control
        if self.kind != MESSAGES or not said:
            return {}
        if said[0] != OWNERS_VERSION:
            raise UnsupportedFormatError(
                "unknown version of a batch's owner epochs; a newer release may read it",
                version=said[0],
            )
        if len(said) != 1 + 8 * len(self.topics):
            raise CorruptLogError("a batch's owner epochs are cut off")
        epochs = struct.unpack_from(f">{len(self.topics)}Q", said, 1)
        if max(epochs) > EPOCH_MAX:
            raise CorruptLogError("a batch has an owner epoch out of range")
        return {entry.topic: epoch for entry, epoch in zip(self.topics, epochs, strict=True)}

    @property
    def fingerprint(self) -> int:
        """A checksum of everything that the header says about the bodies, the same as
        `Bodies.fingerprint`.
        """
        directory = b"".join(
            encode_entry(
                entry.topic.encode(),
                count=entry.count,
                first=entry.first,
                size=entry.size,
                checksum=entry.checksum,
                layout=entry.layout,
                columns=encode_columns(self.version, entry.key_bytes, entry.header_bytes),
            )
            for entry in self.topics
        )
        return crc32(self.control, crc32(directory))


@dataclasses.dataclass(slots=True)
class Bodies:
    """Everything of a batch that does not depend on where it will lie.

    Never changed, though not frozen: that would cost a put of one message some microseconds.
    """

    count: int
    cells: dict[bytes, bytes]
    """The cells of family ``message``: each qualifier's value."""
    directory: bytes
    kind: int = MESSAGES
    control: bytes = b""
    codec: int = PLAIN
    """How the cells are compressed."""
    version: int = FORMAT_1
    """The version of the format: 2 if a message has a key or headers."""

    @property
    def size(self) -> int:
        """How many bytes the cells have, as they are."""
        return sum(map(len, self.cells.values()))

    @property
    def span(self) -> int:
        return self.count if self.kind == MESSAGES else 1

    @property
    def fingerprint(self) -> int:
        """A checksum of them; the same messages in the same order have the same."""
        return crc32(self.control, crc32(self.directory))


def encode_columns(version: int, key_bytes: int, header_bytes: int) -> bytes:
    """What an entry says of its columns in this version of the format."""
    return b"" if version == FORMAT_1 else _COLUMNS.pack(key_bytes, header_bytes)


def encode_entry(
    topic: bytes,
    *,
    count: int,
    first: int,
    size: int,
    checksum: int,
    layout: int,
    columns: bytes = b"",
) -> bytes:
    """The bytes of a `TopicEntry` in the directory; `columns` as `encode_columns` gives them."""
    return _ENTRY.pack(count, first, size, checksum, layout, len(topic)) + columns + topic


def encode_header(
    row: bytes, bodies: Bodies, *, base: int, ordinal: int, nonce: bytes, published_ms: int
) -> bytes:
    """The header's bytes for these bodies in this row.

    Raises:
        RequestRefusedError: its IDs lie beyond the last one that there is.
    """
    span = bodies.span
    if base + span > MESSAGE_ID_MAX:
        raise RequestRefusedError(
            "the batch's IDs lie beyond the last possible one: a clock, or a batch before it, is "
            "thousands of years ahead",
            row=row.hex(),
            base=base,
        )
    fixed = _FIXED.pack(
        _MAGIC,
        bodies.version,
        bodies.kind,
        bodies.codec,
        0,
        len(bodies.cells),
        base,
        span,
        bodies.count,
        ordinal,
        nonce,
        published_ms,
        len(bodies.control),
    )
    header = fixed + bodies.directory + bodies.control
    return header + _CHECKSUM.pack(crc32(header, crc32(row)))


def decode_header(row: bytes, data: bytes) -> Header:
    """Read a header from its row.

    Raises:
        UnsupportedFormatError: the format version, a flag or a layout is not known here.
        CorruptLogError: it isn't what a writer of a queue wrote. Both name the row.
    """
    if len(data) < _FIXED.size + _CHECKSUM.size or data[:2] != _MAGIC:
        raise CorruptLogError("this cell is not a batch header", row=row.hex())
    version = data[2]
    if version not in (FORMAT_1, FORMAT_2):
        raise UnsupportedFormatError(
            "unknown format version of a batch; a newer release may read it",
            row=row.hex(),
            version=version,
        )
    body = data[: -_CHECKSUM.size]
    if crc32(body, crc32(row)) != _CHECKSUM.unpack(data[-_CHECKSUM.size :])[0]:
        raise CorruptLogError("a batch header fails its checksum", row=row.hex())
    (_, _, kind, flags, spare, topics, base, span, count, ordinal, nonce, published_ms, control) = (
        _FIXED.unpack_from(data)
    )
    if kind not in (MESSAGES, CONTROL) or flags not in (PLAIN, ZSTD) or spare:
        raise UnsupportedFormatError(
            "unknown kind or flags of a batch; a newer release may read it",
            row=row.hex(),
            kind=kind,
            flags=flags,
            reserved=spare,
        )
    _, slot = rowkey.decode(row)
    entries = []
    at, name_before = _FIXED.size, b""
    orderly = True  # Each topic comes once and in its place, and has messages within the batch.
    try:
        for _ in range(topics):
            number, first, size, checksum, layout, length = _ENTRY.unpack_from(body, at)
            at += _ENTRY.size
            columns = (0, 0)
            if version != FORMAT_1:
                columns = _COLUMNS.unpack_from(body, at)
                at += _COLUMNS.size
            at += length
            if layout not in (RAW, PACKED, SCATTERED):
                raise UnsupportedFormatError(
                    "unknown layout of a cell; a newer release may read it",
                    row=row.hex(),
                    layout=layout,
                )
            name = struct.unpack_from(f"{length}s", body, at - length)[0]
            orderly &= name_before < name and 0 < number <= count - first
            orderly &= layout != RAW or number == 1
            orderly &= sum(columns) + framing_bytes(layout, number) <= size
            name_before = name
            entry = TopicEntry(name.decode(), number, first, size, checksum, layout, *columns)
            entries.append(entry)
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
        flags,
        version,
    )
    consistent = (
        len(header.control) == control
        and slot <= base
        and header.end <= MESSAGE_ID_MAX
        and (
            span == count == sum(entry.count for entry in entries) <= BATCH_MESSAGES_MAX and orderly
            if kind == MESSAGES
            else span == 1 and count == 0 and not entries
        )
    )
    if not consistent:
        raise CorruptLogError("a batch header contradicts itself", row=row.hex())
    return header
