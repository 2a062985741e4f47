"""Calls as bytes: what was encoded is what a handler gets, and what it answers comes back."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from thriftpy2.protocol import TCyBinaryProtocol
from thriftpy2.thrift import TApplicationException, TClient
from thriftpy2.transport import TCyMemoryBuffer

from hqueue.rpc.calls import check_call
from hqueue.rpc.messages import (
    InTurns,
    Processor,
    Reasoned,
    RefusedCallError,
    drop_frames,
    encode_call,
)
from hqueue.rpc.services import load

SUBSCRIBER: Any = load("subscriber").HQueueSubscriberService
WORKER: Any = load("worker").HQueueWorkerService


class Handler:
    def __init__(self, answer: int | Reasoned | Exception = 1) -> None:
        self.got: list[Any] = []
        self._answer = answer

    def appended(self, *arguments: Any) -> None:
        self.got.append(arguments)

    def consumeMessages(self, messages: Any) -> int | Reasoned:  # noqa: N802  (the IDL's)
        self.got.append(messages)
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


def client_of(received: TCyMemoryBuffer, sent: TCyMemoryBuffer) -> TClient:
    return TClient(SUBSCRIBER, TCyBinaryProtocol(received), TCyBinaryProtocol(sent))  # type: ignore[no-untyped-call]


def replied(handler: Handler) -> bytes:
    """The reply to a call."""
    sent = TCyMemoryBuffer()
    client_of(TCyMemoryBuffer(), sent)._send("consumeMessages", messages=[])
    return Processor(SUBSCRIBER, handler).answer(sent.getvalue())


def asked(handler: Handler) -> Any:
    """What a client makes of the reply to a call."""
    return client_of(TCyMemoryBuffer(replied(handler)), TCyMemoryBuffer())._recv("consumeMessages")


@pytest.mark.parametrize(("decodes", "queue"), [(True, "q"), (False, b"q")])
def test_a_call_reaches_its_handler_and_one_that_wants_no_reply_gets_none(
    decodes: bool, queue: str | bytes
) -> None:
    call = encode_call(WORKER, "appended", "q", [1, 2], [])
    check_call(call, 10)
    handler = Handler()
    assert Processor(WORKER, handler, decodes_texts=decodes).answer(call) == b""
    assert handler.got == [(queue, [1, 2], [])]


def test_a_list_that_is_encoded_in_turns_is_the_same_list() -> None:
    numbers = list(range(1_000))
    call = encode_call(WORKER, "appended", "q", numbers, [])
    assert encode_call(WORKER, "appended", "q", InTurns(numbers), InTurns([])) == call


def test_an_answer_comes_back() -> None:
    assert asked(Handler(2)) == 2


@pytest.mark.parametrize(("reason", "field"), [("", b""), ("wäre", b"\x0b\0\2\0\0\0\5w\xc3\xa4re")])
def test_an_answer_with_a_reason_is_the_same_to_whoever_knows_the_idl_alone(
    reason: str, field: bytes
) -> None:
    assert asked(Handler(Reasoned(2, reason))) == 2
    bare = replied(Handler(2))
    assert replied(Handler(Reasoned(2, reason))) == bare[:-1] + field + bare[-1:]


def test_a_call_that_is_refused_is_told_why() -> None:
    with pytest.raises(TApplicationException, match="because") as raised:
        asked(Handler(RefusedCallError("because")))
    assert raised.value.type == TApplicationException.PROTOCOL_ERROR


def test_what_a_handler_did_not_mean_to_raise_is_no_answer() -> None:
    with pytest.raises(ZeroDivisionError):
        asked(Handler(ZeroDivisionError()))


class Refusing:
    """Raises an error that refers to itself by its frames, as handlers' errors do."""

    def __init__(self, error: type[Exception]) -> None:
        self._error = error
        self.got: list[weakref.ref[Any]] = []

    def consumeMessages(self, messages: Any) -> int:  # noqa: N802  (the IDL's)
        self.got += map(weakref.ref, messages)
        try:
            raise ValueError(messages)
        except ValueError as exc:
            raised = self._error("refused")
            raise raised from exc


@pytest.mark.parametrize("error", [RefusedCallError, ValueError])
def test_nothing_of_a_refused_call_waits_for_python_to_look_for_cycles(
    error: type[Exception],
) -> None:
    handler = Refusing(error)
    messages = [load("subscriber").TMessage(value=b"v") for _ in range(3)]
    sent = TCyMemoryBuffer()
    client_of(TCyMemoryBuffer(), sent)._send("consumeMessages", messages=messages)
    call = sent.getvalue()
    gc.disable()
    try:
        try:
            Processor(SUBSCRIBER, handler).answer(call)
        except ValueError as exc:
            drop_frames(exc)
        assert [one() for one in handler.got] == [None] * 3
    finally:
        gc.enable()
