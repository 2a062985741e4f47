"""MessageIDs and messages."""

from __future__ import annotations

import copy
import datetime
import pickle
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hqueue.errors import InvalidInputError, MessageTooLargeError
from hqueue.format.cells import encode_bodies
from hqueue.message import (
    ConsumedMessage,
    Headers,
    Message,
    Messages,
    ReceivedMessage,
    partition_of_key,
)
from hqueue.message_id import MessageID, MessageIDs, id_of, sequence_of, timestamp_of
from hqueue.position import SECONDS_MAX, SECONDS_MIN, as_message_id
from hqueue.settings.limits import (
    BATCH_BYTES_MAX,
    MESSAGE_ID_MAX,
    SEQUENCE_MAX,
    TIMESTAMP_MS_MAX,
    TOPIC_BYTES_MAX,
)
from tests.support.batches import messages
from tests.support.extras import headers, keys

timestamps = st.integers(0, TIMESTAMP_MS_MAX)
sequences = st.integers(0, SEQUENCE_MAX)
ids = st.builds(MessageID, timestamps, sequences)
YEAR_10000_MS = 253_402_300_800_000


@given(timestamps, sequences)
def test_an_id_is_its_parts(timestamp: int, sequence: int) -> None:
    message_id = MessageID(timestamp, sequence)
    assert (message_id.timestamp, message_id.sequence) == (timestamp, sequence)
    assert message_id == int(message_id) == timestamp * 32_768 + sequence
    assert MessageID.from_int(int(message_id)) == message_id


@given(ids, ids)
def test_ids_order_as_their_parts_and_as_integers(one: MessageID, other: MessageID) -> None:
    by_parts = (one.timestamp, one.sequence) < (other.timestamp, other.sequence)
    assert (one < other) == by_parts == (int(one) < int(other))
    assert (one == other) == (hash(one) == hash(other) and int(one) == int(other))


@given(ids)
def test_an_id_survives_text_pickle_and_copy(message_id: MessageID) -> None:
    for same in (
        MessageID.parse(str(message_id)),
        MessageID.parse(f" {message_id}\n"),
        eval(repr(message_id), {"MessageID": MessageID}),
        pickle.loads(pickle.dumps(message_id)),
        copy.deepcopy(message_id),
    ):
        assert type(same) is MessageID
        assert same == message_id
    assert f"{message_id:>40}" == str(message_id).rjust(40)


@given(st.integers(0, MESSAGE_ID_MAX - 1))
def test_next_is_the_smallest_id_above(value: int) -> None:
    message_id = MessageID.from_int(value)
    assert int(message_id.next()) == value + 1
    assert type(message_id.next()) is MessageID


def test_there_is_no_id_after_the_last() -> None:
    last = MessageID.from_int(MESSAGE_ID_MAX)
    for beyond in (last.next, lambda: last + 1, lambda: MessageID(0) - 1):
        with pytest.raises(InvalidInputError, match="0 to 2\\*\\*63 - 1"):
            beyond()


@given(ids, st.integers(-(2**16), 2**16))
def test_an_id_plus_or_minus_a_number_is_an_id_and_never_taken_for_a_time(
    message_id: MessageID, places: int
) -> None:
    for moved, value in (
        (lambda: message_id + places, int(message_id) + places),
        (lambda: places + message_id, int(message_id) + places),
        (lambda: message_id - places, int(message_id) - places),
    ):
        if 0 <= value <= MESSAGE_ID_MAX:
            assert type(moved()) is MessageID
            assert as_message_id(moved()) == value
        else:
            with pytest.raises(InvalidInputError):
                moved()


@given(ids, ids)
def test_two_ids_lie_so_many_places_apart_and_have_no_sum(one: MessageID, other: MessageID) -> None:
    assert type(one - other) is int
    assert one - other == int(one) - int(other)
    assert other + (one - other) == one
    with pytest.raises(TypeError, match="can't be added"):
        one + other


