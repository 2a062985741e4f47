"""A port that is served within an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import selectors
import socket
import struct
import time
from types import SimpleNamespace
from typing import Any

import pytest

from hqueue.rpc.accepting import listen
from hqueue.rpc.callers import Bounds
from hqueue.rpc.gathering import FrameGatherer
from hqueue.rpc.port import Port
from hqueue.rpc.served_connection import ServedConnection

RESET_WHEN_CLOSED = struct.pack("ii", 1, 0)
LATE_S = 10.0
SIZE = 50_000


def test_the_log_says_where_a_caller_came_from_that_was_gone_when_it_was_hung_up_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "hqueue.rpc")

    async def call_and_reset() -> object:
        bounds = Bounds(4, 1_000_000, 60_000, 60_000)
        server = Port(
            listen("127.0.0.1", 0),
            bounds,
            "the port",
            make_gatherer=lambda: FrameGatherer(100),
            serve=lambda connection: None,
        )
        server.start_here()
        # All of it before the event loop runs again, which accepts what is gone by then.
        with contextlib.closing(socket.create_connection(("127.0.0.1", server.port))) as sock:
            address = sock.getsockname()
            sock.sendall(b"no frame" * 100)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_WHEN_CLOSED)
        try:
            ends_s = time.monotonic() + LATE_S
            while not caplog.messages and time.monotonic() < ends_s:
                await asyncio.sleep(0.01)
        finally:
            server.close()
        return address

    address = asyncio.run(call_and_reset())
    host, port = address
    assert caplog.messages[0].startswith(f"closed the connection from {host}:{port}: ")


def test_a_port_that_always_has_something_to_do_takes_one_turn_in_each_of_its_loop() -> None:
    async def busy() -> int:
        turns = 0

        def turn() -> float:
            nonlocal turns
            turns += 1
            return 0.0

        bounds = Bounds(4, 1_000_000, 60_000, 60_000)
        port = Port(
            listen("127.0.0.1", 0),
            bounds,
            "the port",
            make_gatherer=lambda: FrameGatherer(100),
            serve=lambda connection: None,
        )
        port.start_here()
        here, there = socket.socketpair()
        here.setblocking(False)
        port.add(here, None)
        port.turn = turn  # type: ignore[method-assign]
        there.sendall(b"what is never received")
        for _ in range(100):
            await asyncio.sleep(0)
        port.close()
        there.close()
        return turns

    assert asyncio.run(busy()) <= 110


def test_a_fault_in_serving_ends_one_connection_and_no_other() -> None:
    """However it came to be served: what had been answered together with it is gone on with."""

    def serve(connection: ServedConnection) -> None:
        assert connection.request is not None
        served, connection.request = connection.request.data, None
        if served == b"fault":
            raise MemoryError("a fault of ours")
        connection.send(served)
        connection.request = connection.gathered()
        port.give_back(connection)

    async def call() -> list[bytes]:
        nonlocal port
        port = Port(
            listen("127.0.0.1", 0),
            Bounds(8, 1_000_000, 60_000, 60_000),
            "the port",
            make_gatherer=lambda: FrameGatherer(100),
            serve=serve,
        )
        port.start_here()
        streams = [await asyncio.open_connection("127.0.0.1", port.port) for _ in range(4)]
        for number, (_, writer) in enumerate(streams):
            frames = [b"first", b"fault" if number % 2 else b"other"]
            writer.write(b"".join(len(each).to_bytes(4, "big") + each for each in frames))
        for reader, _ in streams[1::2]:
            with contextlib.suppress(ConnectionResetError):  # It is hung up on.
                await asyncio.wait_for(reader.read(), LATE_S)
        answers = [
            await asyncio.wait_for(reader.readexactly(10), LATE_S) for reader, _ in streams[::2]
        ]
        left = len(port.callers)
        port.close()
        for _, writer in streams:
            writer.close()
        assert left == 2
        return answers

    port: Port
    assert asyncio.run(call()) == [b"firstother"] * 2


def test_in_one_turn_few_handshakes_go_on_however_many_strangers_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So a caller that has its connection waits for few of them, and not for those of a crowd."""
    shaken = 0

    def shake(connection: ServedConnection) -> int:
        nonlocal shaken
        shaken += 1
        time.sleep(0.001)  # As long as a step of one takes.
        connection.sock.recv(1)
        return selectors.EVENT_READ

    monkeypatch.setattr(ServedConnection, "shake", shake)
    guard: Any = SimpleNamespace(wrap=lambda sock: sock, refuse=lambda *_: None, optional=False)
    port = Port(
        listen("127.0.0.1", 0),
        Bounds(200, 100_000_000, 60_000, 60_000),
        "the port",
        make_gatherer=lambda: FrameGatherer(100),
        serve=lambda connection: None,
        guard=guard,
    )
    with contextlib.ExitStack() as stack:
        stack.callback(port.close)
        for _ in range(100):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", port.port)))
            sock.sendall(bytes(1_000))
        counts = []
        while len(port.callers) < 100:
            before = shaken
            port.turn()
            counts.append(shaken - before)
    assert max(counts) <= 2, counts
    assert len(counts) <= 250, "others are accepted meanwhile"


def test_without_proof_an_address_that_begins_many_calls_ends_its_own_and_no_others() -> None:
    def serve(connection: ServedConnection) -> None:
        assert connection.request is not None
        served, connection.request = connection.request.data, None
        connection.send(served[:1])
        port.give_back(connection)

    async def call() -> bytes:
        nonlocal port
        port = Port(
            listen("127.0.0.1", 0),
            Bounds(64, 10 * SIZE, 60_000, 60_000),
            "the port",
            make_gatherer=lambda: FrameGatherer(4 * SIZE),
            serve=serve,
        )
        port.start_here()
        frame = (3 * SIZE).to_bytes(4, "big") + b"x" * 3 * SIZE
        reader, writer = await asyncio.open_connection("127.0.0.1", port.port)
        writer.write(frame[:-1])
        await writer.drain()
        others = [
            await asyncio.open_connection("127.0.0.1", port.port, local_addr=("127.0.0.2", 0))
            for _ in range(20)
        ]
        for _, other in others:
            other.write(frame[:SIZE])
        for ended, _ in others[:10]:
            with contextlib.suppress(ConnectionResetError):
                assert await asyncio.wait_for(ended.read(), LATE_S) == b""
        writer.write(frame[-1:])
        answer = await asyncio.wait_for(reader.readexactly(1), LATE_S)
        port.close()
        for _, each in (*others, (reader, writer)):
            each.close()
        return answer

    port: Port
    assert asyncio.run(call()) == b"x"
