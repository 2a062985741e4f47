"""Record batches that are put: the same bytes as of the same messages, and clear errors."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hqueue.consume.arrow import record_batch
from hqueue.errors import InvalidInputError, MessageTooLargeError
from hqueue.format import encode_bodies
from hqueue.format.arrow import encode_record_batch
from hqueue.message import Message
from hqueue.settings.limits import BATCH_BYTES_MAX, BATCH_MESSAGES_MAX, TOPICS_PER_BATCH_MAX
from tests.support.batches import bodies_lists, read

TOPICS = st.sampled_from(
    [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
)
VALUES = st.sampled_from([pa.binary(), pa.large_binary(), pa.binary_view()])


def batch_of(
    messages: list[Message], topic: pa.DataType | None = None, value: pa.DataType | None = None
) -> pa.RecordBatch:
    topics = pa.array([message.topic for message in messages], pa.string())
    values = pa.array([message.value for message in messages], value or pa.binary())
    return pa.record_batch(
        [topics.cast(topic) if topic else topics, values], names=["topic", "value"]
    )


@given(bodies_lists, TOPICS, VALUES)
def test_the_bytes_are_those_of_the_same_messages(
    messages: list[Message], topic: pa.DataType, value: pa.DataType
) -> None:
    assert encode_record_batch(batch_of(messages, topic, value)) == encode_bodies(messages)


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
