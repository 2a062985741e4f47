"""Record batches that are put: the same bytes as of the same messages, and clear errors."""

from __future__ import annotations

import contextlib
import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hqueue.consume.arrow import record_batch
from hqueue.errors import InvalidInputError, MessageTooLargeError
from hqueue.format.arrow import (
    HEADERS,
    distinct_keys,
    encode_arrow,
    encode_record_batch,
    without_headers,
)
from hqueue.format.cells import encode_bodies
from hqueue.message import Message
from hqueue.settings.limits import BATCH_BYTES_MAX, BATCH_MESSAGES_MAX, TOPICS_PER_BATCH_MAX
from tests.support.backends import MemoryBackend
from tests.support.batches import bodies_lists, read

TOPICS = st.sampled_from(
    [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
)
VALUES = st.sampled_from([pa.binary(), pa.large_binary(), pa.binary_view()])
PAIR = [pa.field("name", pa.large_string()), pa.field("value", pa.large_binary())]
HEADER_LISTS = st.sampled_from([HEADERS, pa.list_(pa.struct(PAIR)), pa.large_list(pa.struct(PAIR))])


def batch_of(
    messages: list[Message],
    topic: pa.DataType | None = None,
    value: pa.DataType | None = None,
    headers: pa.DataType | None = None,
) -> pa.RecordBatch:
    topics = pa.array([message.topic for message in messages], pa.string())
    return pa.record_batch(
        {
            "topic": topics.cast(topic) if topic else topics,
            "value": pa.array([message.value for message in messages], value or pa.binary()),
            "key": pa.array([message.key for message in messages], value or pa.binary()),
            "headers": pa.array([message.headers for message in messages], headers or HEADERS),
        }
    )


@given(bodies_lists, TOPICS, VALUES, HEADER_LISTS)
def test_the_bytes_are_those_of_the_same_messages(
    messages: list[Message], topic: pa.DataType, value: pa.DataType, headers: pa.DataType
) -> None:
    batch = batch_of(messages, topic, value, headers)
    assert encode_record_batch(batch) == encode_bodies(messages)


@given(bodies_lists, st.integers(1, 5))
def test_a_table_of_chunks_is_one_batch(messages: list[Message], size: int) -> None:
    batch = batch_of(messages)
    chunks = [batch.slice(start, size) for start in range(0, len(messages), size)]
    assert encode_arrow(pa.Table.from_batches(chunks)) == encode_bodies(messages)


@given(bodies_lists)
def test_the_distinct_keys_are_those_of_the_messages(messages: list[Message]) -> None:
    for kind in (pa.binary(), pa.large_binary(), pa.binary_view()):
        batch = batch_of(messages, value=kind)
        assert set(distinct_keys(batch)) == {message.key for message in messages}


def test_distinct_keys_that_are_texts_are_their_bytes() -> None:
    texts = pa.array(["ü", "a", "ü"])
    for keys in (texts, texts.cast(pa.string_view()), texts.dictionary_encode(), pa.nulls(3)):
        found = set(distinct_keys(pa.record_batch({"key": keys})))
        assert found == ({"ü".encode(), b"a"} if keys.type != pa.null() else {None})


def test_what_is_null_takes_no_part() -> None:
    plain = [Message("t", b"1"), Message("t", b"2")]
    batch = batch_of(plain)
    garbage = pa.Array.from_buffers(
        pa.binary(), 2, [pa.py_buffer(b"\x02"), pa.py_buffer(struct.pack("<3i", 0, 3, 4)),
                         pa.py_buffer(b"xyzk")],
    )  # fmt: skip
    keyed = batch.set_column(2, "key", garbage)
    assert encode_record_batch(keyed) == encode_bodies([plain[0], Message("t", b"2", b"k")])
    nothing = pa.nulls(2, pa.null())
    without = batch.set_column(2, "key", nothing).set_column(3, "headers", nothing)
    assert encode_record_batch(without) == encode_bodies(plain)


@given(bodies_lists, st.data())
def test_a_slice_of_a_record_batch_is_taken_as_such(
    messages: list[Message], data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(messages) - 1))
    stop = data.draw(st.integers(start + 1, len(messages)))
    part = batch_of(messages).slice(start, stop - start)
    assert encode_record_batch(part) == encode_bodies(messages[start:stop])


