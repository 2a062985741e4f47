"""Generated batches, and how a batch that was written is read."""

from __future__ import annotations

import dataclasses
import struct
import zlib
from collections.abc import Sequence

from hypothesis import strategies as st

from hqueue.format import rowkey
from hqueue.format.cells import encode_bodies
from hqueue.format.compression import plain_cell
from hqueue.format.header import Bodies, Header, decode_header, encode_header
from hqueue.log import Batch
from hqueue.message import Message
from hqueue.settings.limits import MESSAGE_ID_MAX, PARTITIONS_MAX

from .extras import headers, keys

__all__ = [
    "ROW",
    "bodies_lists",
    "few_topics",
    "header_bytes",
    "lists_in",
    "messages",
    "partitions",
    "read",
    "read_bodies",
    "signed",
    "slots",
    "written",
]

partitions = st.integers(0, PARTITIONS_MAX - 1)
slots = st.integers(0, MESSAGE_ID_MAX)
topics = st.sampled_from(["a", "b", "ü", "topic", "x" * 255, "日本", "b\x00", "a:b"]) | st.text(
    st.characters(exclude_categories=("Cs",)), min_size=1, max_size=20
)


def messages_in(names: st.SearchStrategy[str], *, with_more: bool) -> st.SearchStrategy[Message]:
    """Messages in these topics, some of them with keys and headers if that is wanted."""
    more = (keys, headers) if with_more else ()
    drawn = st.tuples(names, st.binary(max_size=40), *more)
    return drawn.map(lambda fields: Message(*fields))


def lists_in(
    names: st.SearchStrategy[str], size_max: int, *, with_more: bool
) -> st.SearchStrategy[list[Message]]:
    each = messages_in(names, with_more=with_more)
    return st.lists(each, min_size=1, max_size=size_max)


def _of_any_format(
    names: st.SearchStrategy[str], size_max: int
) -> st.SearchStrategy[list[Message]]:
    return lists_in(names, size_max, with_more=False) | lists_in(names, size_max, with_more=True)


messages = messages_in(topics, with_more=True)
few_topics = _of_any_format(st.sampled_from(["a", "b", "c"]), 40)
bodies_lists = st.one_of(
    topics.flatmap(lambda topic: _of_any_format(st.just(topic), 100)),
    few_topics,
    _of_any_format(topics, 30),
)
"""Batches of both formats."""

ROW = rowkey.encode(7, 1_700_000_000_000 << 15)


def header_bytes(
    bodies: Bodies,
    row: bytes = ROW,
    *,
    base: int = 1_700_000_000_001 << 15,
    ordinal: int = 12,
    nonce: bytes = b"noncenon",
    published_ms: int = 1_700_000_000_001,
) -> bytes:
    return encode_header(
        row, bodies, base=base, ordinal=ordinal, nonce=nonce, published_ms=published_ms
    )


def signed(body: bytes, row: bytes = ROW) -> bytes:
    """A header with a checksum that fits, whatever is in it."""
    return body + struct.pack(">I", zlib.crc32(row + body))


def written(given: Sequence[Message]) -> tuple[Bodies, Header]:
    bodies = encode_bodies(given)
    return bodies, decode_header(ROW, header_bytes(bodies))


def read(given: Sequence[Message], start: int | None = None, stop: int | None = None) -> Batch:
    """The batch of these messages as a reader gives it, trimmed to some positions."""
    batch = read_bodies(encode_bodies(given))
    header = batch.header
    return dataclasses.replace(
        batch,
        start=batch.start if start is None else header.base + start,
        stop=batch.stop if stop is None else header.base + stop,
    )


def read_bodies(bodies: Bodies) -> Batch:
    """The batch of these bodies as a reader gives it."""
    header = decode_header(ROW, header_bytes(bodies))
    cells = tuple(
        (entry, plain_cell(ROW, header, entry, bodies.cells[entry.topic.encode()]))
        for entry in header.topics
    )
    return Batch(7, ROW, header, cells, header.base, header.end)
