"""Calls that are not served: their callers learn why, and whether calling again helps."""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from thriftpy2.protocol import TBinaryProtocol
from thriftpy2.rpc import make_client
from thriftpy2.thrift import TApplicationException
from thriftpy2.transport import TMemoryBuffer

from hqueue.rpc.admission import LIGHT_BYTES
from hqueue.rpc.calls import OBJECT_BYTES
from hqueue.rpc.server import ThriftServer
from hqueue.rpc.services import load
from hqueue_workers.hub.serving.answers import as_thrift
from tests.support.looped import LoopThread
from tests.support.thrift_calls import HOSTILE, field, head, listed
from tests.support.waiting import wait_for

IDL, STRUCTS = load("hub"), load("subscriber")
CALL_BYTES_MAX = 8 * 2**20
HEAVY = 2 * LIGHT_BYTES // OBJECT_BYTES
"""Messages of a call that is not light."""
MESSAGE = field(11, 3, struct.pack(">i", 1) + b"t") + field(11, 4, struct.pack(">i", 1) + b"v\0")
HEAVY_BYTES = HEAVY * len(MESSAGE)
TEXT = struct.pack(">i", CALL_BYTES_MAX) + b"a" * CALL_BYTES_MAX


class Hub:
    """Publishes when it may; in threads, or in an event loop."""

    def __init__(
        self, thread: LoopThread | None, as_declared: Any = as_thrift, **options: int
    ) -> None:
        self._in_loop = thread is not None
        self.may = threading.Event()
        self.may.set()
        self.begun = 0
        self._lock = threading.Lock()
        listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = listener.getsockname()[1]
        chosen = {"idle_ms_max": 20_000, **options}
        self.server = ThriftServer(
            IDL.HQueueHubService,
            self,
            listener,
            threads=8,
            in_loop=self._in_loop,
            connections_max=64,
            call_bytes_max=CALL_BYTES_MAX,
            as_declared=as_declared,
            **chosen,
        )
        if thread is None:
            self.server.start()
        else:
            thread.call(self.server.start)

    def publishMessages(  # noqa: N802  (the IDL's)
        self, queue: Any, publisher: Any, topic: Any, messages: Any, again: Any
    ) -> Any:
        with self._lock:
            self.begun += 1
        published = IDL.TPublished(STRUCTS.TMessageID(7, len(messages)), 0, 1)
        if self._in_loop:
            return self._later(published)
        self.may.wait(30)
        return published

    async def _later(self, published: Any) -> Any:
        while not self.may.is_set():
            await asyncio.sleep(0.001)
        return published

    def apiAddress(self) -> str:  # noqa: N802
        return ""

    def client(self) -> Any:
        return make_client(IDL.HQueueHubService, "127.0.0.1", self.port, timeout=30_000)

    def publish(self, count: int) -> int:
        with contextlib.closing(self.client()) as client:
            return publish(client, count)

    @contextlib.contextmanager
    def taken_up(self) -> Iterator[Future[int]]:
        """With a heavy call under way, which has its memory until `may` is set; its answer."""
        self.may.clear()
        with ThreadPoolExecutor(1) as caller:
            try:
                heavy = caller.submit(self.publish, HEAVY)
                wait_for(lambda: self.begun, "it has begun")
                yield heavy
            finally:
                self.may.set()


def _has_answer(caller: socket.socket) -> bool:
    return bool(select.select([caller], [], [], 0)[0])


def publish(client: Any, count: int) -> int:
    messages = [STRUCTS.TMessage(topic=b"t", value=b"v")] * count
    published = client.publishMessages("q", "me", "t", messages, False)
    return int(published.id.sequenceID)


Serve = Callable[..., Hub]


@pytest.fixture(params=["threads", "loop"])
def serve(request: pytest.FixtureRequest) -> Iterator[Serve]:
    hubs: list[Hub] = []
    thread = LoopThread() if request.param == "loop" else None

    def start(**options: Any) -> Hub:
        hubs.append(Hub(thread, **options))
        return hubs[-1]

    yield start
    for hub in hubs:
        hub.may.set()
        hub.server.close(5_000)
    if thread is not None:
        thread.close()


def answered(port: int, call: bytes) -> bytes:
    """All that is answered to a call that is sent to its end, as Thrift's clients do."""
    with socket.create_connection(("127.0.0.1", port), 20) as caller:
        caller.sendall(call)
        return _all_of(caller)


def _all_of(caller: socket.socket) -> bytes:
    """What comes until the other side ends."""
    answer = b""
    while piece := caller.recv(65_536):
        answer += piece
    return answer


def error_of(answer: bytes, method: str = "publishMessages") -> Any:
    """The error that an answer is."""
    protocol = TBinaryProtocol(TMemoryBuffer(answer))
    name, kind, seqid = protocol.read_message_begin()
    assert (name, seqid) == (method, 7)
    if kind == 3:
        error = TApplicationException()
        error.read(protocol)
        return error
    result = getattr(IDL.HQueueHubService, f"{method}_result")()
    result.read(protocol)
    return result.illegalArgument or result.busy


