"""What can't be read can't be put, by no way: what is written is what each reader gives, or there
is an error that says why not.

Each way gets the same raw material: bytes that may be no text, and texts that may have no bytes.
"""

from __future__ import annotations

import base64
import json
import os
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hqueue import (
    InvalidInputError,
    Message,
    Messages,
    MessageTooLargeError,
    RequestRefusedError,
)
from hqueue.cli.commands.making import message_maker, parse_headers
from hqueue.cli.framing import Framing
from hqueue.consume.arrow import record_batch
from hqueue.consume.decode import messages_of
from hqueue.format.arrow import HEADERS, encode_arrow
from hqueue.format.cells import control_record, encode_bodies, encode_message
from hqueue.format.header import Bodies
from hqueue.produce.delivery import PendingBatch
from hqueue.produce.encode import encode_batch
from hqueue.rpc.services import load
from hqueue.settings.limits import BATCH_BYTES_MAX, MESSAGE_ID_MAX
from hqueue.texts.documents import message_of as message_of_document
from hqueue.topics.structs import message_structs
from hqueue_workers.api.structs import _SHARED, messages_of_list
from hqueue_workers.hub.serving.service import _read as published
from pyspark_hqueue.writing.chunks import Chunks
from tests.support.batches import header_bytes, read_bodies


class Raw(NamedTuple):
    """A message as somebody may want it to be."""

    topic: bytes
    value: bytes
    key: bytes | None
    headers: tuple[tuple[bytes, bytes], ...]

    @property
    def as_message(self) -> Message | None:
        """The message; None if there can't be one."""
        try:
            headers = [(name.decode(), value) for name, value in self.headers]
            return Message(self.topic.decode(), self.value, self.key, headers)
        except (UnicodeDecodeError, InvalidInputError):
            return None


# Broken off, too long a form, a half of a pair, the rest of a character, beyond all: and "é" in two
# parts, which one after another are UTF-8 again.
NO_TEXTS = [b"caf\xe9", b"\xc0\xaf", b"\xed\xa0\x80", b"\xa9", b"\xf5\x80\x80\x80", b"\xc3"]
TEXTS = [b"t", b"a", "ü".encode(), "日本".encode(), b"\x00", b"x" * 255, b"x" * 256, b""]
names = st.sampled_from(TEXTS[:3]) | st.sampled_from(TEXTS + NO_TEXTS) | st.binary(max_size=4)
raws = st.lists(
    st.builds(
        Raw,
        names,
        st.binary(max_size=5),
        st.none() | st.binary(max_size=3),
        st.lists(st.tuples(names, st.binary(max_size=3)), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=6,
)


def text(data: bytes) -> str:
    """As Python decodes bytes from the system that are not text."""
    return data.decode(errors="surrogateescape")


def headers_of(raw: Raw) -> list[tuple[str, bytes]]:
    return [(text(name), value) for name, value in raw.headers]


def as_messages(given_raws: Sequence[Raw]) -> Bodies:
    return encode_bodies(
        [Message(text(raw.topic), raw.value, raw.key, headers_of(raw)) for raw in given_raws]
    )


def as_single_messages(given_raws: Sequence[Raw]) -> Bodies:
    messages = [Message(text(raw.topic), raw.value, raw.key, headers_of(raw)) for raw in given_raws]
    for message in messages:
        check_readable(encode_message(message), [message])
    return encode_bodies(messages)


def as_values_of_a_topic(given_raws: Sequence[Raw]) -> Bodies:
    kinds = {raw.topic for raw in given_raws}
    if len(kinds) > 1:
        return as_messages(given_raws)
    return encode_batch(
        Messages(
            text(kinds.pop()),
            [raw.value for raw in given_raws],
            [raw.key for raw in given_raws],
            [headers_of(raw) for raw in given_raws],
        )
    )


def by_a_producer(given_raws: Sequence[Raw]) -> Bodies:
    batch: PendingBatch[int] = PendingBatch(None, 0.0, 1 << 20)
    for raw in given_raws:
        message = Message(text(raw.topic), raw.value, raw.key, headers_of(raw))
        extra = (
            (message.key, message.headers) if message.key is not None or message.headers else None
        )
        batch.taken.append((message.topic, message.value, extra, None))
    return batch.encoded()


def table_of(given_raws: Sequence[Raw]) -> dict[str, pa.Array]:
    """The columns, with bytes in them that are called strings, as Spark casts them."""
    lists = pa.array(
        [raw.headers for raw in given_raws],
        pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())])),
    )
    called, contents = lists.values.flatten()
    pairs = pa.StructArray.from_arrays(
        [called.view(pa.string()), contents], fields=list(HEADERS.value_type)
    )
    return {
        "topic": pa.array([raw.topic for raw in given_raws], pa.binary()).view(pa.string()),
        "value": pa.array([raw.value for raw in given_raws], pa.binary()),
        "key": pa.array([raw.key for raw in given_raws], pa.binary()),
        "headers": pa.ListArray.from_arrays(lists.offsets, pairs),
    }


