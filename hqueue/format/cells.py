"""The cells of a batch's bodies, one a topic, as they are before they are compressed.

a cell of bodies, by its layout; int32 and uint32 are little-endian. In format 2 the columns of
keys and of headers, as `hqueue.format.columns` shows them, come before that.
 raw        the body of the topic's only message, as it is
 packed     int32 offsets [0, e1, …, en], then the bytes: Arrow's binary layout.
            The messages have the positions first, first + 1, …
 scattered  uint32 positions [p1, …, pn], ascending, then as packed
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import accumulate, islice, pairwise, starmap
from operator import itemgetter, lt
from typing import NamedTuple

from hqueue.errors import CorruptLogError, InvalidInputError, MessageTooLargeError
from hqueue.format.checksum import crc32
from hqueue.format.columns import (
    check_size,
    encode_headers,
    encode_keys,
    from_little_endian,
    parse_headers,
    parse_keys,
)
from hqueue.format.header import (
    CONTROL,
    FORMAT_1,
    FORMAT_2,
    PACKED,
    RAW,
    SCATTERED,
    Bodies,
    Header,
    TopicEntry,
    encode_columns,
    encode_entry,
    framing_bytes,
)
from hqueue.message import Headers, Message, Messages, check_headers_of, topic_bytes
from hqueue.runtime.pieces import join_in_pieces, list_in_pieces
from hqueue.settings.limits import BATCH_MESSAGES_MAX, TOPICS_PER_BATCH_MAX

__all__ = [
    "Column",
    "bodies_of",
    "check_cell",
    "check_count",
    "check_size",
    "control_record",
    "decode_bodies",
    "decode_headers",
    "decode_keys",
    "encode_bodies",
    "encode_message",
    "encode_values",
    "offsets_at",
    "positions",
]

CONTROL_BYTES_MAX = 64 * 1024


def encode_bodies(messages: Sequence[Message]) -> Bodies:
    """Pack messages, in their order.

    Raises:
        InvalidInputError: no messages, too many messages or topics, or something else than
            a `Message` among them.
        MessageTooLargeError: together they are larger than a batch may be.
    """
    if isinstance(messages, Messages):
        return encode_values(messages.topic, messages.values, messages.keys, messages.headers)
    messages = tuple(islice(messages, BATCH_MESSAGES_MAX + 1))  # Others may change theirs.
    check_count(len(messages))
    for kind in set(map(type, messages)):
        if not issubclass(kind, Message):
            raise InvalidInputError("a batch must consist of Message objects", type=kind.__name__)
    keys = list(map(_key_of, messages))
    headers = list(map(_headers_of, messages))
    return encode_values(
        list(map(_topic_of, messages)),
        list(map(_value_of, messages)),
        None if keys.count(None) == len(keys) else keys,
        headers if any(headers) else None,
    )


def encode_message(message: Message) -> Bodies:
    """One message as a batch."""
    if message.key is None and not message.headers:
        return _encode_value(message.topic, message.value)
    return encode_values(message.topic, (message.value,), (message.key,), (message.headers,))


def encode_values(
    topics: str | Sequence[str],
    values: Sequence[bytes],
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[Headers] | None = None,
) -> Bodies:
    """Pack values, in their order.

    Args:
        topics: the topic of each, or of all; as in a `Message`.
        values: the values.
        keys: the key of each, None where there is none; None if none has one.
        headers: the headers of each; None if none has any.

    Raises:
        InvalidInputError, MessageTooLargeError: as `encode_bodies`; or there are not as many of one
            as of another.
    """
    if len(values) == 1 and keys is None and headers is None:
        return _encode_value(topics if isinstance(topics, str) else topics[0], values[0])
    check_count(len(values))
    for name, column in (("topics", topics), ("keys", keys), ("headers", headers)):
        if column is not None and not isinstance(column, str) and len(column) != len(values):
            raise InvalidInputError(
                "the columns of a batch have different lengths: nothing was written",
                column=name,
                values=len(values),
                found=len(column),
            )
    if headers is not None:
        check_headers_of(headers)
    kinds = {topics} if isinstance(topics, str) else set(topics)
    if len(kinds) == 1:
        return bodies_of([_column(kinds.pop(), range(len(values)), values, keys, headers)])
    grouped: dict[str, list[int]] = {}
    for position, topic in enumerate(topics):
        grouped.setdefault(topic, []).append(position)
    return bodies_of(
        [
            _column(
                topic,
                indexes,
                [values[index] for index in indexes],
                None if keys is None else [keys[index] for index in indexes],
                None if headers is None else [headers[index] for index in indexes],
            )
            for topic, indexes in grouped.items()
        ]
    )


def _encode_value(topic: str, value: bytes) -> Bodies:
    """What `bodies_of` makes of one message. Most puts are of one, and these save a tenth."""
    name = topic_bytes(topic)
    check_size(len(value))
    entry = encode_entry(name, count=1, first=0, size=len(value), checksum=crc32(value), layout=RAW)
    return Bodies(1, {name: value}, entry)


_topic_of, _value_of, _key_of, _headers_of = map(itemgetter, range(4))


class Column(NamedTuple):
    """The bodies of one topic in a batch that is being made."""

    topic: str
    indexes: Sequence[int]
    """Their positions in the batch, ascending."""
    offsets: bytes | memoryview
    """Where each begins and ends in their bytes: int32, little-endian, from 0 to `size`."""
    data: Sequence[bytes | memoryview]
    """Their bytes, in any pieces."""
    size: int
    """How many bytes these are."""
    keys: bytes = b""
    """The column of their keys, as `hqueue.format.columns` shows it; empty if none has one."""
    headers: bytes = b""
    """The column of their headers, likewise."""

    @property
    def layout(self) -> int:
        if len(self.indexes) == 1:
            return RAW
        together = self.indexes[-1] - self.indexes[0] == len(self.indexes) - 1
        return PACKED if together else SCATTERED

    @property
    def cell_bytes(self) -> int:
        """The size of its cell."""
        columns = len(self.keys) + len(self.headers)
        return columns + self.size + framing_bytes(self.layout, len(self.indexes))

    def cell(self) -> bytes:
        """The bytes of its cell."""
        parts = [*self.data]
        if self.layout != RAW:
            parts.insert(0, self.offsets)
        if self.layout == SCATTERED:
            parts.insert(0, struct.pack(f"<{len(self.indexes)}I", *self.indexes))
        if self.keys or self.headers:
            parts[:0] = self.keys, self.headers
        return join_in_pieces(parts)


def _column(
    topic: str,
    indexes: Sequence[int],
    values: Sequence[bytes],
    keys: Sequence[bytes | None] | None,
    headers: Sequence[Headers] | None,
) -> Column:
    offsets = list_in_pieces(accumulate(map(len, values), initial=0))
    size = offsets[-1]
    check_size(size)
    return Column(
        topic,
        indexes,
        struct.pack(f"<{len(offsets)}i", *offsets),
        values,
        size,
        b"" if keys is None else encode_keys(keys),
        b"" if headers is None else encode_headers(headers),
    )


def bodies_of(columns: Sequence[Column]) -> Bodies:
    """The cells of these columns, which together have each position once, and their directory.

    Raises:
        InvalidInputError: there are too many topics, or a topic is out of range.
        MessageTooLargeError: together they are larger than a batch may be.
    """
    if len(columns) > TOPICS_PER_BATCH_MAX:
        raise InvalidInputError("a batch has at most 1024 topics", topics=len(columns))
    check_size(sum(column.cell_bytes for column in columns))
    version = FORMAT_2 if any(column.keys or column.headers for column in columns) else FORMAT_1
    cells: dict[bytes, bytes] = {}
    directory: list[bytes] = []
    for column in sorted(columns, key=lambda column: topic_bytes(column.topic)):
        name, cell = topic_bytes(column.topic), column.cell()
        cells[name] = cell
        directory.append(
            encode_entry(
                name,
                count=len(column.indexes),
                first=column.indexes[0],
                size=len(cell),
                checksum=crc32(cell),
                layout=column.layout,
                columns=encode_columns(version, len(column.keys), len(column.headers)),
            )
        )
    count = sum(len(column.indexes) for column in columns)
    return Bodies(count, cells, b"".join(directory), version=version)


def check_count(count: int) -> None:
    """Refuse a number of messages that a batch can't have."""
    if not count:
        raise InvalidInputError(
            "a batch needs at least one message: nothing was written; skip an empty batch",
            messages=count,
        )
    if count > BATCH_MESSAGES_MAX:
        raise InvalidInputError(
            "a batch has at most 65536 messages: nothing was written; give put and send_batch "
            "fewer, or send one by one with Producer.send, which cuts batches by itself",
            messages=count,
        )


