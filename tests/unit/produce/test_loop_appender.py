"""A log is written alike in a thread and in a loop, and who is cancelled there holds nothing up."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import hqueue
from hqueue import (
    FencedError,
    IdempotencyKeyReusedError,
    InvalidInputError,
    Message,
    StoreUnavailableError,
)
from hqueue.handle import QueueLog
from hqueue.log import Appended
from hqueue.log.table_ports import AsyncLogPort, LogPort
from hqueue.produce import appending
from hqueue.produce import owned_log as owned_module
from hqueue.produce.appender import LoopAppender
from hqueue.produce.owned_log import LoopOwnedLog
from tests.support.backends import MemoryBackend
from tests.support.cut_off import CuttingPort, each_cut
from tests.support.log_faces import BlockingFace, LoopFace
from tests.support.loop_watch import LoopWatch
from tests.support.looped import LoopThread

Face = BlockingFace | LoopFace
WAIT_S = 30


@pytest.fixture
def cluster() -> MemoryBackend:
    return MemoryBackend()


@pytest.fixture
def queue(cluster: MemoryBackend) -> Iterator[hqueue.Queue]:
    with cluster.connect() as client:
        yield client.create_queue("q", partitions=3)


def opened(
    cluster: MemoryBackend,
    *,
    on_append: Callable[[int, Appended, Any], None] = lambda *_: None,
    way: Callable[[LogPort], LogPort] = lambda port: port,
    loop_way: Callable[[AsyncLogPort], Any] = lambda port: port,
    **settings: int,
) -> QueueLog:
    """The queue's log, as another process has it.

    Args:
        cluster: where the queue is.
        on_append: called after each append.
        way: what requests of threads go by.
        loop_way: what those of event loops go by.
        settings: the connection's.
    """
    store = cluster.store()
    return QueueLog(
        store.tables.describe("q"),
        lambda: store.tables.describe.asked("q"),
        port=way(store.log("q")),
        loop_port=loop_way(store.async_log("q")),
        on_append=on_append,
        settings=hqueue.Settings(**settings),
    )


@pytest.fixture
def log(cluster: MemoryBackend, queue: hqueue.Queue) -> QueueLog:
    return opened(cluster)


@pytest.fixture(params=["blocking", "loop"])
def face(request: pytest.FixtureRequest, log: QueueLog) -> Iterator[Face]:
    if request.param == "blocking":
        yield BlockingFace(log)
        return
    loop = LoopThread()
    yield LoopFace(log, loop)
    loop.close()


def values(queue: hqueue.Queue, partition: int = 0) -> list[bytes]:
    return [message.value for message in queue.scan(partition=partition)]


def test_messages_are_put_where_they_belong_and_their_ids_returned(
    queue: hqueue.Queue, face: Face
) -> None:
    one = face.write("put", Message("t", b"a"), partition=0)
    two, three = face.write("put", [Message("t", b"b"), Message("t", b"c")], partition=0)
    assert [(m.id, m.value) for m in queue.scan(partition=0)] == [
        (one, b"a"), (two, b"b"), (three, b"c"),
    ]  # fmt: skip
    face.write("put", Message("t", b"k"), key="some key")
    partition = face.write("choose_partition", None, "some key")
    assert b"k" in values(queue, partition)
    face.write("put", Message("t", b"anywhere"))
    assert b"anywhere" in [message.value for message in queue.scan()]
    with pytest.raises(InvalidInputError):
        face.write("put", Message("t", b"x"), partition=7)
    with pytest.raises(InvalidInputError):
        face.write("put", Message("hqueue.t", b"x"), partition=0)


def test_what_is_put_again_with_its_key_is_not_appended_again(
    queue: hqueue.Queue, face: Face
) -> None:
    put = [face.write("put", Message("t", b"a"), partition=0, idempotency_key="k") for _ in "12"]
    assert put[0] == put[1]
    assert put[0] == queue.put(Message("t", b"a"), partition=0, idempotency_key="k")
    with pytest.raises(IdempotencyKeyReusedError):
        face.write("put", Message("t", b"b"), partition=0, idempotency_key="k")
    assert values(queue) == [b"a"]


def test_epochs_of_producers_are_claimed_and_fence(queue: hqueue.Queue, face: Face) -> None:
    since = face.write("claim_epoch", "work", 3)
    assert face.write("current_epoch", "work") == queue.current_epoch("work") == (3, since)
    with pytest.raises(FencedError):
        face.write("claim_epoch", "work", 2)


def test_an_owner_appends_until_it_is_fenced_in_the_log(queue: hqueue.Queue, face: Face) -> None:
    fenced: list[tuple[str, int]] = []

    def own(epoch: int) -> Any:
        owned = face.write("open_owned", 0, lambda topic, epoch: fenced.append((topic, epoch)))
        face.done(owned.open())
        face.done(owned.close_ranges({"t": epoch}))
        owned.own("t", epoch)
        return owned

    first = own(1)
    assert face.done(first.append(lambda: ([Message("t", b"a")], 0, {"t": 1}))) < first.end
    assert face.done(first.append(lambda: None)) is None
    second = own(2)
    with pytest.raises(hqueue.errors.TopicFencedError):
        face.done(first.append(lambda: ([Message("t", b"late")], 0, {"t": 1})))
    assert fenced == [("t", 2)]
    face.done(second.append(lambda: ([Message("t", b"b")], 0, {"t": 2})))
    assert values(queue) == [b"a", b"b"]


def test_threads_and_coroutines_take_turns_with_a_partition(
    cluster: MemoryBackend, queue: hqueue.Queue
) -> None:
    """So none meets another writer of its process, and each is in the log once."""
    count, contended = 30, list[bool]()
    log = opened(
        cluster, on_append=lambda partition, appended, bodies: contended.append(appended.contended)
    )

    def in_thread(name: bytes) -> None:
        for number in range(count):
            log.appender.put(Message("t", b"%b %d" % (name, number)), partition=0)

    async def in_loop(name: bytes) -> None:
        for number in range(count):
            await log.loop_appender.put(Message("t", b"%b %d" % (name, number)), partition=0)

    async def two() -> None:
        await asyncio.gather(in_loop(b"c1"), in_loop(b"c2"))

    threads = [threading.Thread(target=in_thread, args=(name,)) for name in (b"t1", b"t2")]
    threads.append(threading.Thread(target=lambda: asyncio.run(two())))
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
    read = values(queue)
    for name in (b"t1", b"t2", b"c1", b"c2"):
        assert [v for v in read if v.startswith(name)] == [
            b"%b %d" % (name, n) for n in range(count)
        ]
    assert contended == [False] * 4 * count


def test_one_that_waits_for_its_turn_does_so_until_its_bound(
    cluster: MemoryBackend, queue: hqueue.Queue
) -> None:
    holding = Holding()
    log = opened(cluster, way=holding.way, operation_timeout_ms=100)

    async def put() -> None:
        with pytest.raises(StoreUnavailableError) as caught:
            await log.loop_appender.put(Message("t", b"b"), partition=0)
        assert caught.value.outcome is hqueue.Outcome.NOT_APPLIED

    with ThreadPoolExecutor(1) as another:
        first = another.submit(log.appender.put, Message("t", b"a"), partition=0)
        try:
            assert holding.asked.wait(WAIT_S)
            asyncio.run(put())
        finally:
            holding.may.set()
        assert first.result(WAIT_S)
    assert values(queue) == [b"a"]


class Holding:
    """Holds a port's requests until they may be made."""

    def __init__(self) -> None:
        self.asked, self.may = threading.Event(), threading.Event()

    def way(self, port: LogPort) -> LogPort:
        self._port = port
        return self  # type: ignore[return-value]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def request(*args: Any) -> Any:
            self.asked.set()
            assert self.may.wait(WAIT_S)
            return getattr(self._port, name)(*args)

        return request