def as_arrow(given_raws: Sequence[Raw]) -> Bodies:
    return encode_arrow(pa.record_batch(table_of(given_raws)))


def as_arrow_table(given_raws: Sequence[Raw]) -> Bodies:
    return encode_arrow(pa.concat_tables([pa.table(table_of([each])) for each in given_raws]))


def as_other_arrow_types(given_raws: Sequence[Raw]) -> Bodies:
    columns = table_of(given_raws)
    large = columns["topic"].view(pa.binary()).cast(pa.large_binary()).view(pa.large_string())
    lists = columns["headers"]
    called, contents = lists.values.flatten()
    pairs = pa.StructArray.from_arrays(
        [
            called.view(pa.binary()).cast(pa.binary_view()).view(pa.string_view()),
            contents.cast(pa.large_binary()),
        ],
        ["name", "value"],
    )
    return encode_arrow(
        pa.record_batch(
            {
                "topic": large,
                "value": columns["value"].dictionary_encode(),
                # As a text they are no other bytes.
                "key": columns["key"].view(pa.string()).dictionary_encode(),
                "headers": pa.LargeListArray.from_arrays(lists.offsets.cast(pa.int64()), pairs),
            }
        )
    )


def as_arrow_dictionaries(given_raws: Sequence[Raw]) -> Bodies:
    columns = table_of(given_raws)
    return encode_arrow(pa.record_batch({**columns, "topic": columns["topic"].dictionary_encode()}))


def by_spark(given_raws: Sequence[Raw]) -> Bodies:
    kinds = {raw.topic for raw in given_raws}
    columns = table_of(given_raws)
    columns["partition"] = pa.array([0] * len(given_raws))
    cutter = Chunks(1, None)
    if kinds == {b"t"}:  # The sink's option.
        cutter = Chunks(1, "t")
        del columns["topic"]
    (chunk,) = [*cutter.add(pa.record_batch(columns)), *cutter.flush()]
    return encode_batch(chunk.messages)


def by_the_thrift_api(given_raws: Sequence[Raw]) -> Bodies:
    return encode_bodies(
        messages_of_list(
            [
                _SHARED.TMessage(
                    topic=raw.topic,
                    value=raw.value,
                    key=raw.key,
                    headers=[_SHARED.THeader(name=n, value=v) for n, v in raw.headers],
                )
                for raw in given_raws
            ]
        )
    )


def by_a_hub(given_raws: Sequence[Raw]) -> Bodies:
    structs = load("subscriber")
    messages = []
    for raw in given_raws:
        struct_ = structs.TMessage(topic=b"", value=raw.value, key=raw.key)
        struct_.headers = [structs.THeader(name=n, value=v) for n, v in raw.headers]
        messages += published(raw.topic, [struct_])[1]
    return encode_bodies(messages)


