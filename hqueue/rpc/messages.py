"""Calls and replies of Thrift's binary protocol as bytes, for code that moves the bytes itself."""

from __future__ import annotations

import asyncio
import functools
import types
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from typing import Any, ClassVar, NamedTuple

from thriftpy2.protocol import TCyBinaryProtocol
from thriftpy2.thrift import (
    TApplicationException,
    TClient,
    TMessageType,
    TPayload,
    TProcessor,
    TType,
)
from thriftpy2.transport import TCyMemoryBuffer

from hqueue.rpc.calls import NoCallError, call_head
from hqueue.runtime.memory import without_collection
from hqueue.runtime.switch_interval import short_turns

__all__ = [
    "Awaited",
    "Client",
    "InTurns",
    "Processor",
    "ReadCall",
    "Reasoned",
    "RefusedCallError",
    "decode_reply",
    "drop_frames",
    "encode_call",
    "read_reasoned",
]


LARGE_BYTES = 16 * 1024


class RefusedCallError(TApplicationException):
    """Raised by a handler for an invalid call: the caller gets the text as an error."""

    def __init__(self, text: str) -> None:
        super().__init__(TApplicationException.PROTOCOL_ERROR, text)


class Reasoned(TPayload):
    """A handler's answer that is a number with a text, if the text is not empty.

    The IDL can't describe this. A client that knows only the IDL skips the text, which is field 2
    of the reply.
    """

    thrift_spec: ClassVar[dict[int, tuple[Any, ...]]] = {
        0: (TType.I32, "number", False),
        2: (TType.STRING, "reason", False),
    }

    def __init__(self, number: int, reason: str) -> None:
        self.number = int(number)
        self.reason = reason or None


Awaited = Future[Any] | asyncio.Future[Any]
"""What a handler may return in place of its answer."""


class ReadCall(NamedTuple):
    """A call that was read."""

    api: str
    seqid: int
    result: Any
    """An empty reply."""
    handle: Callable[[], Any] | None
    """Calls the handler; None if there is no such method."""


class Processor:
    """Has a handler answer calls of a service.

    Args:
        service: the service, as `hqueue.rpc.services.load` has it.
        handler: has the service's methods.
        decodes_texts: whether the methods get texts as str; if not, as bytes, which may not be
            UTF-8.
    """

    def __init__(self, service: Any, handler: object, *, decodes_texts: bool = False) -> None:
        self._service = service
        self._processor = _Processor(service, handler)
        self._decodes_texts = decodes_texts

    def answer(self, call: bytes | bytearray) -> bytes:
        """The reply to a call, which a `CallWalk` has found whole; empty where none is wanted.

        Raises:
            Exception: it can't be understood, or the handler raised what the IDL doesn't declare.
        """
        _, finish = self.begin(self.read(call))
        return finish()

    def read(self, call: bytes | bytearray) -> ReadCall:
        """Decode the bytes of a call.

        Raises:
            Exception: the call can't be understood.
        """
        read = self._spoken(TCyMemoryBuffer(call))
        # Most calls make no more than a few objects: those don't pay for it.
        with nullcontext() if len(call) < LARGE_BYTES else _reading_much():
            return ReadCall(*self._processor.process_in(read))

    def begin(
        self,
        call: ReadCall,
        start: Callable[[Coroutine[Any, Any, Any]], Awaited] | None = None,
    ) -> tuple[Awaited | None, Callable[[], bytes]]:
        """Let the handler begin a call. A handler may return a future or a coroutine in place of
        its answer: then the reply can be made when that is done, without waiting. Otherwise the
        reply can be made at once.

        Args:
            call: the call.
            start: runs a coroutine.

        Returns:
            The future to wait for, and a function that makes the reply.

        Raises:
            Exception: as `answer`, and what makes the reply raises as well.
        """
        api, seqid, result, handle = call
        outcome: Future[Any] = Future()
        if handle is not None:
            try:
                value = handle()
            except BaseException as exc:  # A handler's `SystemExit` ends its call, not the thread.
                outcome.set_exception(exc)
            else:
                if start is not None and isinstance(value, types.CoroutineType):
                    value = start(value)
                if isinstance(value, (Future, asyncio.Future)):
                    return value, lambda: self._reply(api, seqid, result, value.result)
                outcome.set_result(value)
        return None, lambda: self._reply(api, seqid, result, outcome.result)

    def refuse(self, begun: bytes, error: Exception) -> bytes:
        """The reply to a call that is not served, with an error that its method declares, or else
        the error's text as Thrift's own. Empty if nobody waits for it, or the call does not say.

        Args:
            begun: the part of the call that has come.
            error: why the call is not served.
        """
        head = call_head(begun)
        if head is None:
            return b""
        method, seqid = head
        known = method in self._service.thrift_services
        result = getattr(self._service, f"{method}_result")() if known else None
        if result is None or not self._processor.handle_exception(error, result):
            text = getattr(error, "message", None) or str(error)
            result = RefusedCallError(text)
        reply = TCyMemoryBuffer()
        send = (
            self._processor.send_exception
            if isinstance(result, TApplicationException)
            else self._processor.send_result
        )
        send(self._spoken(reply), method, result, seqid)
        sent: bytes = reply.getvalue()
        return sent

    def _reply(self, api: str, seqid: int, result: Any, answer: Callable[[], Any]) -> bytes:
        reply = TCyMemoryBuffer()
        self._processor.reply(self._spoken(reply), api, seqid, result, answer)
        sent: bytes = reply.getvalue()
        return sent

    def _spoken(self, memory: Any) -> Any:
        return TCyBinaryProtocol(memory, decode_response=self._decodes_texts)  # type: ignore[no-untyped-call]


