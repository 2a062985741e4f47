"""Frames off a socket: whole, in order, in no more memory than bytes have asked for."""

from __future__ import annotations

import contextlib
import os
import socket
import time
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from hqueue.hbase.native.receiving import Receiver
from hqueue.hbase.native.wire import FRAME_BYTES_MAX, LENGTH
from hqueue.net.framing import INBOX_BYTES, Frames

Pair = tuple[socket.socket, Receiver]
MUCH = 20 * INBOX_BYTES + 1


@pytest.fixture
def pair() -> Iterator[Pair]:
    near, far = socket.socketpair()
    near.setblocking(False)
    with contextlib.closing(near), contextlib.closing(far):
        yield far, Receiver(near, Frames(FRAME_BYTES_MAX))


def next_frame(receiver: Receiver) -> bytes | None:
    frame = receiver.frame(time.monotonic() + 30)
    return None if frame is None else bytes(frame)


def test_frames_of_any_length_come_as_they_were_sent(pair: Pair) -> None:
    far, receiver = pair
    frames = [os.urandom(size) for size in (1, INBOX_BYTES, MUCH, 3, MUCH - 1, MUCH + 1, 2 * MUCH)]
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(far.sendall, b"".join(LENGTH.pack(len(f)) + f for f in frames))
        assert [next_frame(receiver) for _ in frames] == frames
        sent.result()


def test_what_came_of_a_frame_is_kept_when_the_time_is_over(pair: Pair) -> None:
    far, receiver = pair
    far.sendall(LENGTH.pack(6) + b"abc")
    assert receiver.frame(time.monotonic() + 0.01) is None
    far.sendall(b"def")
    assert next_frame(receiver) == b"abcdef"


def test_a_promised_length_takes_no_more_memory_than_the_longest_frame_that_came(
    pair: Pair,
) -> None:
    far, receiver = pair
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(far.sendall, LENGTH.pack(MUCH) + bytes(MUCH))
        assert next_frame(receiver) == bytes(MUCH)
        sent.result()
    far.sendall(LENGTH.pack(FRAME_BYTES_MAX) + b"a")
    tracemalloc.start()
    try:
        assert receiver.frame(time.monotonic() + 0.01) is None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert MUCH <= peak < MUCH + INBOX_BYTES
