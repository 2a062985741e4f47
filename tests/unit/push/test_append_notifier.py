"""An append notifies the worker at once, whatever the worker does."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hqueue.errors import StoreUnavailableError
from hqueue.format.rowkey import encode
from hqueue.log.ports import Row
from hqueue.metadata import Address, Coordination, PartitionKey, WorkerRecord
from hqueue.metadata.append_keys import sign
from hqueue.push import append_notifier
from hqueue.push.append_notifier import BATCH, BATCH_BYTES_MAX, AppendNotifier
from hqueue.runtime.job import Job
from hqueue_workers.delivery.notification_server import (
    BUFFERED_BYTES_MAX,
    FRAME_BYTES_MAX,
    NotificationServer,
)
from tests.support.interposed import Interposed
from tests.support.looped import LoopThread
from tests.support.notifications import KEYS, frame_of, vouches
from tests.support.strangers import Stranger
from tests.support.thrift_calls import HOSTILE, head, listed

KEY, OTHER = PartitionKey("q", 3), PartitionKey("q", 4)


class Watched:
    """What is watched: it tells each listener what it is now, and what it becomes."""

    def __init__(self) -> None:
        self._now: Any = {}
        self._listeners: list[Callable[[Any], None]] = []

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    def watch(self, listener: Callable[[Any], None], loop: object = None) -> Watched:
        self._listeners.append(listener)
        listener(self._now)
        return self

    def become(self, now: Any) -> None:
        self._now = now
        for listener in self._listeners:
            listener(now)

    def close(self) -> None:
        self._listeners.clear()


class InThreads:
    """A notifier whose appends come from a thread."""

    def __init__(self, notifier: AppendNotifier) -> None:
        self._notifier = notifier

    def appended(self, *append: Any, times: int = 1) -> None:
        for _ in range(times):
            self._notifier.appended(*append)

    def knows(self, key: PartitionKey) -> bool:
        return self._notifier.knows(key)

    @property
    def looks(self) -> bool:
        return self._notifier.looks

    def close(self) -> None:
        self._notifier.close()


class InLoop(InThreads):
    """A notifier whose appends come from an event loop."""

    def __init__(self, notifier: AppendNotifier) -> None:
        super().__init__(notifier)
        self._thread = LoopThread()

    def appended(self, *append: Any, times: int = 1) -> None:
        self._thread.call(lambda: InThreads.appended(self, *append, times=times))

    def knows(self, key: PartitionKey) -> bool:
        return self._thread.call(lambda: self._notifier.knows(key))

    @property
    def looks(self) -> bool:
        return self._thread.call(lambda: self._notifier.looks)

    def close(self) -> None:
        self._thread.run(self._close())
        self._thread.close()

    async def _close(self) -> None:
        self._notifier.close()
        await self._notifier.ended()


Face = type[InThreads]


@pytest.fixture(params=[InThreads, InLoop], ids=["threads", "loop"])
def face(request: pytest.FixtureRequest) -> Face:
    kind: Face = request.param
    return kind


class Session:
    """A session with two workers; the first serves a partition."""

    def __init__(self, *ports: int) -> None:
        self.workers, self.owners, self.append_keys = Watched(), Watched(), Watched()
        self.append_keys.become(KEYS)
        self.workers.become(
            {
                name: WorkerRecord(name, Address("127.0.0.1", port), "")
                for name, port in zip("ab", ports, strict=False)
            }
        )
        self.owners.become({KEY: "a"})


def connection(
    on_append: Callable[..., object], count: Callable[..., object] = lambda *, vouched: None
) -> Stranger:
    """A producer's connection to a worker."""
    return Stranger(server(on_append, count).port)


def server(
    on_append: Callable[..., object], count: Callable[..., object] = lambda *, vouched: None
) -> NotificationServer:
    return NotificationServer([], on_append, vouches, count)