@given(bodies_lists)
def test_what_was_read_as_arrow_can_be_written_again(messages: list[Message]) -> None:
    assert encode_record_batch(record_batch([read(messages)])) == encode_bodies(messages)


def test_text_and_fixed_size_values_are_taken_as_their_bytes() -> None:
    expected = encode_bodies([Message("t", b"ab"), Message("t", "ü".encode())])
    for kind in (pa.string(), pa.large_string()):
        values = pa.array(["ab", "ü"], kind)
        assert encode_record_batch(
            pa.record_batch([pa.array(["t", "t"]), values], names=["topic", "value"])
        ) == expected  # fmt: skip
    fixed = pa.array([b"ab", "ü".encode()], pa.binary(2))
    batch = pa.record_batch([pa.array(["t", "t"]), fixed], names=["topic", "value"])
    assert encode_record_batch(batch) == expected


TOPIC, VALUE = pa.array(["t"]), pa.array([b"v"])


@pytest.mark.parametrize(
    ("columns", "names"),
    [
        ([VALUE], ["value"]),
        ([TOPIC], ["topic"]),
        ([TOPIC, TOPIC, VALUE], ["topic", "topic", "value"]),
        ([VALUE, VALUE], ["topic", "value"]),
        ([TOPIC, pa.array([1])], ["topic", "value"]),
        ([pa.array([1]), VALUE], ["topic", "value"]),
        ([pa.array([None], pa.string()), VALUE], ["topic", "value"]),
        ([TOPIC, pa.array([None], pa.binary())], ["topic", "value"]),
        ([pa.array([""]), VALUE], ["topic", "value"]),
        ([pa.array(["t" * 256]), VALUE], ["topic", "value"]),
        ([TOPIC.slice(1), VALUE.slice(1)], ["topic", "value"]),
        ([TOPIC, VALUE, pa.array([1])], ["topic", "value", "key"]),
        ([TOPIC, VALUE, VALUE, VALUE], ["topic", "value", "key", "key"]),
        ([TOPIC, VALUE, VALUE], ["topic", "value", "headers"]),
        ([TOPIC, VALUE, pa.array([["h"]])], ["topic", "value", "headers"]),
        (
            [TOPIC, VALUE, pa.array([[("h", b"v")]], pa.map_(pa.string(), pa.binary()))],
            ["topic", "value", "headers"],
        ),
        ([TOPIC, VALUE, pa.array([[{"a": "h"}]])], ["topic", "value", "headers"]),
        ([TOPIC, VALUE, pa.array([[{"a": "h", "b": 1}]])], ["topic", "value", "headers"]),
        ([TOPIC, VALUE, pa.array([[{"a": 1, "b": b"v"}]])], ["topic", "value", "headers"]),
        ([TOPIC, VALUE, pa.array([[None, {"a": "h", "b": b"v"}]])], ["topic", "value", "headers"]),
        (
            [TOPIC, VALUE, pa.array([[{"a": "h", "b": None}, {"a": "h", "b": b"v"}]])],
            ["topic", "value", "headers"],
        ),
    ],
)
def test_what_are_no_messages_is_refused(columns: list[pa.Array], names: list[str]) -> None:
    with pytest.raises(InvalidInputError):
        encode_record_batch(pa.record_batch(columns, names=names))


