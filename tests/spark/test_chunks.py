"""What a task is given is cut into the same chunks, however it is handed over."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hqueue import InvalidInputError, Message
from hqueue.format.arrow import encode_record_batch
from hqueue.settings.limits import HEADER_ROOM_BYTES
from pyspark_hqueue.writing import chunks
from pyspark_hqueue.writing.chunks import ANY, Chunk, Chunks, largest_row

PARTITIONS = 3
SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("value", pa.binary()),
        ("key", pa.string()),
        ("partition", pa.int32()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
Fields = tuple[str, bytes, bytes | None, tuple[tuple[str, bytes], ...]]

rows = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]),
        st.binary(max_size=30),
        st.one_of(st.none(), st.sampled_from(["", "k", "ü"])),
        st.one_of(st.none(), st.integers(0, PARTITIONS - 1)),
        st.one_of(
            st.none(),
            st.lists(st.tuples(st.sampled_from(["", "n", "ü"]), st.binary(max_size=9)), max_size=3),
        ),
    ),
    max_size=80,
)


def frame(some: Sequence[tuple[Any, ...]], schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    columns = list(zip(*some, strict=True)) or [()] * len(schema)
    arrays = [pa.array(c, field.type) for c, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def cut(pieces: Sequence[pa.RecordBatch], topic: str | None = None) -> list[Chunk]:
    cutter = Chunks(PARTITIONS, topic)
    full = [chunk for piece in pieces for chunk in cutter.add(piece)]
    return full + list(cutter.flush())


def flat(found: Sequence[Chunk]) -> dict[tuple[int, int], list[Fields]]:
    return {
        (chunk.target, chunk.number): [
            (
                row["topic"],
                row["value"],
                row.get("key"),
                tuple((each["key"], each["value"]) for each in row.get("headers") or ()),
            )
            for row in chunk.messages.to_pylist()
        ]
        for chunk in found
    }


@pytest.fixture(autouse=True, scope="module")
def small() -> Iterator[None]:
    """Small chunks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "CHUNK_MESSAGES", 7)
        patch.setattr(chunks, "CHUNK_BYTES", 120)
        patch.setattr(chunks, "TOPICS_PER_BATCH_MAX", 2)
        yield


def target_of(row: tuple[Any, ...]) -> int:
    _, _, key, partition, _ = row
    if partition is not None:
        return int(partition)
    return ANY if key is None else zlib.crc32(key.encode()) % PARTITIONS


def message_of(row: tuple[Any, ...]) -> Fields:
    topic, value, key, _, headers = row
    return topic, value, None if key is None else key.encode(), tuple(headers or ())


def size_of(message: Fields) -> int:
    topic, value, key, headers = message
    return Message(topic, value, key, headers).size + 8 + HEADER_ROOM_BYTES * len(headers)


@given(rows, st.randoms(use_true_random=False))
def test_chunks_do_not_depend_on_how_rows_are_handed_over(
    some: list[tuple[Any, ...]], chance: random.Random
) -> None:
    whole = flat(cut([frame(some)]))
    pieces, at = [], 0
    while at < len(some):
        size = chance.randint(0, 9)
        pieces.append(frame(some[at : at + size]))
        at += size
    assert flat(cut(pieces)) == whole


@given(rows)
def test_every_row_is_in_the_chunks_of_its_target_in_order(some: list[tuple[Any, ...]]) -> None:
    found = flat(cut([frame(some)]))
    for target in (ANY, 0, 1, 2):
        numbers = sorted(number for there, number in found if there == target)
        assert numbers == list(range(len(numbers)))
        together = [message for number in numbers for message in found[target, number]]
        assert together == [message_of(row) for row in some if target_of(row) == target]