REFUSED = {
    **HOSTILE,
    "a text longer than a call": field(11, 3, TEXT) + b"\0",
    "more structs than a call has": field(15, 4, listed(12, 600_000, bytes(600_000))) + b"\0",
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_caller_whose_call_no_server_would_read_is_told_why_as_the_idl_says(
    name: str, serve: Serve
) -> None:
    hub = serve()
    # All fields after the one that is refused are sent, too: it reads its answer after that.
    sent = head(b"publishMessages") + REFUSED[name] + bytes(100_000)
    if name.endswith("text of less than nothing") or "does not end" in name:
        sent += bytes(CALL_BYTES_MAX)
    error = error_of(answered(hub.port, sent))
    assert isinstance(error, IDL.TIllegalArgument)
    assert "the server refuses the call" in error.message
    assert hub.publish(1) == 1


def test_a_caller_of_a_service_without_such_an_error_gets_thrift_s_own(serve: Serve) -> None:
    hub = serve(as_declared=None)
    deep = field(15, 1, listed(15, 1) * 100)
    error = error_of(answered(hub.port, head(b"publishMessages") + deep))
    assert isinstance(error, TApplicationException)
    assert error.type == TApplicationException.PROTOCOL_ERROR
    assert "deep" in error.message


@pytest.mark.parametrize("begun", [head(b"publishMessages", kind=4), head(b"x" * 300), b"GET / H"])
def test_nothing_is_said_to_a_caller_that_waits_for_no_answer(serve: Serve, begun: bytes) -> None:
    deep = field(15, 1, listed(15, 1) * 100)
    with contextlib.suppress(ConnectionResetError):
        assert not answered(serve().port, begun + deep)


def test_one_that_was_told_and_goes_on_to_send_is_hung_up_on(serve: Serve) -> None:
    hub = serve(idle_ms_max=300)
    with socket.create_connection(("127.0.0.1", hub.port), 20) as caller:
        caller.sendall(head(b"publishMessages") + field(15, 1, listed(15, 1) * 100))
        caller.setblocking(False)
        wait_for(lambda: _is_ended(caller), "it is hung up on", pause_s=0.0005)


def _is_ended(caller: socket.socket) -> bool:
    """Whether one that never stops to send is hung up on."""
    try:
        caller.send(bytes(1_000))
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    return False


def test_heavy_calls_that_come_at_once_are_served_one_after_another(serve: Serve) -> None:
    hub = serve(memory_bytes_max=3 * LIGHT_BYTES)
    with ThreadPoolExecutor(24) as callers:
        assert [*callers.map(hub.publish, [HEAVY] * 24)] == [HEAVY] * 24
    assert hub.begun == 24


def test_a_heavy_call_whose_turn_does_not_come_is_to_be_made_again_and_light_ones_go_on(
    serve: Serve,
) -> None:
    hub = serve(memory_bytes_max=3 * LIGHT_BYTES, idle_ms_max=1_000)
    with contextlib.closing(hub.client()) as client, hub.taken_up() as heavy:
        began_s = time.monotonic()
        with pytest.raises(IDL.TBusy, match="call again"):
            publish(client, HEAVY)
        assert time.monotonic() - began_s < 10
        assert client.apiAddress() == ""
        hub.may.set()
        assert heavy.result(20) == HEAVY
        assert publish(client, 1) == 1
        assert publish(client, HEAVY) == HEAVY


def test_more_large_calls_than_may_wait_are_to_be_made_again(
    serve: Serve,
) -> None:
    hub = serve(
        memory_bytes_max=3 * LIGHT_BYTES, held_bytes_max=5 * HEAVY_BYTES, idle_ms_max=30_000
    )
    with hub.taken_up() as heavy, ThreadPoolExecutor(2) as callers:
        waiting = [callers.submit(hub.publish, HEAVY) for _ in range(2)]
        wait_for(lambda: hub.server.usage.waiting_calls == 2, "as many wait as may")
        for _ in range(3):
            with pytest.raises(IDL.TBusy, match="as many large calls wait for their turn as may"):
                hub.publish(HEAVY)
        hub.may.set()
        assert [call.result(20) for call in (heavy, *waiting)] == [HEAVY] * 3


def test_what_goes_for_others_when_all_hold_too_much_is_to_be_made_again(serve: Serve) -> None:
    hub = serve(held_bytes_max=HEAVY_BYTES, idle_ms_max=30_000)
    half = listed(12, 2 * HEAVY, b"".join([MESSAGE] * HEAVY))
    begun = head(b"publishMessages") + field(15, 4, half[: HEAVY_BYTES * 3 // 4])
    with contextlib.ExitStack() as stack:
        callers = [
            stack.enter_context(socket.create_connection(("127.0.0.1", hub.port), 20))
            for _ in range(2)
        ]
        callers[0].sendall(begun)
        wait_for(lambda: hub.server.usage.held_bytes >= len(begun), "it has begun")
        callers[1].sendall(begun)
        wait_for(lambda: _has_answer(callers[0]), "it was refused")
        callers[0].sendall(bytes(2 * HEAVY_BYTES))  # It goes on to send all of its call.
        assert isinstance(error_of(_all_of(callers[0])), IDL.TBusy)