def test_the_bounds_are_those_of_any_batch() -> None:
    message = Message("t", b"")
    assert encode_record_batch(batch_of([message] * BATCH_MESSAGES_MAX)).count == BATCH_MESSAGES_MAX
    with pytest.raises(InvalidInputError):
        encode_record_batch(batch_of([message] * (BATCH_MESSAGES_MAX + 1)))
    with pytest.raises(InvalidInputError):
        encode_record_batch(
            batch_of([Message(f"t{n}", b"") for n in range(TOPICS_PER_BATCH_MAX + 1)])
        )
    half = Message("t", bytes(BATCH_BYTES_MAX // 2))
    with pytest.raises(MessageTooLargeError):
        encode_record_batch(batch_of([half, half]))


def test_a_slice_weighs_what_is_in_it_and_not_what_lies_before() -> None:
    whole = pa.record_batch(
        {"topic": ["t", "t"], "value": pa.array([b"x" * BATCH_BYTES_MAX, b"small"], pa.binary())}
    )
    assert encode_record_batch(whole.slice(1)) == encode_bodies([Message("t", b"small")])


@pytest.mark.parametrize(
    ("size", "buffer", "at"), [(5_000, 0, 0), (20, 7, 0), (20, 0, 1_000), (-5, 0, 0)]
)
@pytest.mark.parametrize("column", ["topic", "value", "key", "name", "header", "dictionary"])
@pytest.mark.parametrize("table", [False, True])
def test_a_view_of_bytes_that_are_not_there_is_refused(
    column: str, size: int, buffer: int, at: int, table: bool
) -> None:
    kind = pa.string_view() if column in ("topic", "name", "dictionary") else pa.binary_view()
    views = bytearray(struct.pack("<i12s", 1, b"a") * 2)
    lying = pa.Array.from_buffers(kind, 2, [None, pa.py_buffer(views), pa.py_buffer(b"a" * 20)])
    views[16:] = struct.pack("<i4sii", size, b"aaaa", buffer, at)
    columns = {"topic": pa.array(["a", "a"]), "value": pa.array([b"1", b"2"])}
    names, values = columns["topic"], columns["value"]
    if column in ("name", "header"):
        pair = [lying, values] if column == "name" else [names, lying]
        pairs = pa.StructArray.from_arrays(pair, names=["name", "value"])
        columns["headers"] = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), pairs)
    elif column == "dictionary":
        columns["topic"] = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), lying)
    else:
        columns[column] = lying
    with pytest.raises(InvalidInputError):
        encode_arrow(pa.table(columns) if table else pa.record_batch(columns))


ANY_TYPE = [
    *(pa.int64(), pa.bool_(), pa.null(), pa.decimal128(5), pa.duration("s"), pa.struct([])),
    *(pa.binary(3), pa.list_(pa.binary()), pa.map_(pa.string(), pa.binary())),
    *(pa.dictionary(pa.int8(), pa.int64()), pa.dictionary(pa.int8(), pa.string_view())),
    *(pa.dictionary(pa.int64(), pa.binary()), pa.run_end_encoded(pa.int32(), pa.string())),
    pa.list_(pa.struct([("name", pa.int8()), ("value", pa.binary())])),
]


@pytest.mark.parametrize("kind", ANY_TYPE, ids=str)
@pytest.mark.parametrize("column", ["topic", "value", "key", "headers"])
def test_a_column_of_any_type_is_taken_or_refused_by_an_error_of_ours(
    column: str, kind: pa.DataType
) -> None:
    columns = {
        "topic": pa.array(["a", "b"]),
        "value": pa.array([b"1", b"2"]),
        "key": pa.array([b"k", None]),
        "headers": pa.array([[("n", b"v")], None], HEADERS),
    }
    columns[column] = pa.nulls(2, kind)
    with MemoryBackend().connect() as client, contextlib.suppress(InvalidInputError):
        queue = client.create_queue("q", partitions=2)
        queue.put(pa.record_batch(columns))
        read_back = list(queue.scan())
        assert [each.value for each in read_back] == [b"1", b"2"]
        assert column in ("key", "headers")


def test_headers_whose_parts_have_one_name_are_put_again_without_the_systems_own() -> None:
    parts = [pa.array(["hqueue.number", "n"]), pa.array([b"1", b"v"])]
    pairs = pa.StructArray.from_arrays(parts, names=["part", "part"])
    batch = pa.record_batch(
        {
            "topic": pa.array(["a"]),
            "value": pa.array([b"1"]),
            "headers": pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), pairs),
        }
    )
    kept = without_headers(batch, lambda name: name.startswith("hqueue."))
    assert encode_record_batch(kept) == encode_bodies([Message("a", b"1", None, [("n", b"v")])])
