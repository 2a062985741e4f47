"""The bytes of a call, beside those of a Thrift library."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import thriftpy2
from hypothesis import given
from hypothesis import strategies as st
from thriftpy2.protocol.binary import TBinaryProtocol
from thriftpy2.thrift import TApplicationException, TMessageType
from thriftpy2.transport import TMemoryBuffer

from hqueue import MessageID, ReceivedMessage
from hqueue.push.answers import RETRY_DELAY_MS_MAX, Answer, MessageAnswers, Status
from hqueue.push.service import reply_of, subscriber_service
from hqueue.push.worker_call import WorkerCall
from hqueue.rpc.calls import REPLIES, CallWalk, NoCallError
from hqueue.rpc.messages import Processor
from hqueue.settings.limits import REASON_LENGTH_MAX
from hqueue_workers.delivery.connection_pool import RECEIVED_BYTES_MAX
from hqueue_workers.delivery.wire import (
    REPLY_CONTAINERS_MAX,
    Reply,
    ReplyError,
    call_head,
    call_tail,
    decode_messages,
    encode_message,
    read_reply,
)
from tests.support.extras import headers, keys

IDL = Path(__file__).parents[2] / "thrift" / "subscriber.thrift"
STRUCTS = thriftpy2.load(str(IDL), module_name="test_wire_thrift")
SERVICE = STRUCTS.HQueueSubscriberService

MESSAGES = st.lists(
    st.builds(
        ReceivedMessage,
        st.text(min_size=1, max_size=20).filter(
            lambda text: text.isprintable() and len(text.encode("utf-8", "ignore")) >= 1
        ),
        st.binary(max_size=200),
        st.builds(MessageID, st.integers(0, 2**48 - 1), st.integers(0, 32_767)),
        st.integers(0, 32_766),
        key=keys,
        headers=headers,
    ),
    max_size=20,
)
SEQIDS = st.integers(0, 2**31 - 1)
COUNT = 1_500
"""Messages of a call."""


def read(data: bytes, seqid: int) -> Reply:
    """What is read of a reply that has come so."""
    end = CallWalk(RECEIVED_BYTES_MAX, REPLY_CONTAINERS_MAX, REPLIES).end(data)
    if end is None:
        raise EOFError
    return read_reply(data[:end], seqid, COUNT)


def written(write: Callable[[Any], object]) -> bytes:
    memory = TMemoryBuffer()
    write(TBinaryProtocol(memory))
    value: bytes = memory.getvalue()
    return value


def reply(name: str, kind: int, seqid: int, result: Any) -> bytes:
    def write(protocol: Any) -> None:
        protocol.write_message_begin(name, kind, seqid)
        protocol.write_struct(result)
        protocol.write_message_end()

    return written(write)


@given(MESSAGES, SEQIDS)
def test_a_call_is_what_thrift_reads(messages: list[ReceivedMessage], seqid: int) -> None:
    data = b"".join([call_head(seqid, len(messages)), *map(encode_message, messages), call_tail])
    protocol = TBinaryProtocol(TMemoryBuffer(data), decode_response=False)
    name, kind, read_seqid = protocol.read_message_begin()
    arguments = SERVICE.consumeMessages_args()
    protocol.read_struct(arguments)
    assert name in ("consumeMessages", b"consumeMessages")
    assert (kind, read_seqid) == (TMessageType.CALL, seqid)
    assert [
        ReceivedMessage(
            m.topic.decode(),
            m.value,
            MessageID(m.id.timestamp, m.id.sequenceID),
            m.partitionID,
            key=m.key,
            headers=[(header.name.decode(), header.value) for header in m.headers or ()],
        )
        for m in arguments.messages
    ] == messages
    assert [m.headers for m in arguments.messages if not m.headers] == [
        None for m in messages if not m.headers
    ]
    assert protocol.trans.read(1) == b""


def test_a_subscriber_of_an_earlier_idl_passes_over_keys_and_headers(tmp_path: Path) -> None:
    added = ",\n  5: optional binary key,\n  6: optional list<THeader> headers"
    earlier, now = tmp_path / "earlier.thrift", IDL.read_text(encoding="utf-8")
    assert added in now
    earlier.write_text(now.replace(added, ""), encoding="utf-8")
    service = thriftpy2.load(str(earlier), module_name="earlier_thrift").HQueueSubscriberService
    sent = [
        ReceivedMessage("t", b"1", MessageID(1), 0, key=b"k", headers=[("n", b"v"), ("n", b"")]),
        ReceivedMessage("t", b"2", MessageID(2), 0),
    ]
    data = b"".join([call_head(1, 2), *map(encode_message, sent), call_tail])
    protocol = TBinaryProtocol(TMemoryBuffer(data), decode_response=False)
    protocol.read_message_begin()
    arguments = service.consumeMessages_args()
    protocol.read_struct(arguments)
    assert [each.value for each in arguments.messages] == [b"1", b"2"]
    assert not hasattr(arguments.messages[0], "key")


def test_a_subscriber_of_an_earlier_idl_answers_with_the_same_bytes(tmp_path: Path) -> None:
    added = " throws (1: TDeliveryAnswer answer)"
    earlier, now = tmp_path / "earlier.thrift", IDL.read_text(encoding="utf-8")
    assert added in now
    earlier.write_text(now.replace(added, ""), encoding="utf-8")
    service = thriftpy2.load(str(earlier), module_name="status_thrift").HQueueSubscriberService
    for status in (0, 1, 2, 7):
        before = service.consumeMessages_result(success=status)
        data = reply("consumeMessages", TMessageType.REPLY, 7, before)
        after = SERVICE.consumeMessages_result(success=status)
        assert data == reply("consumeMessages", TMessageType.REPLY, 7, after)
        assert read(data, 7) == Reply(status)


@given(MESSAGES)
def test_what_was_encoded_can_be_read_back(messages: list[ReceivedMessage]) -> None:
    assert decode_messages(b"".join(map(encode_message, messages))) == messages


def test_the_bytes_of_messages_are_these() -> None:
    plain = ReceivedMessage("top", b"value", MessageID(1_700_000_000_000, 7), 3)
    bare = bytes.fromhex(
        "0c00010a00010000018bcfe568000600020007000600020003"
        "0b000300000003746f70" "0b00040000000576616c7565"
    )  # fmt: skip
    assert encode_message(plain) == bare + b"\0"
    more = ReceivedMessage(
        plain.topic, plain.value, plain.id, plain.partition,
        key=b"k", headers=[("n", b"v"), ("n", b"")],
    )  # fmt: skip
    assert encode_message(more) == bare + bytes.fromhex(
        "0b0005000000016b" "0f00060c00000002"
        "0b0001000000016e" "0b00020000000176" "00"
        "0b0001000000016e" "0b000200000000" "00" "00"
    )  # fmt: skip


@given(st.integers(-(2**31), 2**31 - 1), SEQIDS)
def test_a_status_is_read(status: int, seqid: int) -> None:
    result = SERVICE.consumeMessages_result(success=status)
    data = reply("consumeMessages", TMessageType.REPLY, seqid, result)
    assert read(data, seqid) == Reply(status)


@given(st.binary(max_size=2_000), SEQIDS)
def test_a_reason_beside_a_status_is_read_as_one_short_line(text: bytes, seqid: int) -> None:
    data = reply(
        "consumeMessages", TMessageType.REPLY, seqid, SERVICE.consumeMessages_result(success=1)
    )
    field = b"\x0b\0\2" + len(text).to_bytes(4, "big") + text
    another = b"\x0b\0\3\0\0\0\1?"
    sent = data[:-1] + another + field + another + data[-1:]
    status, reason, _ = read(sent, seqid)
    assert status == 1
    assert reason.isprintable()
    assert len(reason) == min(len(text.decode(errors="replace")), REASON_LENGTH_MAX)
    if text.decode(errors="replace").isprintable():
        assert reason == text.decode(errors="replace")[:REASON_LENGTH_MAX]


def read_each(**fields: Any) -> Reply:
    """What is read of an answer for each message, as any Thrift library writes it."""
    each = STRUCTS.TDeliveryAnswer(**fields)
    result = SERVICE.consumeMessages_result(answer=each)
    return read(reply("consumeMessages", TMessageType.REPLY, 7, result), 7)


def replied(given: Answer) -> bytes:
    """What a subscriber of this library replies."""

    class Handler:
        def consumeMessages(self, messages: Any) -> object:  # noqa: N802  (the IDL's)
            return reply_of(given)

    call = b"".join([call_head(7, 0), call_tail])
    by_library = Processor(subscriber_service(), Handler()).answer(call)
    quick = WorkerCall(lambda messages: given, 1_000)
    assert quick.end(call) == len(call)
    assert quick.answer() == by_library
    return by_library


@given(
    st.dictionaries(st.integers(0, 99), st.text(max_size=20), max_size=50),
    st.none() | st.integers(100, COUNT - 1),
    st.text(max_size=20),
    st.integers(0, RETRY_DELAY_MS_MAX),
)
def test_an_answer_for_each_message_comes_as_it_was_given(
    rejected: dict[int, str], first: int | None, reason: str, delay_ms: int
) -> None:
    if not rejected and first is None:
        return
    each = MessageAnswers(rejected, first, None if first is None else delay_ms)
    found = read(replied(Answer(Status.RETRY, reason, each)), 7)
    said = {
        index: "".join([c if c.isprintable() else " " for c in why])
        for index, why in sorted(rejected.items())
    }
    assert found.each == each._replace(rejected=said)
    assert found.status == Status.RETRY


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "names no message"),
        ({"rejected": {}}, "names no message"),
        ({"rejected": {COUNT: ""}}, f"rejects message {COUNT}"),
        ({"rejected": {-1: ""}}, "rejects message -1"),
        ({"rejected": {3: ""}, "retryFrom": 3}, "it can only reject messages before 3"),
        ({"retryFrom": COUNT}, f"retryFrom is {COUNT}: it must be 0 to {COUNT - 1}"),
        ({"retryFrom": -1}, "retryFrom is -1"),
        ({"rejected": dict.fromkeys(range(1_001), "")}, "rejects more than 1000"),
        ({"retryFrom": 0, "retryDelayMs": -1}, "retryDelayMs is -1"),
        ({"retryFrom": 0, "retryDelayMs": 86_400_001}, "retryDelayMs is 86400001"),
        ({"rejected": {0: ""}, "retryDelayMs": 5}, "needs retryFrom"),
    ],
)
def test_an_answer_that_does_not_fit_its_call_is_none(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ReplyError, match=said):
        read_each(**fields)


def test_what_a_stranger_says_for_each_message_is_bounded() -> None:
    most = dict.fromkeys(range(1_000), "")
    found = read_each(rejected={**most, 0: "x\n" * 40_000}, reason="y" * 5_000, retryFrom=1_000)
    assert found.each is not None
    assert found.each.rejected[0] == "x " * (REASON_LENGTH_MAX // 2)
    assert found.reason == "y" * REASON_LENGTH_MAX
    with pytest.raises(NoCallError):
        read_each(rejected=dict.fromkeys(range(100), "x" * 5_000))
    numbers = b"\x0c\0\1\x0d\0\1\x08\x08\0\0\0\1" + bytes(8) + b"\0\0"
    head = replied(Answer(Status.DONE))[:-8]
    with pytest.raises(ReplyError, match="names no message"):
        read(head + numbers, 7)


def test_a_worker_of_an_earlier_release_takes_an_answer_for_each_message_for_none() -> None:
    data = replied(Answer(Status.RETRY, "", MessageAnswers({0: ""})))
    with pytest.raises(NoCallError):  # It has believed no structs in a reply.
        CallWalk(RECEIVED_BYTES_MAX, 0, REPLIES).end(data)


@given(st.text(max_size=100), SEQIDS)
def test_an_exception_is_an_error_with_its_text(text: str, seqid: int) -> None:
    error = TApplicationException(TApplicationException.INTERNAL_ERROR, text)
    data = reply("consumeMessages", TMessageType.EXCEPTION, seqid, error)
    with pytest.raises(ReplyError) as caught:
        read(data, seqid)
    assert str(caught.value) == (text or "the subscriber's answer has no status")


def test_the_answer_to_another_call_is_an_error() -> None:
    result = SERVICE.consumeMessages_result(success=0)
    for name, seqid in (("consumeMessages", 2), ("somethingElse", 1)):
        data = reply(name, TMessageType.REPLY, seqid, result)
        with pytest.raises(ReplyError):
            read(data, 1)


@given(st.binary(max_size=60))
def test_whatever_else_comes_is_an_error(data: bytes) -> None:
    with pytest.raises((ReplyError, NoCallError, EOFError)):
        read(data, 7)


@given(st.binary(max_size=40))
def test_whatever_else_comes_behind_its_head_is_an_error_or_a_status(data: bytes) -> None:
    result = SERVICE.consumeMessages_result(success=0)
    head = reply("consumeMessages", TMessageType.REPLY, 7, result)[:-8]
    with contextlib.suppress(ReplyError, NoCallError, EOFError):
        assert isinstance(read(head + data, 7), Reply)


def test_an_answer_without_end_is_an_error_after_so_many_bytes() -> None:
    result = SERVICE.consumeMessages_result(success=0)
    head = reply("consumeMessages", TMessageType.REPLY, 7, result)[:-8]
    for field in (
        b"\x02\0\x09\1",
        b"\x0a\0\x09" + bytes(8),
        b"\x0b\0\x09\0\0\xff\xff" + bytes(0xFFFF),
    ):
        sent = (head + field * (1 + RECEIVED_BYTES_MAX // len(field)))[:RECEIVED_BYTES_MAX]
        with pytest.raises(NoCallError):
            read(sent, 7)
