"""Whoever appends tells the worker at once, whatever the worker does."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import pytest
from thriftpy2.protocol import TCyBinaryProtocol
from thriftpy2.thrift import TClient
from thriftpy2.transport import TCyMemoryBuffer

from hqueue.coordination import Address, Coordination, PartitionKey, WorkerRecord
from hqueue.ports import Row
from hqueue.rowkey import encode
from hqueue.wakeups import BATCH_BYTES_MAX, WORKER_SERVICE, WakeUps
from hqueue_workers.wakeups import WakeUps as Taking

KEY, OTHER = PartitionKey("q", 3), PartitionKey("q", 4)


class Watched:
    """What is watched: it tells each listener what it is now, and what it becomes."""

    def __init__(self) -> None:
        self._now: Mapping[Any, Any] = {}
        self._listeners: list[Callable[[Mapping[Any, Any]], None]] = []

    def watch(self, listener: Callable[[Mapping[Any, Any]], None]) -> Watched:
        self._listeners.append(listener)
        listener(self._now)
        return self

    def become(self, now: Mapping[Any, Any]) -> None:
        self._now = now
        for listener in self._listeners:
            listener(now)

    def close(self) -> None:
        self._listeners.clear()


class Session:
    """A session with two workers, of which the first serves a partition."""

    def __init__(self, *ports: int) -> None:
        self.workers, self.owners = Watched(), Watched()
        self.workers.become(
            {
                name: WorkerRecord(name, Address("127.0.0.1", port), "")
                for name, port in zip("ab", ports, strict=False)
            }
        )
        self.owners.become({KEY: "a"})


class Worker:
    """The side that is told."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._listener.settimeout(10)
        self._socket: socket.socket | None = None
        self.told: list[tuple[str, list[int]]] = []
        self.rows: list[Row] = []
        self._taking = Taking(self._woken)

    def _woken(self, queue: str, partitions: Sequence[int], rows: Sequence[Row]) -> None:
        self.told.append((queue, [*partitions]))
        self.rows += rows

    def accept(self) -> None:
        self._socket = self._listener.accept()[0]
        self._socket.settimeout(10)

    def await_told(self, count: int) -> None:
        if self._socket is None:
            self.accept()
        assert self._socket is not None
        while len(self.told) < count:
            data = self._socket.recv(4_096)
            assert data, "it was hung up on"
            self._taking.data_received(data)

    def hang_up(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def close(self) -> None:
        self.hang_up()
        self._listener.close()


@pytest.fixture
def workers() -> Iterator[list[Worker]]:
    made = [Worker(), Worker()]
    yield made
    for worker in made:
        worker.close()


@contextlib.contextmanager
def waking(session: Session) -> Iterator[WakeUps]:
    with socket.create_server(("127.0.0.1", 0)) as zookeeper:  # It is tried whether one listens.
        address = f"127.0.0.1:{zookeeper.getsockname()[1]}"
        wake_ups = WakeUps(lambda: cast(Coordination, session), address)
        try:
            yield wake_ups
        finally:
            wake_ups.close()


def until_told(wake_ups: WakeUps, worker: Worker, key: PartitionKey = KEY) -> None:
    """Append until that is told of: before the watch has answered nobody is known."""
    ends = time.monotonic() + 10
    while key not in wake_ups._owners:
        wake_ups.appended(key)
        assert time.monotonic() < ends
    wake_ups.appended(key)
    worker.await_told(len(worker.told) + 1)


def test_each_append_is_told_to_whoever_serves_the_partition_and_to_nobody_else(
    workers: list[Worker],
) -> None:
    one, other = workers
    session = Session(one.port, other.port)
    with waking(session) as wake_ups:
        until_told(wake_ups, one)
        before = len(one.told)
        for _ in range(100):
            wake_ups.appended(KEY)
            wake_ups.appended(OTHER)
        one.await_told(before + 100)
        assert set(map(str, one.told)) == {str(("q", [3]))}
        session.owners.become({KEY: "b"})
        until_told(wake_ups, other)
        assert set(map(str, other.told)) == {str(("q", [3]))}


def test_a_small_batch_comes_along_as_it_lies_in_its_row(workers: list[Worker]) -> None:
    one = workers[0]
    slot = 1_700_000_000_000 << 15
    header = b"\x00HQ\xff"
    small = {"a": b"\xff\x00", "tööpic": b""}
    heavy = {"a": bytes(BATCH_BYTES_MAX + 1)}
    with waking(Session(one.port)) as wake_ups:
        until_told(wake_ups, one)
        for place, head, cells in (
            (slot, header, small),
            (None, header, small),
            (slot, header, heavy),
            (slot, bytes(BATCH_BYTES_MAX), small),
        ):
            bodies = {topic.encode(): cell for topic, cell in cells.items()}
            wake_ups.appended(KEY, place, head, bodies)
            one.await_told(len(one.told) + 1)
        assert one.rows == [Row(encode(3, slot), 3, slot, header, small)]


def test_a_wake_up_without_batches_is_understood() -> None:
    told: list[object] = []
    sent = TCyMemoryBuffer()  # type: ignore[no-untyped-call]
    client = TClient(WORKER_SERVICE, TCyBinaryProtocol(sent))  # type: ignore[no-untyped-call]
    client.appended("q", [1, 2])
    call: bytes = sent.getvalue()
    taking = Taking(lambda *call: told.append(call))
    taking.data_received(len(call).to_bytes(4, "big") + call)
    assert told == [("q", [1, 2], [])]


def test_a_worker_that_never_reads_holds_up_no_append(workers: list[Worker]) -> None:
    deaf = workers[0]
    session = Session(deaf.port)
    with waking(session) as wake_ups:
        until_told(wake_ups, deaf)
        began_s = time.monotonic()
        for _ in range(200_000):
            wake_ups.appended(KEY)
        assert time.monotonic() - began_s < 60
        line = wake_ups._lines[Address("127.0.0.1", deaf.port)]
        assert line._avoided_until_ms > 0, "what it does not read is bounded"


def test_one_whose_worker_is_gone_finds_the_next_one(workers: list[Worker]) -> None:
    gone, other = workers
    session = Session(gone.port, other.port)
    with waking(session) as wake_ups:
        until_told(wake_ups, gone)
        gone.close()
        for _ in range(10):
            wake_ups.appended(KEY)
        session.owners.become({KEY: "b"})
        until_told(wake_ups, other)


def test_who_is_closed_tells_nothing_and_looks_for_nobody() -> None:
    def never() -> Coordination:
        raise AssertionError("a session was begun")

    wake_ups = WakeUps(never, "127.0.0.1:1")
    wake_ups.close()
    wake_ups.appended(KEY)
    assert wake_ups._thread is None