def control_record(payload: bytes) -> Bodies:
    """A batch without messages. It covers one ID, so that its end lies beyond its slot."""
    if len(payload) > CONTROL_BYTES_MAX:
        raise MessageTooLargeError("a control record has at most 65536 bytes", bytes=len(payload))
    return Bodies(0, {}, b"", kind=CONTROL, control=payload)


def offsets_at(entry: TopicEntry) -> int:
    """Where the values' offsets begin in a cell that is not raw."""
    return entry.values_at + (4 * entry.count if entry.layout == SCATTERED else 0)


def check_cell(row: bytes, entry: TopicEntry, cell: bytes) -> None:
    """Compare a cell with what its header says of it.

    Of the offsets it looks at the first and the last only; the code that cuts the bodies out looks
    at each anyway.

    Raises:
        CorruptLogError: its size, checksum or offsets are off.
    """
    intact = len(cell) == entry.size and crc32(cell) == entry.checksum
    if intact and entry.layout != RAW:
        at = offsets_at(entry)
        data_at = at + 4 * (entry.count + 1)
        intact = (
            data_at <= len(cell)
            and cell[at : at + 4] == bytes(4)
            and int.from_bytes(cell[data_at - 4 : data_at], "little") == len(cell) - data_at
        )
    if not intact:
        raise CorruptLogError(
            "a topic's messages in a batch fail their checksum", row=row.hex(), topic=entry.topic
        )