def test_a_time_is_not_added_to_an_id() -> None:
    with pytest.raises(TypeError):
        MessageID(1) + datetime.timedelta(seconds=1)  # type: ignore[operator]
    with pytest.raises(TypeError):
        MessageID(1) - datetime.timedelta(seconds=1)  # type: ignore[operator]


@pytest.mark.parametrize(
    "parts",
    [
        (-1, 0),
        (TIMESTAMP_MS_MAX + 1, 0),
        (0, -1),
        (0, 32_768),
        (True, 0),
        (0, False),
        (1.5, 0),
        ("1", 0),
    ],
)
def test_parts_out_of_range_are_refused(parts: tuple[int, int]) -> None:
    with pytest.raises(InvalidInputError):
        MessageID(*parts)


@given(st.text(max_size=30) | st.from_regex(r"-?\d+-?-?\d*", fullmatch=True))
def test_any_text_is_an_id_or_refused(text: str) -> None:
    try:
        message_id = MessageID.parse(text)
    except InvalidInputError:
        return
    timestamp, _, sequence = text.strip().partition("-")
    assert (message_id.timestamp, message_id.sequence) == (int(timestamp), int(sequence))


@pytest.mark.parametrize(
    "text", ["", "-", "1", "1-", "-1", "1-32768", "१-1", "1--1", "+1-1", "1_0-1"]
)
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError):
        MessageID.parse(text)


@given(st.integers(0, YEAR_10000_MS - 1), sequences)
@example(SECONDS_MIN - 1, 0)
@example(SECONDS_MIN, 0)
@example(SECONDS_MAX - 1, 0)
@example(SECONDS_MAX, 0)
def test_a_datetime_is_the_timestamp_and_a_number_too_that_does_not_say_seconds(
    timestamp: int, sequence: int
) -> None:
    message_id = MessageID(timestamp, sequence)
    assert message_id.datetime.tzinfo is datetime.timezone.utc
    assert as_message_id(message_id.datetime) == MessageID(timestamp)
    if SECONDS_MIN <= timestamp < SECONDS_MAX:
        with pytest.raises(InvalidInputError, match="seconds"):
            as_message_id(timestamp)
    else:
        assert as_message_id(timestamp) == MessageID(timestamp)
    assert as_message_id(message_id) is message_id


def test_a_timestamp_that_no_datetime_holds_is_refused() -> None:
    with pytest.raises(InvalidInputError):
        _ = MessageID(TIMESTAMP_MS_MAX).datetime


@pytest.mark.parametrize(
    "moment",
    [
        -1,
        True,
        TIMESTAMP_MS_MAX + 1,
        datetime.datetime(2020, 1, 1),
        datetime.datetime(1960, 1, 1, tzinfo=datetime.timezone.utc),
    ],
)
def test_a_moment_out_of_range_is_refused(moment: object) -> None:
    with pytest.raises(InvalidInputError):
        as_message_id(moment)  # type: ignore[arg-type]


@given(st.integers(0, 2**60), st.integers(0, 50), st.slices(50))
def test_ids_of_an_append_are_a_sequence(first: int, count: int, part: slice) -> None:
    made, plain = MessageIDs(first, count), list(range(first, first + count))
    assert made == plain == list(made)
    assert made == tuple(plain)
    assert len(made) == count
    assert list(made[part]) == plain[part]
    assert [type(i) for i in made] == [MessageID] * count
    assert made == MessageIDs(first, count)
    assert made != MessageIDs(first, count + 1)
    assert (first + count - 1 in made) == (count > 0)
    assert first + count not in made
    assert list(reversed(made)) == plain[::-1]
    assert pickle.loads(pickle.dumps(made)) == made
    if count:
        assert made[-1] == plain[-1]
        assert made.index(plain[-1]) == count - 1
        assert type(made[0]) is MessageID
        assert "MessageID(" in repr(made)
    with pytest.raises(IndexError):
        made[count]
    with pytest.raises(TypeError):
        hash(made)