def cutting(cluster: MemoryBackend, number: int, moment: str) -> tuple[QueueLog, CuttingPort]:
    """A log whose requests of event loops are cut off, once; and what cuts."""
    ports: list[CuttingPort] = []

    def cut(port: AsyncLogPort) -> CuttingPort:
        ports.append(CuttingPort(port, number, moment))
        return ports[0]

    return opened(cluster, loop_way=cut, operation_timeout_ms=1_000 * WAIT_S), ports[0]


async def put(appender: LoopAppender, value: bytes, **options: Any) -> bool:
    """Put by a task of its own; whether it was not cancelled."""
    try:
        await asyncio.create_task(appender.put(Message("t", value), **options))
    except asyncio.CancelledError:
        return False
    return True


@pytest.mark.parametrize("partition", [0, None])
@pytest.mark.parametrize(("number", "moment"), each_cut())
def test_one_that_is_cancelled_at_any_request_leaves_no_turn_taken_and_others_put_on(
    cluster: MemoryBackend, queue: hqueue.Queue, number: int, moment: str, partition: int | None
) -> None:
    log, port = cutting(cluster, number, moment)
    appender = log.loop_appender

    async def run() -> Counter[bool]:
        return Counter([await put(appender, b"%d" % n, partition=partition) for n in range(6)])

    done = asyncio.run(run())
    assert done[False] <= 1
    for each in range(3):  # The turns are free: a thread takes them, too.
        log.appender.put(Message("t", b"by a thread %d" % each), partition=each)
    found = Counter(message.value for message in queue.scan())
    assert set(found.values()) == {1}
    assert 9 - done[False] <= len(found) <= 9
    assert port.was_cut or number > 6


