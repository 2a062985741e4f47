"""Calls whose answers are large: however many there are, others are answered beside them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from hqueue.rpc.server import ThriftServer
from hqueue.rpc.services import load
from tests.support.looped import LoopThread
from tests.support.thrift_calls import field, head
from tests.support.waiting import wait_for

THREADS = 4
WAIT_S = 30.0
GET = (
    head(b"messageScannerGetList")
    + field(11, 1, struct.pack(">i", 2) + b"id")
    + field(8, 2, struct.pack(">i", 1_000))
    + b"\0"
)
LOCATE = head(b"getQueueLocations") + field(11, 1, struct.pack(">i", 1) + b"q") + b"\0"


class Handler:
    """Has a large answer when it may go on; in threads, or in an event loop."""

    def __init__(self, thread: LoopThread | None) -> None:
        self.thread = thread
        self.may_go_on = threading.Event()
        self.begun = threading.Semaphore(0)
        self.answered = 0

    def messageScannerGetList(self, scanner: Any, count: Any) -> Any:  # noqa: N802
        self.begun.release()
        if self.thread is not None:
            return self._later()
        assert self.may_go_on.wait(WAIT_S)
        self.answered += 1
        return []

    async def _later(self) -> list[Any]:
        while not self.may_go_on.is_set():
            await asyncio.sleep(0.001)
        self.answered += 1
        return []

    def getQueueLocations(self, queue: Any) -> list[Any]:  # noqa: N802
        return []


@pytest.fixture(params=["threads", "loop"])
def handler(request: pytest.FixtureRequest) -> Iterator[Handler]:
    made = Handler(LoopThread() if request.param == "loop" else None)
    yield made
    made.may_go_on.set()
    if made.thread is not None:
        made.thread.close()


@pytest.fixture
def port(handler: Handler) -> Iterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = ThriftServer(
        load("hqueue").HQueueService,
        handler,
        listener,
        threads=THREADS,
        in_loop=handler.thread is not None,
        connections_max=64,
        call_bytes_max=2**20,
        idle_ms_max=60_000,
        large_answers=["messageScannerGetList"],
    )
    port: int = listener.getsockname()[1]
    if handler.thread is None:
        server.start()
    else:
        handler.thread.call(server.start)
    yield port
    handler.may_go_on.set()
    server.close(5_000)


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)


def test_a_small_call_is_answered_though_all_threads_could_be_at_large_answers(
    handler: Handler, port: int
) -> None:
    with contextlib.ExitStack() as stack:
        many = [stack.enter_context(connect(port)) for _ in range(5 * THREADS)]
        for each in many:
            each.sendall(GET)
        for _ in range(THREADS // 2):
            assert handler.begun.acquire(timeout=WAIT_S)
        with connect(port) as honest:
            honest.sendall(LOCATE)
            assert honest.recv(100)
        assert not handler.begun.acquire(blocking=False)
        handler.may_go_on.set()
        assert all(each.recv(100) for each in many)
    assert handler.answered == len(many)


def test_nothing_is_done_for_callers_that_left_while_they_waited_for_their_turn(
    handler: Handler, port: int
) -> None:
    with contextlib.ExitStack() as stack:
        stay = [stack.enter_context(connect(port)) for _ in range(THREADS // 2)]
        for each in stay:
            each.sendall(GET)
        for _ in stay:
            assert handler.begun.acquire(timeout=WAIT_S)
        with contextlib.ExitStack() as leaving:
            for _ in range(20):
                leaving.enter_context(connect(port)).sendall(GET)
            with connect(port) as later:  # When it is answered the calls before it wait.
                later.sendall(LOCATE)
                assert later.recv(100)
        handler.may_go_on.set()
        assert all(each.recv(100) for each in stay)
        with connect(port) as last:
            last.sendall(GET)
            assert last.recv(100)
        wait_for(lambda: handler.answered == len(stay) + 1, "the last one is answered")