def drop_frames(error: BaseException) -> None:
    """Drop the frames of a handled error, and those of the errors that caused it.

    Frames mostly refer to the error, so all objects of a call would be kept until Python looks for
    cycles: for a large call 360,000 objects, which takes a tenth of a second in which nothing else
    runs.
    """
    came: BaseException | None = error
    while came is not None and came.__traceback__ is not None:
        came.__traceback__ = None
        came = came.__context__


@contextmanager
def _reading_much() -> Iterator[None]:
    with without_collection(), short_turns():
        yield


class _Processor(TProcessor):
    """Sends a `Reasoned` answer as the whole reply."""

    def reply(
        self, oprot: Any, api: str, seqid: int, result: Any, answer: Callable[[], Any]
    ) -> None:
        """Write the reply to a call, which `process_in` has read, or nothing where none is
        wanted.
        """
        if isinstance(result, TApplicationException):
            self.send_exception(oprot, api, result, seqid)
            return
        try:
            result.success = answer()
        except TApplicationException as exc:
            self.send_exception(oprot, api, exc, seqid)
            drop_frames(exc)
            return
        except Exception as exc:
            if not self.handle_exception(exc, result):
                raise
            drop_frames(exc)
        if not result.oneway:
            self.send_result(oprot, api, result, seqid)

    def send_result(self, oprot: Any, api: str, result: TPayload, seqid: int) -> None:
        answer = getattr(result, "success", None)
        super().send_result(oprot, api, answer if isinstance(answer, Reasoned) else result, seqid)


class InTurns:
    """A list for `encode_call` that lets other threads run between its items. thriftpy2's compiled
    code encodes a plain list without a pause: 30,000 messages take tens of milliseconds.

    Args:
        items: the list.
    """

    def __init__(self, items: Sequence[Any]) -> None:
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Any]:
        return (each for each in self._items)  # At each, Python looks whether others wait.


def encode_call(service: Any, method: str, *arguments: object) -> bytes:
    """A call of a method of a service."""
    sent = TCyMemoryBuffer()
    client = _Sender(service, TCyBinaryProtocol(sent))  # type: ignore[no-untyped-call]
    getattr(client, method)(*arguments)
    call: bytes = sent.getvalue()
    return call


def decode_reply(service: Any, method: str, reply: bytes) -> Any:
    """The answer in a reply that a `CallWalk` has found complete. Texts are bytes.

    Raises:
        Exception: the reply is an error, which the IDL declares or is Thrift's own.
    """
    spoken = TCyBinaryProtocol(TCyMemoryBuffer(reply), decode_response=False)  # type: ignore[no-untyped-call]
    return Client(service, spoken)._recv(method)


def read_reasoned(service: Any, method: str, seqid: int, reply: bytes) -> Any:
    """The fields of the reply to a call, by their names in the IDL, and `reason`, the text of a
    `Reasoned`. Fields that the reply does not have are None; texts are bytes. A `CallWalk` must
    have found the reply complete.

    Raises:
        NoCallError: the reply belongs to another call, or is an error, whose text it has.
    """
    spoken = TCyBinaryProtocol(TCyMemoryBuffer(reply), decode_response=False)  # type: ignore[no-untyped-call]
    name, kind, number = spoken.read_message_begin()  # type: ignore[no-untyped-call]
    if (name, number) != (method, seqid):
        raise NoCallError("the reply belongs to another call")
    said: Any
    said = TApplicationException() if kind == TMessageType.EXCEPTION else _reply(service, method)
    said.read(spoken)
    if kind == TMessageType.EXCEPTION:
        text = said.message or b""
        raise NoCallError(text.decode(errors="replace") if isinstance(text, bytes) else text)
    return said


@functools.cache
def _reply_class(service: Any, method: str) -> type[TPayload]:
    result = getattr(service, f"{method}_result")
    fields = {**Reasoned.thrift_spec, **result.thrift_spec}
    names = dict.fromkeys(field[1] for field in fields.values())
    return type("ReasonedReply", (TPayload,), {"thrift_spec": fields, **names})


def _reply(service: Any, method: str) -> TPayload:
    return _reply_class(service, method)()


class Client(TClient):
    """Calls a service. Where texts are read as bytes, thriftpy2's client reads the text of an error
    of Thrift itself so, too, and `str` of that error raises a `TypeError`.
    """

    def _recv(self, api: str) -> Any:
        try:
            return super()._recv(api)
        except TApplicationException as exc:
            if isinstance(exc.message, bytes):
                exc.message = exc.message.decode(errors="replace")
            raise


class _Sender(TClient):
    """Waits for no reply."""

    def _recv(self, api: str) -> None:
        pass