@pytest.mark.parametrize(("number", "moment"), each_cut())
def test_what_was_cancelled_is_put_again_by_its_key_and_is_in_the_log_once(
    cluster: MemoryBackend, queue: hqueue.Queue, number: int, moment: str
) -> None:
    appender = cutting(cluster, number, moment)[0].loop_appender
    given = [b"a", b"b", b"c"]

    async def run() -> None:
        for value in given:
            while not await put(appender, value, partition=0, idempotency_key=value):
                pass

    asyncio.run(run())
    assert values(queue) == given


@pytest.mark.parametrize(("number", "moment"), each_cut())
def test_an_owner_that_is_cancelled_is_told_what_became_of_the_batch_before_the_next(
    cluster: MemoryBackend, queue: hqueue.Queue, number: int, moment: str
) -> None:
    queue.put(Message("other", b"before"), partition=0)
    settled: list[int | None] = []
    appender = cutting(cluster, number, moment)[0].loop_appender
    owned = appender.open_owned(0, lambda topic, epoch: None, settled.append)
    known: dict[bytes, int] = {}

    async def append(value: bytes) -> None:
        def make() -> tuple[list[Message], int, Mapping[str, int]]:
            return [Message("t", value)], 0, {"t": 1}

        first = await owned.append(make)
        assert first is not None
        known[value] = first

    async def again(call: Any) -> None:
        try:
            await asyncio.create_task(call())
        except asyncio.CancelledError:
            await call()

    async def begin() -> None:
        await owned.open()
        owned.own("t", 1)

    async def run(owned: LoopOwnedLog) -> None:
        await again(begin)
        for value in (b"a", b"b", b"c"):
            try:
                await asyncio.create_task(append(value))
            except asyncio.CancelledError:
                before = len(settled)
                await append(value + b"!")
                assert len(settled) <= before + 1

    asyncio.run(run(owned))
    read = {int(m.id): m.value for m in queue.scan(partition=0) if m.topic == "t"}
    assert {at: value for value, at in known.items()}.items() <= read.items()
    beside = read.keys() - set(known.values())
    assert beside == {at for at in settled if at is not None}, "each that is beside was reported"


MANY = [Message("t", b"%d" % number) for number in range(65_536)]
LARGE = [Message("t", bytes(1_000_000))] * 8


@pytest.mark.parametrize("given", [MANY, LARGE, LARGE[0]], ids=["many", "large", "large one"])
def test_a_loop_goes_on_while_what_is_put_is_encoded_and_compressed(
    queue: hqueue.Queue, log: QueueLog, monkeypatch: pytest.MonkeyPatch, given: Any
) -> None:
    watch = LoopWatch(appending.compressed)
    monkeypatch.setattr(appending, "compressed", watch)
    put = log.loop_appender.put
    asyncio.run(watch.watched(put(given, partition=0)))
    assert watch.calls[0], "the loop stood still"
    given = [given] if isinstance(given, Message) else given
    assert values(queue) == [message.value for message in given]


@pytest.mark.parametrize("given", [MANY, LARGE], ids=["many", "large"])
def test_a_loop_goes_on_while_an_owners_batch_is_encoded_and_compressed(
    queue: hqueue.Queue,
    log: QueueLog,
    monkeypatch: pytest.MonkeyPatch,
    given: list[Message],
) -> None:
    watch = LoopWatch(owned_module.encode_bodies)
    monkeypatch.setattr(owned_module, "encode_bodies", watch)
    owned = log.loop_appender.open_owned(0, lambda topic, epoch: None)

    async def run() -> None:
        await owned.open()
        owned.own("t", 1)
        await owned.append(lambda: (given, 0, {"t": 1}))
        await owned.append(lambda: ([Message("t", b"after")], 0, {"t": 1}))

    asyncio.run(watch.watched(run()))
    assert watch.calls == [True, False], "of these the first alone is encoded beside the loop"
    assert values(queue) == [*(message.value for message in given), b"after"]


def test_an_owner_that_is_cancelled_while_its_batch_is_encoded_has_appended_nothing(
    queue: hqueue.Queue, log: QueueLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode, settled, may_end = owned_module.encode_bodies, [], threading.Event()
    owned = log.loop_appender.open_owned(0, lambda topic, epoch: None, settled.append)

    async def run() -> None:
        await owned.open()
        owned.own("t", 1)
        began, loop = asyncio.Event(), asyncio.get_running_loop()

        def encode_slowly(messages: Any) -> Any:
            loop.call_soon_threadsafe(began.set)
            may_end.wait(10)
            return encode(messages)

        monkeypatch.setattr(owned_module, "encode_bodies", encode_slowly)
        append = asyncio.create_task(owned.append(lambda: (LARGE, 0, {"t": 1})))
        await began.wait()
        append.cancel()
        with pytest.raises(asyncio.CancelledError):
            await append
        monkeypatch.setattr(owned_module, "encode_bodies", encode)
        await owned.append(lambda: ([Message("t", b"next")], 0, {"t": 1}))

    try:
        asyncio.run(run())
    finally:
        may_end.set()
    assert (values(queue), settled) == ([b"next"], [])