@given(rows)
def test_each_chunk_is_within_its_bounds_and_full_but_for_the_last(
    some: list[tuple[Any, ...]],
) -> None:
    found = flat(cut([frame(some)]))
    for (target, number), messages in found.items():
        size = sum(map(size_of, messages))
        assert len(messages) <= 7
        assert size <= 120 or len(messages) == 1
        assert len({message[0] for message in messages}) <= 2
        following = found.get((target, number + 1))
        if following is not None:
            first = following[0]
            assert (
                len(messages) == 7
                or size + size_of(first) > 120
                or len({message[0] for message in (first, *messages)}) > 2
            )


def test_a_chunk_is_a_batch_that_can_be_put() -> None:
    for chunk in cut([frame([("a", b"x" * n, None, None, None) for n in range(50)])]):
        assert encode_record_batch(chunk.messages).count == chunk.messages.num_rows


@pytest.mark.parametrize("header", [(None, b"v"), ("n", None), None])
def test_a_header_without_name_or_value_is_in_no_batch(header: tuple[Any, Any] | None) -> None:
    (chunk,) = cut([frame([("a", b"", None, None, [("n", b"v"), header])])])
    with pytest.raises(InvalidInputError, match="can't be null"):
        encode_record_batch(chunk.messages)


def test_keys_and_headers_are_columns_where_rows_have_them() -> None:
    schema = pa.schema([SCHEMA.field(name) for name in ("topic", "value", "partition")])
    (chunk,) = cut([frame([("a", b"x", 1)], schema)])
    assert chunk.messages.schema.names == ["topic", "value", "row"]
    (chunk,) = cut([frame([("a", b"x", None, 1, None)])])
    assert chunk.messages.schema.names == ["topic", "value", "key", "headers", "row"]
    plain = encode_record_batch(chunk.messages)
    assert plain == encode_record_batch(chunk.messages.select(["topic", "value"]))


def test_what_tells_many_small_headers_apart_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK_MESSAGES", 10_000)
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 4 * 1024 * 1024)
    messages, each = 10_000, 150
    pairs = pa.StructArray.from_arrays(
        [pa.repeat("n", messages * each), pa.repeat(pa.scalar(b""), messages * each)],
        names=["key", "value"],
    )
    ends = pa.array(range(0, messages * each + 1, each), pa.int32())
    found = cut(
        [
            pa.RecordBatch.from_pydict(
                {
                    "value": pa.repeat(pa.scalar(b""), messages),
                    "headers": pa.ListArray.from_arrays(ends, pairs),
                }
            )
        ],
        topic="t",
    )
    assert sum(encode_record_batch(chunk.messages).count for chunk in found) == messages
    assert len(found) > 1


def test_strings_and_large_types_are_taken() -> None:
    schema = pa.schema([("value", pa.large_string()), ("key", pa.large_binary())])
    found = cut([frame([("ä", b"k"), ("b", None)], schema)], topic="t")
    assert sorted(flat(found).values()) == [
        [("t", b"b", None, ())],
        [("t", "ä".encode(), b"k", ())],
    ]


@pytest.mark.parametrize(
    ("row", "match"),
    [
        ((None, b"", None, None, None), "can't be null"),
        (("a", None, None, None, None), "can't be null"),
        (("a", b"", None, 3, None), "no such partition"),
        (("a", b"", "k", -1, None), "no such partition"),
    ],
)
def test_a_row_that_is_no_message_is_refused(row: tuple[Any, ...], match: str) -> None:
    with pytest.raises(InvalidInputError, match=match):
        cut([frame([("a", b"", None, None, None), row])])


def test_the_largest_row_is_known_by_its_number_in_the_task() -> None:
    made = Chunks(PARTITIONS, None)
    small = [("a", b"v", "k", 0, None)] * 3
    assert list(made.add(frame(small))) == []
    (chunk,) = [
        chunk
        for chunk in [*made.add(frame([*small, ("b", b"v" * 500, "far", 0, None)])), *made.flush()]
        if chunk.messages.num_rows == 1
    ]
    row = largest_row(chunk.messages)
    assert (row["row"], row["topic"], row["key"]) == (6, "b", b"far")
