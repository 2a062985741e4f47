"""Calls and replies of Thrift's binary protocol as bytes, for code that moves the bytes itself."""

from __future__ import annotations

from typing import Any

from thriftpy2.protocol import TCyBinaryProtocol
from thriftpy2.thrift import TApplicationException, TClient, TProcessor
from thriftpy2.transport import TCyMemoryBuffer

__all__ = ["Processor", "RefusedCallError", "encode_call"]


class RefusedCallError(TApplicationException):
    """Raised by a handler for a call that makes no sense: the caller gets the text as an error."""

    def __init__(self, text: str) -> None:
        super().__init__(TApplicationException.PROTOCOL_ERROR, text)


class Processor:
    """Has a handler answer calls of a service.

    Args:
        service: the service, as `hqueue.rpc.services.load` has it.
        handler: has its methods.
        decodes_texts: whether they get texts as str; else as bytes, which may be no UTF-8.
    """

    def __init__(self, service: Any, handler: object, *, decodes_texts: bool = False) -> None:
        self._processor = TProcessor(service, handler)
        self._decodes_texts = decodes_texts

    def answer(self, call: bytes) -> bytes:
        """The reply to a call, which a `CallWalk` has found whole; empty where none is wanted.

        Raises:
            Exception: it can't be understood, or the handler raised what the IDL doesn't declare.
        """
        reply = TCyMemoryBuffer()
        self._processor.process(self._spoken(TCyMemoryBuffer(call)), self._spoken(reply))
        answer: bytes = reply.getvalue()
        return answer

    def _spoken(self, memory: Any) -> Any:
        return TCyBinaryProtocol(memory, decode_response=self._decodes_texts)  # type: ignore[no-untyped-call]


def encode_call(service: Any, method: str, *arguments: object) -> bytes:
    """A call that nothing comes back of."""
    sent = TCyMemoryBuffer()
    client = TClient(service, TCyBinaryProtocol(sent))  # type: ignore[no-untyped-call]
    getattr(client, method)(*arguments)
    call: bytes = sent.getvalue()
    return call
