"""No way in takes more headers than a batch may have, and what cuts batches minds that."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hqueue import Message, MessageID, Messages, MessageTooLargeError, ReceivedMessage
from hqueue.cli.commands.making import message_maker
from hqueue.cli.framing import Framing
from hqueue.format.arrow import HEADERS, encode_arrow
from hqueue.format.cells import encode_bodies, encode_message
from hqueue.format.header import Bodies
from hqueue.message import Headers
from hqueue.produce.encode import encode_given
from hqueue.rpc.services import load
from hqueue.settings.limits import BATCH_HEADERS_MAX
from hqueue.texts.documents import message_of as message_of_document
from hqueue.topics.structs import check_sent, message_structs
from hqueue_workers.api.structs import _SHARED, messages_of_list
from hqueue_workers.hub.serving.service import _read as published
from hqueue_workers.hub.writing.gathering import gather
from hqueue_workers.hub.writing.owned_topic import OwnedTopic, Publish
from hqueue_workers.hub.writing.sequence_numbers import SequenceNumbers
from pyspark_hqueue.writing.chunks import Chunks

HALF = BATCH_HEADERS_MAX // 2
EMPTY = ("", b"")
NO_VERDICT: Any = None

SUMMED = pytest.mark.thorough("several messages with and without headers show the sum")

Counts = Sequence[int]
"""How many headers each message has."""


@functools.cache
def message(count: int) -> Message:
    return Message("t", b"", headers=(EMPTY,) * count)


def messages(counts: Counts) -> list[Message]:
    return [message(count) for count in counts]


def column(counts: Counts) -> pa.Array:
    ends = [sum(counts[:at]) for at in range(len(counts) + 1)]
    pairs = pa.array([{"key": "", "value": b""}], HEADERS.value_type)
    many = pairs.take(pa.array([0] * ends[-1], pa.int32()))
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), many, HEADERS)


def columns(counts: Counts) -> dict[str, pa.Array]:
    return {
        "topic": pa.array(["t"] * len(counts)),
        "value": pa.array([b""] * len(counts)),
        "headers": column(counts),
    }


def as_messages_of_a_topic(counts: Counts) -> Bodies:
    given_headers: list[Headers] = [(EMPTY,) * count for count in counts]
    return encode_given(Messages("t", [b""] * len(counts), headers=given_headers))


def as_topics(counts: Counts) -> Bodies:
    return encode_given(
        [
            Message(f"t{number}", b"", headers=(EMPTY,) * count)
            for number, count in enumerate(counts)
        ]
    )


def by_the_thrift_api(counts: Counts) -> Bodies:
    header = _SHARED.THeader(name=b"", value=b"")
    structs = [_SHARED.TMessage(topic=b"t", value=b"", headers=[header] * n) for n in counts]
    return encode_given(messages_of_list(structs))


def by_a_hub(counts: Counts) -> object:
    structs = load("subscriber")
    header = structs.THeader(b"", b"")
    return published(b"t", [structs.TMessage(value=b"", headers=[header] * n) for n in counts])


def by_the_command_line(counts: Counts) -> Bodies:
    return encode_given(
        [
            message_maker(Framing.LENGTH_PREFIXED, "t", None, [EMPTY] * count)(b"")
            for count in counts
        ]
    )


WAYS: dict[str, Callable[[Counts], object]] = {
    "messages": lambda counts: encode_given(messages(counts)),
    "messages of a topic": as_messages_of_a_topic,
    "messages of topics": as_topics,
    "a record batch": lambda counts: encode_given(pa.record_batch(columns(counts))),
    "a table": lambda counts: encode_given(pa.table(columns(counts))),
    "the Thrift API": by_the_thrift_api,
    "a client's publish": lambda counts: message_structs("t", messages(counts)),
    "a client's put": lambda counts: check_sent(messages(counts)),
    "a hub's publish": by_a_hub,
    "the command line": by_the_command_line,
}


@pytest.mark.parametrize(
    "counts",
    [
        (HALF, 0, HALF - 1, 1),
        pytest.param((1,), marks=SUMMED),
        pytest.param((HALF, HALF), marks=SUMMED),
    ],
)
@pytest.mark.parametrize("way", WAYS)
def test_as_many_headers_as_a_batch_may_have_are_taken_and_one_more_is_refused(
    way: str, counts: Counts
) -> None:
    if counts == (1,):
        counts = (BATCH_HEADERS_MAX,)
    WAYS[way](counts)
    with pytest.raises(MessageTooLargeError) as raised:
        WAYS[way]((*counts[:-1], counts[-1] + 1))
    assert raised.value.headers == BATCH_HEADERS_MAX + 1
    assert raised.value.headers_max == BATCH_HEADERS_MAX


def test_the_systems_own_headers_count_for_nothing() -> None:
    headers = (*(EMPTY,) * BATCH_HEADERS_MAX, ("hqueue.publisher", b"p"), ("hqueue.number", b"1"))
    assert encode_message(Message("t", b"", headers=headers)).count == 1
    read = ReceivedMessage("t", b"", MessageID(1), 0, headers=headers)
    assert encode_given([read]).count == encode_bodies([read]).count == 1
    pairs = pa.array([[{"key": name, "value": value} for name, value in headers]], HEADERS)
    batch = pa.record_batch({**columns((0,)), "headers": pairs})
    assert encode_arrow(batch).count == 1


many = st.lists(st.sampled_from([0, 1, 60_000, 100_000, HALF, BATCH_HEADERS_MAX]), max_size=8)


@settings(max_examples=15)
@given(many)
def test_a_hub_appends_publishes_together_only_if_a_batch_may_have_their_headers(
    counts: list[int],
) -> None:
    waiting = deque(
        Publish(OwnedTopic(f"t{n}", 0, 1, NO_VERDICT, 0.0), messages([count]), 0, Future())
        for n, count in enumerate(counts)
    )
    while waiting:
        batch: list[Publish] = []
        gather(batch, waiting, SequenceNumbers())
        assert batch
        together = sum(len(message.headers) for each in batch for message in each.messages)
        assert together <= BATCH_HEADERS_MAX


@settings(max_examples=15)
@given(many)
def test_sparks_chunks_can_be_put(counts: list[int]) -> None:
    cutter = Chunks(1, None)
    given_columns = {**columns(counts), "partition": pa.array([0] * len(counts), pa.int32())}
    chunks = [*cutter.add(pa.record_batch(given_columns)), *cutter.flush()]
    assert sum(encode_given(chunk.messages).count for chunk in chunks) == len(counts)


def test_a_document_with_too_many_headers_is_refused() -> None:
    headers = '{"name":"","value":""},' * BATCH_HEADERS_MAX + '{"name":"","value":""}'
    with pytest.raises(MessageTooLargeError):
        message_of_document(('{"topic":"t","value":"","headers":[' + headers + "]}").encode(), "t")
