"""The codecs: what is written is read, and what nobody wrote is an error that names the row."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hqueue import CorruptLogError, Message, MessageID
from hqueue.consume.arrow import SCHEMA, record_batch
from hqueue.consume.decode import messages_of
from hqueue.format import rowkey
from hqueue.format.cells import control_record, encode_bodies
from hqueue.format.compression import plain_cell
from hqueue.format.header import Header, decode_header, encode_header
from hqueue.log import Batch
from hqueue.settings.limits import MESSAGE_ID_MAX, PARTITIONS_MAX

partitions = st.integers(0, PARTITIONS_MAX - 1)
ids = st.integers(0, MESSAGE_ID_MAX)
slots = st.tuples(partitions, ids)
topics = st.sampled_from(["a", "b", "with:colon", "ünïcode", "x" * 255])
messages = st.tuples(topics, st.binary(max_size=40)).map(lambda drawn: Message(*drawn))
batches = st.lists(messages, min_size=1, max_size=40)
bases = st.integers(0, MESSAGE_ID_MAX - 100)
batch_places = st.tuples(partitions, bases)


def written(
    sent: list[Message], slot: tuple[int, int] = (1, 5), base: int = 900, ordinal: int = 3
) -> tuple[bytes, bytes, dict[bytes, bytes]]:
    """Row key, header and cells of a batch."""
    row = rowkey.encode(*slot)
    bodies = encode_bodies(sent)
    header = encode_header(
        row, bodies, base=base, ordinal=ordinal, nonce=b"12345678", published_ms=77
    )
    return row, header, bodies.cells


def read(
    sent: list[Message], slot: tuple[int, int], base: int, start: int, stop: int
) -> tuple[Batch, Header]:
    """What a reader gets of a batch."""
    row, data, cells = written(sent, slot, base)
    header = decode_header(row, data)
    found = tuple(
        (entry, plain_cell(row, header, entry, cells[entry.topic.encode()]))
        for entry in header.topics
    )
    return Batch(slot[0], row, header, found, start, stop), header


@given(slots, slots)
def test_row_keys_sort_as_partition_and_id_do(one: tuple[int, int], other: tuple[int, int]) -> None:
    assert (rowkey.encode(*one) < rowkey.encode(*other)) == (one < other)


@given(slots)
def test_row_keys_come_back(slot: tuple[int, int]) -> None:
    assert rowkey.decode(rowkey.encode(*slot)) == slot


@given(st.binary(max_size=20))
def test_any_row_key_is_read_or_refused(row: bytes) -> None:
    try:
        slot = rowkey.decode(row)
    except CorruptLogError:
        return
    assert rowkey.encode(*slot) == row


def test_a_refused_row_key_is_named() -> None:
    with pytest.raises(CorruptLogError) as raised:
        rowkey.decode(b"abc")
    assert raised.value.row == "616263"


@given(batches, batch_places, bases)
def test_messages_come_back_with_their_ids(
    sent: list[Message], slot: tuple[int, int], base: int
) -> None:
    base = max(base, slot[1])
    batch, header = read(sent, slot, base, 0, MESSAGE_ID_MAX + 1)
    got = messages_of(batch)
    assert [(m.topic, m.value) for m in got] == [(m.topic, m.value) for m in sent]
    assert [m.id for m in got] == list(range(base, base + len(sent)))
    assert all(type(m.id) is MessageID and m.partition == slot[0] for m in got)
    assert (header.count, header.end) == (len(sent), base + len(sent))


@given(batches, bases, st.integers(-2, 45), st.integers(-2, 45))
def test_arrow_and_messages_agree_also_on_a_part(
    sent: list[Message], base: int, low: int, high: int
) -> None:
    start, stop = max(base, base + low), min(base + len(sent), base + high)
    batch, _ = read(sent, (7, 0), base, start, stop)
    got = messages_of(batch)
    table = record_batch([batch, batch])
    table.validate(full=True)
    assert table.schema == SCHEMA
    once = [(m.partition, m.id, m.topic, m.value) for m in got]
    columns = (table.column(name).to_pylist() for name in ("partition", "id", "topic", "value"))
    assert list(zip(*columns, strict=True)) == once * 2
    assert table.column("timestamp").cast(pa.int64()).to_pylist() == [
        m.id.timestamp for m in got + got
    ]


def test_arrow_and_messages_agree_on_large_batches() -> None:
    sent = [Message("ab"[n % 3 == 0], bytes([n % 256]) * (n % 5)) for n in range(1_000)]
    batch, _ = read(sent, (7, 0), 1 << 40, (1 << 40) + 10, (1 << 40) + 990)
    got = messages_of(batch)
    assert record_batch([batch]).column("value").to_pylist() == [m.value for m in got]
    assert [m.value for m in got] == [m.value for m in sent[10:990]]


@given(st.binary(max_size=120))
def test_random_bytes_are_refused_as_a_header(data: bytes) -> None:
    for header in (data, b"HQ" + data, b"HQ\x01" + data):
        with pytest.raises(CorruptLogError):
            decode_header(rowkey.encode(0, 0), header)


@given(st.binary(max_size=100), batch_places, bases)
def test_control_records_come_back(payload: bytes, slot: tuple[int, int], base: int) -> None:
    row, base = rowkey.encode(*slot), max(base, slot[1])
    data = encode_header(
        row, control_record(payload), base=base, ordinal=4, nonce=bytes(8), published_ms=1
    )
    header = decode_header(row, data)
    assert header.control == payload
    assert (header.count, header.end, header.next_ordinal) == (0, base + 1, 4)