@given(messages, ids, st.integers(0, 5))
def test_a_message_survives_pickle(message: Message, message_id: MessageID, partition: int) -> None:
    read = ReceivedMessage(
        message.topic,
        message.value,
        message_id,
        partition,
        key=message.key,
        headers=message.headers,
    )
    fields = (message.topic, message.value, message_id, partition, "q")
    consumed = ConsumedMessage(*fields, key=message.key, headers=message.headers)
    for each in (message, read, consumed):
        same = pickle.loads(pickle.dumps(each))
        assert same == each
        assert type(same) is type(each)
    assert type(pickle.loads(pickle.dumps(read)).id) is MessageID


@given(messages, ids, st.integers(0, 5))
def test_a_message_that_was_read_is_one_that_can_be_put(
    message: Message, message_id: MessageID, partition: int
) -> None:
    more: Any = {"key": message.key, "headers": message.headers}
    read = ReceivedMessage(message.topic, message.value, message_id, partition, **more)
    assert tuple(read)[:4] == tuple(message)
    assert (read.id, read.partition) == (message_id, partition)
    assert read.timestamp == message_id.timestamp
    assert encode_bodies([read, read]) == encode_bodies([message, message])


@given(messages, ids)
def test_messages_are_equal_if_all_their_fields_are(
    message: Message, message_id: MessageID
) -> None:
    read = ReceivedMessage(message.topic, message.value, message_id, 1)
    assert message == Message(message.topic, message.value, message.key, message.headers)
    assert message != Message(message.topic, message.value, b"another", message.headers)
    assert message != Message(message.topic, message.value, message.key, [("another", b"")])
    assert read == ReceivedMessage(message.topic, message.value, message_id, 1)
    assert len({read, ReceivedMessage(message.topic, message.value, message_id, 1)}) == 1
    assert read != message
    assert read != ReceivedMessage(message.topic, message.value, message_id, 2)
    assert read != ReceivedMessage(message.topic, message.value + b"-", message_id, 1)


def test_a_message_shows_its_fields() -> None:
    assert repr(Message("t", b"v")) == "Message(topic='t', value=b'v')"
    read = ReceivedMessage("t", b"v", MessageID(7, 1), 3)
    fields = "topic='t', value=b'v', id=MessageID(7, 1), partition=3"
    assert repr(read) == f"ReceivedMessage({fields})"
    more = Message("t", b"v", b"", [("n", b"1")])
    assert repr(more) == "Message(topic='t', value=b'v', key=b'', headers=(('n', b'1'),))"


def test_an_empty_key_and_none_are_told_apart() -> None:
    assert Message("t", b"", b"") != Message("t", b"")
    assert Message("t", b"", b"").key == b""
    assert Message("t", b"").key is None
    assert Message("t", b"").headers == Message("t", b"", None, []).headers == ()


@given(keys, headers)
def test_keys_and_headers_come_as_they_were_given(
    key: bytes | None, given_headers: Headers
) -> None:
    message = Message("t", b"v", key, given_headers)
    assert (message.key, message.headers) == (key, given_headers)
    pairs = sum(len(name.encode()) + len(value) for name, value in given_headers)
    assert message.size == 1 + len(key or b"") + pairs
    alike = Message(
        "t",
        b"v",
        None if key is None else bytearray(key),
        ([name, memoryview(value)] for name, value in given_headers),  # type: ignore[misc]
    )
    assert alike == message