def by_a_hub_client(given_raws: Sequence[Raw]) -> Bodies:
    messages = []
    for raw in given_raws:
        message = Message(text(raw.topic), raw.value, raw.key, headers_of(raw))
        topic = message.topic
        messages += published(topic.encode(), message_structs(topic, [message]))[1]
    return encode_bodies(messages)


def by_the_command_line(given_raws: Sequence[Raw]) -> Bodies:
    messages = []
    for raw in given_raws:
        if raw.key is None or b"=" in b"".join(name for name, _ in raw.headers):
            messages.append(Message(text(raw.topic), raw.value, raw.key, headers_of(raw)))
            continue
        assignments = [os.fsdecode(name + b"=" + value) for name, value in raw.headers]
        make = message_maker(
            Framing.LENGTH_PREFIXED, text(raw.topic), raw.key, parse_headers(assignments)
        )
        messages.append(make(raw.value))
    return encode_bodies(messages)


def by_documents(given_raws: Sequence[Raw]) -> Bodies:
    def base64_of(data: bytes) -> str:
        return base64.b64encode(data).decode()

    documents = [
        {
            "topic": text(raw.topic),
            "value_base64": base64_of(raw.value),
            **({} if raw.key is None else {"key_base64": base64_of(raw.key)}),
            "headers": [
                {"name": text(name), "value_base64": base64_of(value)}
                for name, value in raw.headers
            ],
        }
        for raw in given_raws
    ]
    return encode_bodies([message_of_document(json.dumps(each).encode()) for each in documents])


def check_readable(bodies: Bodies, messages: Sequence[Message]) -> None:
    """Each reader gives exactly these."""
    batch = read_bodies(bodies)
    assert [tuple(message)[:4] for message in messages_of(batch)] == [*map(tuple, messages)]
    for small_max in (0, 1 << 20):
        with mock.patch("hqueue.consume.arrow.SMALL_BATCH", small_max):
            columns = record_batch([batch])
        columns.validate(full=True)
        assert columns.column("topic").to_pylist() == [message.topic for message in messages]
        assert columns.column("value").to_pylist() == [message.value for message in messages]
        assert columns.column("key").to_pylist() == [message.key for message in messages]


@pytest.mark.parametrize(
    "way",
    [
        as_messages,
        as_single_messages,
        as_values_of_a_topic,
        by_a_producer,
        as_arrow,
        as_arrow_table,
        as_other_arrow_types,
        as_arrow_dictionaries,
        by_spark,
        by_the_thrift_api,
        by_a_hub,
        by_a_hub_client,
        by_the_command_line,
        by_documents,
    ],
)
@example([Raw(b"t", b"v", None, ((b"caf\xe9", b"v"),))])
@example([Raw(b"caf\xe9", b"v", None, ())] * 2)
@example([Raw(b"t", b"v", None, ((b"\xc3", b"v"), (b"\xa9", b"w")))])
@example([Raw(b"t", b"\xe9", b"\xe9", ((b"", b"\xe9"), (b"", b"")))] * 70)
@given(given_raws=raws)
def test_what_is_put_can_be_read_by_all_and_else_is_refused(
    way: Callable[[Sequence[Raw]], Bodies], given_raws: Sequence[Raw]
) -> None:
    wanted = [raw.as_message for raw in given_raws]
    if None in wanted:
        with pytest.raises(InvalidInputError):
            way(given_raws)
    else:
        check_readable(way(given_raws), [message for message in wanted if message is not None])


def array_of(
    kind: pa.DataType,
    length: int,
    parts: Sequence[bytes | None],
    nulls: int = -1,
    children: Sequence[pa.Array] | None = None,
) -> pa.Array:
    """An array of these buffers, whose outside pyarrow looks at; nulls where it refuses them."""
    buffers = [None if part is None else pa.py_buffer(part) for part in parts]
    try:
        return pa.Array.from_buffers(kind, length, buffers, nulls, children=children)
    except pa.ArrowInvalid:
        return pa.nulls(length, kind)


