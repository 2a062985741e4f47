"""A port that is served within an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
import time

import pytest

from hqueue.rpc.accepting import listen
from hqueue.rpc.callers import Bounds
from hqueue.rpc.gathering import FrameGatherer
from hqueue.rpc.port import Port
from hqueue.rpc.served_connection import ServedConnection

RESET_WHEN_CLOSED = struct.pack("ii", 1, 0)
LATE_S = 10.0


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
    assert caplog.messages[0].startswith(f"closed the connection from {address}: ")


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