class Worker:
    """The side that is notified."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._listener.settimeout(10)
        self._socket: socket.socket | None = None
        self.told: list[tuple[str, list[int]]] = []
        self.rows: list[Row] = []
        self.vouched: list[bool] = []
        self._taking = connection(self._woken, self._count)

    def _count(self, *, vouched: bool) -> None:
        self.vouched.append(vouched)

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
            self._taking.send(data)

    def take_what_came(self) -> None:
        """Take it in, without waiting."""
        if self._socket is None:
            self._listener.settimeout(0)
            with contextlib.suppress(BlockingIOError):
                self.accept()
        else:
            self._socket.settimeout(0.001)
            with contextlib.suppress(TimeoutError):
                self._taking.send(self._socket.recv(4_096))

    def start_over(self) -> socket.socket:
        """Forget what came, and by what; returns that."""
        taken, self._socket = self._socket, None
        assert taken is not None
        taken.settimeout(10)
        self.told.clear()
        self._taking = connection(self._woken, self._count)
        return taken

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
def listening() -> Iterator[str]:
    """The address of something that listens, as ZooKeeper does: that is tried."""
    with socket.create_server(("127.0.0.1", 0)) as zookeeper:
        yield f"127.0.0.1:{zookeeper.getsockname()[1]}"


@contextlib.contextmanager
def waking(face: Face, session: Session, **options: float) -> Iterator[InThreads]:
    with listening() as at:
        notifier = face(AppendNotifier(lambda: cast(Coordination, session), at, **options))
        try:
            yield notifier
        finally:
            notifier.close()


def until_told(notifier: InThreads, worker: Worker, key: PartitionKey = KEY) -> None:
    """Append until that is reported: before the watch has answered nobody is known."""
    ends = time.monotonic() + 10
    while not notifier.knows(key):
        notifier.appended(key)
        assert time.monotonic() < ends
    notifier.appended(key)
    worker.await_told(len(worker.told) + 1)


def test_each_append_is_reported_to_the_worker_that_serves_it_and_to_nobody_else(
    face: Face,
    workers: list[Worker],
) -> None:
    one, other = workers
    session = Session(one.port, other.port)
    with waking(face, session) as notifier:
        until_told(notifier, one)
        before = len(one.told)
        for _ in range(100):
            notifier.appended(KEY)
            notifier.appended(OTHER)
        one.await_told(before + 100)
        assert set(map(str, one.told)) == {str(("q", [3]))}
        session.owners.become({KEY: "b"})
        until_told(notifier, other)
        assert set(map(str, other.told)) == {str(("q", [3]))}


def test_a_small_batch_comes_along_as_it_lies_in_its_row(face: Face, workers: list[Worker]) -> None:
    one = workers[0]
    slot = 1_700_000_000_000 << 15
    header = b"\x00HQ\xff"
    small = {"a": b"\xff\x00", "tööpic": b""}
    heavy = {"a": bytes(BATCH_BYTES_MAX + 1)}
    with waking(face, Session(one.port)) as notifier:
        until_told(notifier, one)
        for at, head, cells in (
            (slot, header, small),
            (None, header, small),
            (slot, header, heavy),
            (slot, bytes(BATCH_BYTES_MAX), small),
        ):
            bodies = {topic.encode(): cell for topic, cell in cells.items()}
            notifier.appended(KEY, at, head, bodies)
            one.await_told(len(one.told) + 1)
        assert one.rows == [Row(encode(3, slot), 3, slot, header, small)]
        assert one.vouched == [True]


def test_without_a_key_no_batch_comes_along(face: Face, workers: list[Worker]) -> None:
    one = workers[0]
    session = Session(one.port)
    session.append_keys.become(None)
    with waking(face, session) as notifier:
        until_told(notifier, one)
        notifier.appended(KEY, 1 << 50, b"header", {b"t": b"cell"})
        one.await_told(len(one.told) + 1)
        assert one.vouched == []
        session.append_keys.become(KEYS)
        notifier.appended(KEY, 1 << 50, b"header", {b"t": b"cell"})
        one.await_told(len(one.told) + 1)
        assert one.vouched == [True]


FORGED = {
    "no mac": {"key": None, "mac": None},
    "a key of its own": {"key": b"12345678"},
    "half a mac": {"mac": b"1234"},
    "another slot": {"slot": 2 << 40},
    "another partition": {"partition": 4},
    "other bytes": {"cells": {b"t": b"forged"}},
    "another topic": {"cells": {b"u": b"cell"}},
    "another header": {"header": b"other"},
    "another queue": {},
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED.keys())
def test_a_batch_that_nobody_vouched_for_is_a_hint_and_no_more(forged: dict[str, Any]) -> None:
    told: list[Any] = []
    counted: list[bool] = []
    key, header, cells = KEYS.current, b"header", {b"t": b"cell"}
    mac = sign(key, "q", 3, 1 << 40, header=header, cells=cells)
    fields = {
        "partition": 3, "slot": 1 << 40, "header": header, "cells": cells,
        "key": key.id, "mac": mac, **forged,
    }  # fmt: skip
    taking = connection(lambda *call: told.append(call), lambda *, vouched: counted.append(vouched))
    queue = "q" if forged else "r"
    taking.send(frame_of(queue, [3], [BATCH(**fields)]))
    assert told == [(queue, [3], [])]
    assert counted == [False]


@settings(max_examples=500)
@given(
    st.lists(st.tuples(st.integers(0, 150), st.integers(0, 255)), max_size=3),
    st.integers(0, 200),
    st.binary(max_size=20),
)
def test_whatever_a_stranger_makes_of_a_real_call_no_other_batch_comes_of_it(
    changes: list[tuple[int, int]], length: int, more: bytes
) -> None:
    key, header, cells = KEYS.current, b"header", {b"t": b"cell"}
    mac = sign(key, "q", 3, 1 << 40, header=header, cells=cells)
    real = frame_of("q", [3], [BATCH(3, 1 << 40, header, cells, key.id, mac)])
    damaged = bytearray(real)
    for at, byte in changes:
        damaged[at % len(damaged)] = byte
    rows: list[Row] = []
    taking = connection(lambda queue, partitions, came: rows.extend(came))
    taking.send(bytes(damaged)[:length] + more)
    assert rows in ([], [Row(encode(3, 1 << 40), 3, 1 << 40, header, {"t": b"cell"})])


def framed(call: bytes) -> bytes:
    return len(call).to_bytes(4, "big") + call


@pytest.mark.parametrize("name", HOSTILE)
def test_a_frame_that_promises_what_never_comes_ends_its_connection_at_once_and_no_other(
    name: str,
) -> None:
    told: list[Any] = []
    port = server(lambda *call: told.append(call)).port
    good = Stranger(port)
    hostile = head(b"appended", 4) + HOSTILE[name]
    began_s = time.process_time()
    for frame in (hostile, hostile + b"\0", hostile.ljust(FRAME_BYTES_MAX, b"\0")):
        bad = Stranger(port)
        bad.send(framed(frame))
        assert bad.ended
    good.send(frame_of("q", [1]))
    assert time.process_time() - began_s < 1
    assert (good.ended, told) == (False, [("q", [1], [])])


def test_a_frame_of_nothing_but_empty_batches_is_refused_before_they_are_made() -> None:
    vouched: list[bool] = []
    taking = connection(lambda *call: None, lambda **counted: vouched.append(True))
    taking.send(frame_of("q", [1], [BATCH()] * 100))
    assert (taking.ended, len(vouched)) == (False, 100)
    taking.send(frame_of("q", [1], [BATCH()] * 1_000))
    assert (taking.ended, len(vouched)) == (True, 100)


def test_what_newer_releases_add_is_passed_over() -> None:
    told: list[Any] = []
    frame = frame_of("q", [1])[4:]
    added = b"\x0f\0\x63" + listed(8, 1, bytes(4)) + b"\x0b\0\x64\0\0\0\1x"
    taking = connection(lambda *call: told.append(call))
    taking.send(framed(frame[:-1] + added + b"\0") + framed(frame))
    assert told == [("q", [1], [])] * 2


def test_a_frame_has_one_call_and_nothing_else() -> None:
    told: list[Any] = []
    taking = connection(lambda *call: told.append(call))
    taking.send(framed(frame_of("q", [1])[4:] + b"\0"))
    assert (taking.ended, told) == (True, [])


def test_frames_that_never_end_hold_no_more_than_is_allowed_together() -> None:
    port = server(lambda *_: None).port
    half = (250 * 1024).to_bytes(4, "big") + bytes(200 * 1024)
    strangers = []
    for _ in range(120):
        strangers.append(Stranger(port))
        strangers[-1].send(half)
        assert port.callers.held_bytes <= BUFFERED_BYTES_MAX
    ended = [each.ended for each in strangers]
    assert ended[0]
    assert not ended[-1]


def test_for_a_connection_beyond_the_bound_the_oldest_goes_that_has_said_nothing() -> None:
    listeners = [socket.create_server(("127.0.0.1", 0))]
    port = NotificationServer(
        listeners, lambda *_: None, vouches, lambda *, vouched: None, connections_max=20
    ).port
    address = listeners[0].getsockname()
    made = []
    for _ in range(21):
        made.append(socket.create_connection(address, 10))
        port.turn()
    assert made[0].recv(1) == b""
    for each in made:
        each.close()
    while not port.turn() or len(port.callers):
        pass
    assert port.callers.held_bytes == 0
    port.close()


def test_a_notification_without_batches_is_understood() -> None:
    told: list[object] = []
    taking = connection(lambda *call: told.append(call))
    taking.send(frame_of("q", [1, 2]))
    assert told == [("q", [1, 2], [])]


def test_a_worker_that_never_reads_holds_up_no_append(
    face: Face, workers: list[Worker], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "hqueue.push.notifier_connection")
    deaf = workers[0]
    session = Session(deaf.port)
    with waking(face, session) as notifier:
        until_told(notifier, deaf)
        began_s = time.monotonic()
        notifier.appended(KEY, times=200_000)
        assert time.monotonic() - began_s < 60
        assert "the worker does not read" in caplog.text, "what it does not read is bounded"


def test_one_whose_worker_is_gone_finds_the_next_one(face: Face, workers: list[Worker]) -> None:
    gone, other = workers
    session = Session(gone.port, other.port)
    with waking(face, session) as notifier:
        until_told(notifier, gone)
        gone.close()
        notifier.appended(KEY, times=10)
        session.owners.become({KEY: "b"})
        until_told(notifier, other)


def test_what_could_be_watched_in_part_is_watched_as_a_whole_a_little_later(
    face: Face,
    workers: list[Worker],
) -> None:
    session = Session(workers[0].port)
    watch, refused = session.owners.watch, [True]

    def refuse_once(listener: Callable[[Any], None], loop: object = None) -> Watched:
        if refused:
            refused.pop()
            raise StoreUnavailableError("away")
        return watch(listener)

    session.owners = Interposed(session.owners, watch=refuse_once)
    with waking(face, session, look_every_ms=20.0) as notifier:
        until_told(notifier, workers[0])
        assert all(
            each.listeners == 1 for each in (session.workers, session.owners, session.append_keys)
        )


def test_one_that_is_closed_reports_nothing_and_looks_for_nobody(face: Face) -> None:
    def never() -> Coordination:
        raise AssertionError("a session was begun")

    inner = AppendNotifier(never, "127.0.0.1:1")
    inner.close()
    notifier = face(inner)
    notifier.appended(KEY)
    assert not notifier.looks
    notifier.close()


def test_each_event_loop_has_connections_which_a_later_loop_closes_if_it_does_not(
    workers: list[Worker],
) -> None:
    """No thread begins meanwhile."""
    before = {each.ident for each in threading.enumerate()}
    session = Session(workers[0].port)

    async def append() -> None:
        while not notifier.knows(KEY):
            notifier.appended(KEY)
            await asyncio.sleep(0)
        worker = workers[0]
        notifier.appended(KEY)
        while not worker.told:
            await asyncio.sleep(0.001)
            worker.take_what_came()

    with listening() as at:
        notifier = AppendNotifier(lambda: cast(Coordination, session), at)
        asyncio.run(append())
        assert session.owners.listeners == 1
        first = workers[0].start_over()
        asyncio.run(append())
        assert first.recv(1) == b"", "the connection of the loop that has ended"
        notifier.close()
        assert workers[0].start_over().recv(1) == b""
        assert session.owners.listeners == 0
    assert {each.ident for each in threading.enumerate()} <= before


def test_appends_that_come_together_begin_to_look_for_workers_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second has seen that nothing goes on yet, and comes when the first has begun it."""
    notifier = AppendNotifier(lambda: cast(Coordination, None), "127.0.0.1:1")
    made: list[Job] = []
    if_free = append_notifier.if_free

    def make(work: Callable[[], float], **options: Any) -> Job:
        made.append(Job(work, **options))
        return made[-1]

    def late(*arguments: Any) -> bool:
        monkeypatch.setattr(append_notifier, "if_free", if_free)
        notifier.appended(KEY)
        return if_free(*arguments)

    monkeypatch.setattr(append_notifier, "Job", make)
    monkeypatch.setattr(append_notifier, "if_free", late)
    notifier.appended(KEY)
    notifier.close()
    assert len(made) == 1