@pytest.mark.parametrize(
    "more",
    [
        {"key": "text"},
        {"key": 7},
        {"headers": {"n": b"v"}},
        {"headers": "nv"},
        {"headers": b"nv"},
        {"headers": 7},
        {"headers": None},
        {"headers": ["nv"]},
        {"headers": [("n",)]},
        {"headers": [("n", b"v", b"w")]},
        {"headers": [(b"n", b"v")]},
        {"headers": [("n", "v")]},
        {"headers": [("n", None)]},
        {"headers": [("\ud800", b"v")]},
    ],
)
def test_keys_and_headers_of_other_types_are_refused(more: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        Message("t", b"v", **more)
    with pytest.raises(InvalidInputError):
        Messages("t", [b"v"], **{f"{name.rstrip('s')}s": [each] for name, each in more.items()})


def test_keys_and_headers_count_toward_the_size_that_a_message_may_have() -> None:
    rest = bytes(BATCH_BYTES_MAX - 10)
    assert Message("t", rest, b"k" * 4, [("ü", b"1234")]).size == BATCH_BYTES_MAX
    for more in ({"key": b"k" * 11}, {"headers": [("ü", b"123456789")]}):
        with pytest.raises(MessageTooLargeError):
            Message("t", rest, **more)  # type: ignore[arg-type]


def test_messages_of_a_topic_have_keys_and_headers_each() -> None:
    many = Messages("t", [b"1", b"2"], [b"k", None], [[("n", b"v")], ()])
    each = [Message("t", b"1", b"k", [("n", b"v")]), Message("t", b"2")]
    assert list(many) == each
    assert list(many[1:]) == each[1:]
    assert encode_bodies(many) == encode_bodies(each)
    for wrong in ({"keys": [b"k"]}, {"headers": [(), (), ()]}, {"keys": b"kk"}):
        with pytest.raises(InvalidInputError):
            Messages("t", [b"1", b"2"], **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "value", [bytearray(b"abc"), memoryview(b"abc"), memoryview(b"aabbcc")[::2]]
)
def test_values_like_bytes_become_bytes(value: bytearray | memoryview) -> None:
    message = Message("t", value)
    assert type(message.value) is bytes
    assert message.value == b"abc"


@pytest.mark.parametrize(
    ("topic", "value"),
    [
        ("", b""),
        ("x" * (TOPIC_BYTES_MAX + 1), b""),
        ("ü" * 128, b""),
        ("\ud800", b""),
        (b"t", b""),
        (None, b""),
        ("t", "text"),
        ("t", None),
        ("t", 5),
    ],
)
def test_a_message_of_the_wrong_kind_is_refused(topic: object, value: object) -> None:
    with pytest.raises(InvalidInputError):
        Message(topic, value)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError):
        ReceivedMessage(topic, value, MessageID(1), 0)  # type: ignore[arg-type]


@given(timestamps, sequences)
def test_plain_integers_have_the_bits_of_ids(timestamp: int, sequence: int) -> None:
    plain = id_of(timestamp, sequence)
    assert plain == MessageID(timestamp, sequence) == timestamp * 32_768 + sequence
    assert (timestamp_of(plain), sequence_of(plain)) == (timestamp, sequence)
    assert id_of(timestamp) <= plain < id_of(timestamp + 1)


@pytest.mark.parametrize("partitions", [1, 8, 1_000, 32_767])
def test_a_key_belongs_to_the_partition_that_its_crc_32_says(partitions: int) -> None:
    assert partition_of_key(b"123456789", partitions) == 0xCBF43926 % partitions


def test_a_value_has_a_bound() -> None:
    assert Message("t", bytes(BATCH_BYTES_MAX)).topic == "t"
    with pytest.raises(MessageTooLargeError):
        Message("t", bytes(BATCH_BYTES_MAX + 1))
    with pytest.raises(AttributeError):
        Message("t", b"").topic = "u"  # type: ignore[misc]


@given(st.text(min_size=1, max_size=20), st.lists(st.binary(max_size=20), max_size=20))
def test_values_of_a_topic_are_messages(topic: str, values: list[bytes]) -> None:
    try:
        expected = [Message(topic, value) for value in (*values, b"")]
    except InvalidInputError:
        with pytest.raises(InvalidInputError):
            Messages(topic, values)
        return
    given_values = [bytearray(values[0]), *values[1:], b""] if values else [b""]
    found = Messages(topic, iter(given_values))
    assert list(found) == expected
    assert (found[-1], list(found[1:])) == (expected[-1], expected[1:])
    assert encode_bodies(found) == encode_bodies(expected)


@pytest.mark.parametrize("values", [b"one", "text", ["text"], [b"", None], [1]])
def test_values_that_are_none_are_refused(values: object) -> None:
    with pytest.raises(InvalidInputError):
        Messages("topic", values)  # type: ignore[arg-type]
