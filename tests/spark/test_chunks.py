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

from hqueue import InvalidInputError
from hqueue.format.arrow import encode_record_batch
from pyspark_hqueue.writing import chunks
from pyspark_hqueue.writing.chunks import ANY, Chunk, Chunks

PARTITIONS = 3
SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("value", pa.binary()),
        ("key", pa.string()),
        ("partition", pa.int32()),
    ]
)

rows = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]),
        st.binary(max_size=30),
        st.one_of(st.none(), st.sampled_from(["k", "l", "ü"])),
        st.one_of(st.none(), st.integers(0, PARTITIONS - 1)),
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


def flat(found: Sequence[Chunk]) -> dict[tuple[int, int], list[tuple[str, bytes]]]:
    return {
        (chunk.target, chunk.number): [
            (row["topic"], row["value"]) for row in chunk.messages.to_pylist()
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
    _, _, key, partition = row
    if partition is not None:
        return int(partition)
    return ANY if key is None else zlib.crc32(key.encode()) % PARTITIONS


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
        assert together == [row[:2] for row in some if target_of(row) == target]


@given(rows)
def test_each_chunk_is_within_its_bounds_and_full_but_for_the_last(
    some: list[tuple[Any, ...]],
) -> None:
    found = flat(cut([frame(some)]))
    for (target, number), messages in found.items():
        size = sum(len(value) + 8 for _, value in messages)
        assert len(messages) <= 7
        assert size <= 120 or len(messages) == 1
        assert len({topic for topic, _ in messages}) <= 2
        following = found.get((target, number + 1))
        if following is not None:
            topic, value = following[0]
            assert (
                len(messages) == 7
                or size + len(value) + 8 > 120
                or len({topic, *(topic for topic, _ in messages)}) > 2
            )


def test_a_chunk_is_a_batch_that_can_be_put() -> None:
    for chunk in cut([frame([("a", b"x" * n, None, None) for n in range(50)])]):
        assert encode_record_batch(chunk.messages).count == chunk.messages.num_rows


def test_strings_and_large_types_are_taken() -> None:
    schema = pa.schema([("value", pa.large_string()), ("key", pa.large_binary())])
    found = cut([frame([("ä", b"k"), ("b", None)], schema)], topic="t")
    assert sorted(flat(found).values()) == [[("t", b"b")], [("t", "ä".encode())]]


@pytest.mark.parametrize(
    ("row", "match"),
    [
        ((None, b"", None, None), "never null"),
        (("a", None, None, None), "never null"),
        (("a", b"", None, 3), "no such partition"),
        (("a", b"", "k", -1), "no such partition"),
    ],
)
def test_a_row_that_is_no_message_is_refused(row: tuple[Any, ...], match: str) -> None:
    with pytest.raises(InvalidInputError, match=match):
        cut([frame([("a", b"", None, None), row])])