int32s = st.sampled_from([0, 1, 2, 3, 4, 5, -1, 2**31 - 1, -(2**31)])


@st.composite
def lying_offsets(draw: Any, length: int, end: int) -> list[int]:
    """Offsets of so many values: the first and the last are often right, which is all that pyarrow
    looks at; the others are anything.
    """
    offsets = draw(st.lists(int32s, min_size=length + 1, max_size=length + 1))
    honest = draw(st.sampled_from(["none", "ends", "ends", "all"]))
    if honest == "ends":
        offsets[0], offsets[-1] = 0, draw(st.integers(0, end))
    elif honest == "all":
        offsets = sorted(min(abs(offset), end) for offset in offsets)
    return offsets


validities = st.none() | st.binary(min_size=1, max_size=1)


@st.composite
def lying_columns(draw: Any, kind: pa.DataType, length: int) -> pa.Array:
    """An array whose buffers are anything, as a program that makes one by hand may make it."""
    offsets = draw(lying_offsets(length, 4))
    validity = draw(validities)
    data = draw(st.sampled_from([b"abcde", b"\xc3\xa9ab\xe9", "日本".encode()]))
    packed = struct.pack(f"<{length + 1}i", *offsets)
    nulls = draw(st.sampled_from([-1, 0])) if validity else 0
    return array_of(kind, length, [validity, packed, data], nulls)


@st.composite
def lying_batches(draw: Any) -> pa.RecordBatch:
    length = draw(st.integers(1, 4))
    topics = pa.array(["t"] * length)
    if draw(st.booleans()):
        topics = draw(lying_columns(pa.string(), length))
    columns = {"topic": topics, "value": draw(lying_columns(pa.binary(), length))}
    if draw(st.booleans()):
        columns["key"] = draw(lying_columns(pa.binary(), length))
    if draw(st.booleans()):
        number = draw(st.integers(0, 4))
        pairs = pa.StructArray.from_arrays(
            [
                draw(lying_columns(pa.string(), number)),
                draw(lying_columns(pa.binary(), number)),
            ],
            fields=list(HEADERS.value_type),
        )
        offsets = draw(lying_offsets(length, number))
        packed = struct.pack(f"<{length + 1}i", *offsets)
        columns["headers"] = array_of(HEADERS, length, [draw(validities), packed], children=[pairs])
    return pa.RecordBatch.from_pydict(columns)


@given(batch=lying_batches())
def test_arrow_arrays_whose_buffers_lie_are_refused_or_can_be_read(batch: pa.RecordBatch) -> None:
    for given_batch in (batch, batch.slice(1)):
        try:
            bodies = encode_arrow(given_batch)
        except (InvalidInputError, MessageTooLargeError):
            continue
        found = read_bodies(bodies)
        messages = [Message(m.topic, m.value, m.key, m.headers) for m in messages_of(found)]
        assert len(messages) == given_batch.num_rows
        check_readable(bodies, messages)


def test_ids_beyond_the_last_one_are_refused() -> None:
    last = encode_bodies([Message("t", b"")] * 2)
    header_bytes(last, base=MESSAGE_ID_MAX - 2)
    for bodies, base in ((last, MESSAGE_ID_MAX - 1), (control_record(b""), MESSAGE_ID_MAX)):
        with pytest.raises(RequestRefusedError):
            header_bytes(bodies, base=base)


def test_keys_and_headers_larger_than_a_batch_are_refused_before_they_are_put_together() -> None:
    half = bytes(BATCH_BYTES_MAX // 2)
    for message in (Message("t", b"", half), Message("t", b"", None, [("n", half)])):
        with pytest.raises(MessageTooLargeError):
            encode_bodies([message] * 513)  # More than an int32 counts.
