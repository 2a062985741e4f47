"""Reading a node by a session of one request, from servers that hang, lie or break off."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hqueue import RequestRefusedError, Settings, StoreUnavailableError
from hqueue.settings.addresses import Address
from hqueue.zookeeper import ZooKeeperNodes
from tests.support.awaited import LoopedSteps
from tests.support.cancelling import each_await
from tests.support.looped import LoopThread

BOUND_MS = 2_000
NO_NODE, NO_AUTH, AUTH_FAILED, UNHEARD_OF = -101, -102, -115, -9_999
STAT = bytes(68)

Answer = Callable[[bytes], "bytes | None"]


def frame(body: bytes) -> bytes:
    return struct.pack("!i", len(body)) + body


def accepted(timeout_ms: int = 10_000) -> bytes:
    return frame(struct.pack("!iiq", 0, timeout_ms, 77) + struct.pack("!i", 16) + bytes(16) + b"\0")


def reply(xid: int, code: int = 0, body: bytes = b"") -> bytes:
    return frame(struct.pack("!iqi", xid, 5, code) + body)


def data(value: bytes | None) -> bytes:
    length = -1 if value is None else len(value)
    return reply(1, 0, struct.pack("!i", length) + (value or b"") + STAT)


class Server:
    """Answers each request of a connection with what it was given; then it waits, or hangs up."""

    def __init__(self, *answers: bytes, hangs_up: bool = False) -> None:
        self._answers = answers
        self._hangs_up = hangs_up
        self.asked: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "{}:{}".format(*self._listener.getsockname())
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                with connection, contextlib.suppress(OSError, struct.error):
                    connection.settimeout(10)
                    for answer in self._answers:
                        (length,) = struct.unpack("!i", connection.recv(4, socket.MSG_WAITALL))
                        self.asked.append(connection.recv(length, socket.MSG_WAITALL))
                        connection.sendall(answer)
                    while not self._hangs_up and connection.recv(4_096):
                        pass


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    with contextlib.ExitStack() as stack:

        def one(*answers: bytes, hangs_up: bool = False) -> Server:
            return stack.enter_context(contextlib.closing(Server(*answers, hangs_up=hangs_up)))

        yield one


@pytest.fixture(params=["threads", "asyncio"])
def nodes(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Makes what reads nodes of servers, by both faces."""
    with contextlib.closing(LoopThread()) as thread:

        def of(*servers: Server, **settings: object) -> Any:
            hosts = ",".join(server.address for server in servers) + "/a/root/that/is/ours"
            made = Settings(zookeeper=hosts, request_timeout_ms=BOUND_MS, **settings)  # type: ignore[arg-type]
            found = ZooKeeperNodes(made)
            return found if request.param == "threads" else LoopedSteps(found, thread)

        yield of


@pytest.mark.parametrize(("lies_there", "read"), [(b"value", b"value"), (b"", b""), (None, b"")])
def test_a_node_is_read_by_its_absolute_path(
    serve: Callable[..., Server], nodes: Callable[..., Any], lies_there: bytes | None, read: bytes
) -> None:
    server = serve(accepted(), data(lies_there))
    assert nodes(server).read("/hbase/master") == read
    assert server.asked[1].endswith(b"/hbase/master\0")


def test_credentials_come_before_the_request(
    serve: Callable[..., Server], nodes: Callable[..., Any]
) -> None:
    server = serve(accepted(), reply(-4), data(b"v"))
    assert nodes(server, zookeeper_auth="digest:a:b").read("/x") == b"v"
    assert b"digest" in server.asked[1]


def test_no_node_is_none(serve: Callable[..., Server], nodes: Callable[..., Any]) -> None:
    assert nodes(serve(accepted(), reply(1, NO_NODE))).read("/x") is None


@pytest.mark.parametrize(
    "answers", [[accepted(), reply(1, NO_AUTH)], [accepted(), reply(-4, AUTH_FAILED)]]
)
def test_a_refusal_is_one(
    serve: Callable[..., Server], nodes: Callable[..., Any], answers: list[bytes]
) -> None:
    auth = "digest:a:b" if b"\xff\xff\xff\xfc" in answers[1] else ""
    with pytest.raises(RequestRefusedError):
        nodes(serve(*answers), zookeeper_auth=auth).read("/x")


@pytest.mark.parametrize(
    "answers",
    [
        [],
        [accepted()[:9]],
        [accepted(timeout_ms=0)],
        [struct.pack("!i", -1)],
        [struct.pack("!i", 2**31 - 1)],
        [accepted(), reply(7, 0, b"")],
        [accepted(), reply(1, UNHEARD_OF)],
        [accepted(), reply(1, 0, struct.pack("!i", 1_000) + b"short")],
        [accepted(), reply(1, 0, b"")],
        [accepted(), frame(b"")],
        [b"HTTP/1.1 400 Bad Request\r\n\r\n"],
    ],
)
@pytest.mark.parametrize("hangs_up", [False, True])
def test_what_is_no_answer_is_an_error_in_time_and_another_server_is_asked(
    serve: Callable[..., Server], nodes: Callable[..., Any], answers: list[bytes], hangs_up: bool
) -> None:
    bad = serve(*answers, hangs_up=hangs_up)
    began_s = time.monotonic()
    with pytest.raises(StoreUnavailableError):
        nodes(bad).read("/x")
    good = serve(accepted(), data(b"v"))
    assert [nodes(bad, good).read("/x") for _ in range(2)] == [b"v"] * 2
    assert time.monotonic() - began_s < 10


@pytest.mark.parametrize("zookeeper_tls", [False, True])
def test_a_server_that_hangs_up_at_once_may_be_one_with_or_without_tls(
    serve: Callable[..., Server], nodes: Callable[..., Any], zookeeper_tls: bool
) -> None:
    server = serve(hangs_up=True)
    with pytest.raises(StoreUnavailableError, match="compare zookeeper_tls"):
        nodes(server, zookeeper_tls=zookeeper_tls).read("/x")


@pytest.mark.parametrize("silent", [True, False])
def test_one_that_is_cancelled_at_any_moment_leaves_no_connection(
    serve: Callable[..., Server], silent: bool
) -> None:
    server = serve(*([] if silent else [accepted(), data(b"v")]))
    reader = ZooKeeperNodes(Settings(zookeeper=server.address, request_timeout_ms=200))
    address = Address.parse(server.address)

    async def use(cut: Callable[..., Any]) -> None:
        with contextlib.suppress(StoreUnavailableError):
            await cut(reader.read.in_loop("/x"))

    async def use_at_once(cut: Callable[..., Any]) -> None:
        """What a task of its own does for it."""
        await cut(reader._connect_and_ask(address, "/x", time.monotonic() + 5))

    before = len(os.listdir("/proc/self/fd"))
    assert asyncio.run(each_await(use)) >= 1
    if not silent:
        assert asyncio.run(each_await(use_at_once)) >= 1
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before + 1, "the server's own"
