"""A service whose handler is called in an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from hqueue.rpc.server import ThriftServer, calling_host
from hqueue.rpc.services import load
from tests.support.looped import LoopThread
from tests.support.thrift_calls import field, head, listed
from tests.support.waiting import wait_for

IDL, API = load("hub"), load("hqueue")
WAIT_S = 30.0
THREADS = 4
ADDRESS = head(b"apiAddress") + b"\0"
_MESSAGE = field(11, 4, struct.pack(">i", 1) + b"v") + b"\0"


def publish(count: int) -> bytes:
    messages = field(15, 4, listed(12, count, _MESSAGE * count))
    return head(b"publishMessages") + messages + b"\0"


class Hub:
    """Answers with a coroutine, with a future, and at once."""

    def __init__(self) -> None:
        self.may = asyncio.Event()
        self.begun = self.most = 0
        self.hosts: list[str] = []
        self.failure: BaseException | None = None
        self.threads: list[int] = []
        self.numbers: Future[Any] = Future()

    def apiAddress(self) -> str:  # noqa: N802  (the IDL's)
        return calling_host()

    def publishMessages(  # noqa: N802  (the IDL's)
        self, queue: Any, publisher: Any, topic: Any, messages: Any, again: Any
    ) -> Any:
        self.threads.append(threading.get_ident())
        return self._published(len(messages), self.failure)

    def newestNumber(self, *given: Any) -> Future[Any]:  # noqa: N802  (the IDL's)
        return self.numbers

    async def _published(self, count: int, failure: BaseException | None) -> Any:
        if failure is not None:
            raise failure
        self.begun += 1
        self.most = max(self.most, self.begun)
        self.threads.append(threading.get_ident())
        await self.may.wait()
        self.begun -= 1
        self.hosts.append(calling_host())
        return IDL.TPublished(load("subscriber").TMessageID(count, 0), 0, count)


class Served:
    """The service, and the loop that it is served in."""

    def __init__(self, handler: Any, service: Any = IDL.HQueueHubService, **options: Any) -> None:
        self.thread = LoopThread()
        self.handler = handler
        listener = socket.create_server(("127.0.0.1", 0))
        self._address = listener.getsockname()
        self.server = ThriftServer(
            service,
            handler,
            listener,
            threads=THREADS,
            in_loop=True,
            connections_max=64,
            call_bytes_max=1 << 24,
            idle_ms_max=60_000,
            **options,
        )
        self.thread.call(self.server.start)

    def connect(self) -> socket.socket:
        return socket.create_connection(self._address, WAIT_S)

    def let(self) -> None:
        self.thread.call(self.handler.may.set)

    def close(self) -> None:
        self.let()
        self.server.close(10_000)
        self.thread.close()


Serve = Callable[..., Served]


@pytest.fixture
def hub() -> Iterator[Served]:
    served = Served(Hub())
    yield served
    served.close()


def test_calls_that_come_together_are_answered_one_after_another(hub: Served) -> None:
    hub.let()
    calls = [head(b"apiAddress", seqid=seqid) + b"\0" for seqid in range(1, 11)]
    calls[4] = head(b"publishMessages", seqid=5) + publish(1)[len(head(b"publishMessages")) :]
    with hub.connect() as caller:
        caller.sendall(b"".join(calls)[:-1])
        answers = b""
        while answers.count(b"\x80\x01\x00\x02") < 9:
            answers += caller.recv(4_096)
        caller.sendall(calls[-1][-1:])
        while answers.count(b"\x80\x01\x00\x02") < 10:
            answers += caller.recv(4_096)
    seqids = [
        int.from_bytes(each[4 + length : 8 + length], "big")
        for each in answers.split(b"\x80\x01\x00\x02")[1:]
        for length in [int.from_bytes(each[:4], "big")]
    ]
    assert seqids == [*range(1, 11)]


def test_any_number_of_calls_that_come_together_behind_one_that_waits_are_answered(
    hub: Served,
) -> None:
    many = 4_000

    def ask(calls: bytes, count: int) -> None:
        caller.sendall(calls)
        while count > 0:
            came = caller.recv(1 << 16)
            assert came, f"hung up on with {count} calls to be answered"
            count -= came.count(b"\x80\x01\x00\x02")

    hub.let()
    with hub.connect() as caller:
        caller.settimeout(WAIT_S)
        ask(ADDRESS * many, many)
        for _ in range(4):
            ask(publish(1) + ADDRESS * many, 1 + many)


def test_one_that_is_still_to_be_answered_keeps_no_other(hub: Served) -> None:
    with hub.connect() as waiting, hub.connect() as numbering, hub.connect() as other:
        waiting.sendall(publish(1))
        numbering.sendall(head(b"newestNumber") + b"\0")
        wait_for(lambda: hub.handler.begun == 1, "it has begun")
        other.sendall(ADDRESS)
        assert b"127.0.0.1" in other.recv(100)
        hub.handler.numbers.set_result(IDL.TNewestNumber(7))  # From this thread.
        assert numbering.recv(100)
        hub.let()
        assert waiting.recv(100)
    assert hub.handler.hosts == ["127.0.0.1"]


def test_a_bounded_number_of_coroutines_is_under_way_and_all_are_answered(hub: Served) -> None:
    with contextlib.ExitStack() as stack:
        callers = [stack.enter_context(hub.connect()) for _ in range(3 * THREADS)]
        for each in callers:
            each.sendall(publish(1))
        wait_for(lambda: hub.handler.begun == THREADS, "as many have begun as may")
        with hub.connect() as other:
            other.sendall(ADDRESS)
            assert other.recv(100)
        hub.let()
        assert all(each.recv(100) for each in callers)
    assert hub.handler.most == THREADS


def test_a_large_call_is_read_beside_the_loop_and_acted_upon_in_it(hub: Served) -> None:
    hub.let()
    loop_thread = hub.thread.call(threading.get_ident)
    with hub.connect() as caller:
        caller.sendall(publish(20_000))
        assert caller.recv(100)
        read, acted = hub.handler.threads
        assert read != loop_thread
        assert acted == loop_thread
        caller.sendall(publish(1))
        assert caller.recv(100)
        assert hub.handler.threads[2:] == [loop_thread] * 2


def test_a_large_call_has_its_memory_until_its_coroutine_is_done(hub: Served) -> None:
    with hub.connect() as caller:
        caller.sendall(publish(20_000))
        wait_for(lambda: hub.handler.begun == 1, "it has begun")
        assert hub.server.usage.memory_bytes > 0, "what it was made of is there still"
        hub.let()
        assert caller.recv(100)
    assert hub.server.usage.memory_bytes == 0


class Api:
    """Has a long list of queues' locations."""

    def __init__(self) -> None:
        self.may = asyncio.Event()

    async def getQueueLocations(self, queue: Any) -> list[Any]:  # noqa: N802  (the IDL's)
        await self.may.wait()
        return [API.TQueueLocation(partitionID=at, host="h", port=1) for at in range(5_000)]


