"""The console's port: silent, slow, large and many callers."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from unittest import mock

import httpx
import pytest

import hqueue
from hqueue_workers.console import protocol
from tests.support.console import RunningConsole, events_of, running_console

DEADLINE_S = 30.0


def dial(site: RunningConsole) -> socket.socket:
    return socket.create_connection(("127.0.0.1", site.port), DEADLINE_S)


def read_all(sock: socket.socket) -> bytes:
    received = b""
    with contextlib.suppress(ConnectionError):
        while block := sock.recv(65_536):
            received += block
    return received


@pytest.fixture
def hasty(memory_client: hqueue.Client) -> Iterator[RunningConsole]:
    """A console that waits for half a second only, and has eight connections."""
    with (
        mock.patch.object(protocol, "IDLE_S_MAX", 0.5),
        mock.patch.object(protocol, "UNREAD_S_MAX", 0.5),
        running_console(memory_client, connections_max=8) as running,
    ):
        yield running


def test_who_says_nothing_is_hung_up_on(hasty: RunningConsole) -> None:
    with dial(hasty) as sock:
        assert read_all(sock) == b""


def test_who_sends_a_head_byte_by_byte_is_hung_up_on(hasty: RunningConsole) -> None:
    began_s = time.monotonic()
    with dial(hasty) as sock, contextlib.suppress(ConnectionError):
        while time.monotonic() - began_s < DEADLINE_S:
            sock.sendall(b"G")
            sock.settimeout(0.1)
            try:
                if sock.recv(1) == b"":
                    return
            except TimeoutError:
                continue
        pytest.fail("the connection stayed open")


def test_a_head_has_a_bound(site: RunningConsole) -> None:
    with dial(site) as sock:
        with contextlib.suppress(ConnectionError):
            sock.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: " + b"x" * 40_000)
        received = read_all(sock)
    assert received == b"" or received.startswith(b"HTTP/1.1 400")


def test_what_is_not_http_is_refused(site: RunningConsole) -> None:
    with dial(site) as sock:
        sock.sendall(b"\x16\x03\x01 nonsense\r\n\r\n")
        assert read_all(sock).startswith(b"HTTP/1.1 400")


def test_who_does_not_read_an_answer_is_hung_up_on(
    memory_client: hqueue.Client, hasty: RunningConsole
) -> None:
    with memory_client.create_queue("large", partitions=1) as queue:
        queue.put(hqueue.Message("t", b"x" * 256 * 1024))
        (partition,) = queue.offsets()
    path = f"/queues/large/messages/0/{partition.beginning}"
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        sock.settimeout(DEADLINE_S)
        sock.connect(("127.0.0.1", hasty.port))
        for _ in range(16):
            sock.sendall(request)
        ended = False
        until_s = time.monotonic() + DEADLINE_S
        while not ended and time.monotonic() < until_s:
            time.sleep(0.1)
            ended = not hasty.console.connections
        assert ended


def test_an_idle_connection_ends_for_a_new_one(site: RunningConsole) -> None:
    with contextlib.ExitStack() as stack, running_connections(site) as console:
        for _ in range(12):
            stack.enter_context(contextlib.closing(dial(console)))
        assert httpx.get(f"{console.address}/queues", timeout=DEADLINE_S).status_code == 200
        assert console.console.connections <= 8


@contextlib.contextmanager
def running_connections(site: RunningConsole) -> Iterator[RunningConsole]:
    """A console with eight connections over the same client."""
    with running_console(site.client, connections_max=8) as running:
        yield running


def test_a_part_of_an_answer_does_not_wait_for_the_one_before_it(site: RunningConsole) -> None:
    with dial(site) as sock:
        sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert sock.recv(100).startswith(b"HTTP/1.1 200")
        served = [each.transport for each in site.console._server._protocols]
        nodelay = [
            each.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            for each in served
            if each is not None
        ]
        assert nodelay
        assert all(nodelay)


def test_an_upgrade_is_not_made(site: RunningConsole) -> None:
    answer = httpx.get(
        f"{site.address}/queues", headers={"connection": "upgrade", "upgrade": "websocket"}
    )
    assert answer.status_code == 200


def test_it_ends_while_a_stream_is_open(memory_client: hqueue.Client) -> None:
    began_s = time.monotonic()
    with contextlib.ExitStack() as stack:
        with running_console(memory_client) as running:
            browser = stack.enter_context(httpx.Client(base_url=running.address, timeout=60))
            stream = stack.enter_context(browser.stream("GET", "/queues/orders/tail/stream"))
            assert next(events_of(stream)).data == "Following."
        assert time.monotonic() - began_s < DEADLINE_S


def test_a_caller_has_a_quarter_of_the_streams(memory_client: hqueue.Client) -> None:
    with (
        running_console(memory_client, streams_max=8) as running,
        contextlib.ExitStack() as stack,
    ):
        browser = stack.enter_context(httpx.Client(base_url=running.address, timeout=60))
        for _ in range(2):
            stream = stack.enter_context(browser.stream("GET", "/queues/orders/tail/stream"))
            assert stream.status_code == 200
        refused = browser.get("/queues/orders/tail/stream")
        assert refused.text.startswith("event: ended\ndata: ")  # The page shows it, and stays.
        assert "too many pages" in refused.text