def positions(header: Header, entry: TopicEntry, cell: bytes) -> Sequence[int]:
    """The positions in the batch of a cell's messages, ascending.

    Raises:
        CorruptLogError: they do not ascend, or lie beyond the batch.
    """
    if entry.layout != SCATTERED:
        return range(entry.first, entry.first + entry.count)
    found = from_little_endian("I", cell[entry.values_at : offsets_at(entry)])
    bounded = [entry.first - 1, *found, header.count]
    if found[0] != entry.first or not all(starmap(lt, pairwise(bounded))):
        raise CorruptLogError(
            "a topic's messages in a batch have impossible positions", topic=entry.topic
        )
    return found


def decode_bodies(entry: TopicEntry, cell: bytes) -> Iterator[bytes]:
    """The bodies of a cell that was checked, in their order, each cut out when it is taken.

    Raises:
        CorruptLogError: their offsets do not ascend. This is found before the first is given.
    """
    if entry.layout == RAW:
        return iter((cell[entry.values_at :],))
    at = offsets_at(entry)
    data_at = at + 4 * (entry.count + 1)
    offsets = from_little_endian("i", cell[at:data_at])
    if offsets != sorted(offsets):  # Of what is sorted already that costs next to nothing.
        raise CorruptLogError(
            "a topic's messages in a batch have impossible offsets", topic=entry.topic
        )
    data = cell[data_at:]
    return (data[start:stop] for start, stop in pairwise(offsets))


def decode_keys(entry: TopicEntry, cell: bytes) -> list[bytes | None] | None:
    """The keys of a cell that was checked, in their order; None if none of its messages has one.

    Raises:
        CorruptLogError: they can't be what a writer wrote.
    """
    if not entry.key_bytes:
        return None
    return parse_keys(cell[: entry.key_bytes], entry.count, entry.topic)


def decode_headers(entry: TopicEntry, cell: bytes) -> list[Headers] | None:
    """The headers of a cell's messages, likewise; None if none of them has any."""
    if not entry.header_bytes:
        return None
    return parse_headers(cell[entry.key_bytes : entry.values_at], entry.count, entry.topic)