def test_a_long_answer_is_written_whole() -> None:
    served = Served(Api(), API.HQueueService, large_answers=["getQueueLocations"])
    served.let()
    call = head(b"getQueueLocations") + field(11, 1, struct.pack(">i", 1) + b"q") + b"\0"
    came = b""
    with served.connect() as caller:
        caller.sendall(call)
        while not came.endswith(b"\x08\0\3\0\0\0\1\0\0"):
            piece = caller.recv(1 << 20)
            assert piece
            came += piece
    assert came.count(b"\0\0\0\1h") == 5_000
    assert served.server.usage.memory_bytes == 0
    served.close()


def test_closing_answers_what_is_under_way_and_takes_no_more(hub: Served) -> None:
    with hub.connect() as caller, hub.connect() as idle:
        idle.sendall(ADDRESS)
        assert idle.recv(100)
        caller.sendall(publish(1))
        wait_for(lambda: hub.handler.begun == 1, "it has begun")
        closed: list[bool] = []
        closing = threading.Thread(target=lambda: closed.append(hub.server.close(20_000)))
        closing.start()
        assert idle.recv(100) == b""
        hub.let()
        assert caller.recv(100)
        closing.join(10)
    assert closed == [True]


def test_one_that_stays_under_way_keeps_closing_no_longer_than_it_may(hub: Served) -> None:
    with hub.connect() as caller:
        caller.sendall(publish(1))
        wait_for(lambda: hub.handler.begun == 1, "it has begun")
        assert not hub.server.close(100)
        assert caller.recv(100) == b""


def test_whatever_a_handler_raises_ends_its_call_and_nothing_else(hub: Served) -> None:
    hub.handler.failure = asyncio.CancelledError()
    with hub.connect() as caller:
        caller.sendall(publish(1))
        assert caller.recv(100) == b""
    hub.handler.failure = None
    hub.let()
    with hub.connect() as caller:
        caller.sendall(publish(1))
        assert caller.recv(100)
