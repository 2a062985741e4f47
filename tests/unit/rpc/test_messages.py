"""Calls as bytes: what was encoded is what a handler gets, and what it answers comes back."""

from __future__ import annotations

from typing import Any

import pytest
from thriftpy2.protocol import TCyBinaryProtocol
from thriftpy2.thrift import TApplicationException, TClient
from thriftpy2.transport import TCyMemoryBuffer

from hqueue.rpc.calls import check_call
from hqueue.rpc.messages import Processor, RefusedCallError, encode_call
from hqueue.rpc.services import load

SUBSCRIBER: Any = load("subscriber").HQueueSubscriberService
WORKER: Any = load("worker").HQueueWorkerService


class Handler:
    def __init__(self, answer: int | Exception = 1) -> None:
        self.got: list[Any] = []
        self._answer = answer

    def appended(self, *arguments: Any) -> None:
        self.got.append(arguments)

    def consumeMessages(self, messages: Any) -> int:  # noqa: N802  (the IDL's)
        self.got.append(messages)
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


def asked(handler: Handler) -> Any:
    """What a client makes of the reply to a call."""
    sent, received = TCyMemoryBuffer(), TCyMemoryBuffer()
    client = TClient(SUBSCRIBER, TCyBinaryProtocol(received), TCyBinaryProtocol(sent))  # type: ignore[no-untyped-call]
    client._send("consumeMessages", messages=[])
    received.setvalue(Processor(SUBSCRIBER, handler).answer(sent.getvalue()))
    return client._recv("consumeMessages")


@pytest.mark.parametrize(("decodes", "queue"), [(True, "q"), (False, b"q")])
def test_a_call_reaches_its_handler_and_one_that_wants_no_reply_gets_none(
    decodes: bool, queue: str | bytes
) -> None:
    call = encode_call(WORKER, "appended", "q", [1, 2], [])
    check_call(call, 10)
    handler = Handler()
    assert Processor(WORKER, handler, decodes_texts=decodes).answer(call) == b""
    assert handler.got == [(queue, [1, 2], [])]


def test_an_answer_comes_back() -> None:
    assert asked(Handler(2)) == 2


def test_a_call_that_is_refused_is_told_why() -> None:
    with pytest.raises(TApplicationException, match="because") as raised:
        asked(Handler(RefusedCallError("because")))
    assert raised.value.type == TApplicationException.PROTOCOL_ERROR


def test_what_a_handler_did_not_mean_to_raise_is_no_answer() -> None:
    with pytest.raises(ZeroDivisionError):
        asked(Handler(ZeroDivisionError()))
