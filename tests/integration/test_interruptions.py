"""A handler of a signal that raises, at every place of an operation where CPython may call it, and
at every line: what comes after it works, in a bounded time, and the log is right.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
from collections.abc import Callable, Iterator

import pytest

import hqueue
from hqueue import Message, Settings, local
from hqueue.client import Client
from hqueue.groups import pacing
from hqueue.hbase.native.appends import TableAppends
from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.reads import TableReads
from hqueue.hbase.native.regions import Meta, RegionMap
from hqueue.hbase.native.servers import Servers
from hqueue.hbase.native.zookeeper_registry import ZooKeeperRegistry
from hqueue.zookeeper import ZooKeeperCoordination
from tests.support.backends import GatewayBackend, MemoryBackend, NativeBackend
from tests.support.interrupting import each_interruption, each_line
from tests.support.memory.cluster import MemoryCluster
from tests.support.memory.gateway import GatewayPair
from tests.support.memory.metadata import MemoryCoordination, MemoryServer
from tests.support.memory.store import MemoryStore
from tests.support.memory.zookeeper import MemoryZooKeeper
from tests.support.raw import RawHBase
from tests.support.region_server import RegionServer, meta_node, region_row
from tests.support.scripted_server import ScriptedServer

BOUNDS = {"request_timeout_ms": 1_000, "operation_timeout_ms": 4_000}
QUICK_S = 3.0
QUEUE = "interrupted"


class NativeLog(TableAppends, TableReads):
    """A log on a scripted region server, whose clock is this machine's."""

    def clock_offset_ms(self) -> tuple[float, float]:
        return 0.0, 1.0


class NativeStore(MemoryStore):
    """A store whose rows lie on a scripted region server, and all else in memory."""

    def __init__(self, settings: Settings, server: ScriptedServer) -> None:
        super().__init__(MemoryCluster(), settings)
        self.servers = Servers(settings)
        registry = ZooKeeperRegistry(lambda _: meta_node(server.address), "/hbase")
        self._meta = Meta(self.servers, registry)

    def log(self, queue: str) -> NativeLog:  # type: ignore[override]
        return NativeLog(self.servers, queue, RegionMap(self._meta, queue))

    def close(self) -> None:
        self.servers.close()
        super().close()


@contextlib.contextmanager
def natively() -> Iterator[Client]:
    region_server = RegionServer(QUEUE, state=pb.TableState.ENABLED)
    with contextlib.closing(ScriptedServer(region_server)) as server:
        region_server.regions = [region_row(QUEUE, b"", b"", server.address)]
        settings = Settings(hbase="native", notify_workers=False, **BOUNDS)  # type: ignore[arg-type]
        coordination = MemoryServer()
        store = NativeStore(settings, server)
        with Client(settings, store, lambda: MemoryCoordination(coordination)) as client:
            yield client


@contextlib.contextmanager
def by_gateways() -> Iterator[Client]:
    cluster = MemoryCluster()
    with (
        contextlib.closing(GatewayPair(cluster)) as pair,
        GatewayBackend(pair, cluster).connect(**BOUNDS) as client,
    ):
        yield client


@contextlib.contextmanager
def in_memory() -> Iterator[Client]:
    with MemoryBackend().connect(**BOUNDS) as client:
        yield client


@contextlib.contextmanager
def by_zookeeper() -> Iterator[Client]:
    """Rows in memory, and the coordination by kazoo."""
    with MemoryZooKeeper() as server:
        at = f"127.0.0.1:{server.port}"
        settings = Settings(zookeeper=at, notify_workers=False, **BOUNDS)  # type: ignore[arg-type]
        store = MemoryStore(MemoryCluster(), settings)
        with Client(settings, store, lambda: ZooKeeperCoordination(settings)) as client:
            yield client


@pytest.fixture(autouse=True)
def _nobody_else_joins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups have one member here: who joins waits for no others."""
    monkeypatch.setattr(pacing, "GATHER_MS", 1.0)


Connect = Callable[[], contextlib.AbstractContextManager[Client]]


@pytest.fixture(params=[natively, by_gateways, in_memory])
def connect(request: pytest.FixtureRequest) -> Connect:
    kind: Connect = request.param
    return kind


EachPlace = Callable[[Callable[[], object]], Iterator[str]]


def interrupted_everywhere(*, every: int = 1) -> pytest.MarkDecorator:
    """Interrupt at each n-th place that calls and waits make, and at every line."""
    places = functools.partial(each_interruption, every=every)
    return pytest.mark.parametrize("each_place", [places, each_line], ids=["calls", "lines"])


def interrupted_also_over_zookeeper(*connects: Connect, every: int) -> pytest.MarkDecorator:
    """As `interrupted_everywhere`; and at some places where requests go to ZooKeeper by kazoo,
    which takes a while to join a group.
    """
    places = functools.partial(each_interruption, every=every)
    few = functools.partial(each_interruption, every=47)
    cases = [(each, how) for each in connects for how in (places, each_line)]
    ids = [f"{each.__name__}-{how}" for each in connects for how in ("calls", "lines")]
    return pytest.mark.parametrize(
        ("connect", "each_place"), [*cases, (by_zookeeper, few)], ids=[*ids, "by_zookeeper-calls"]
    )


def quickly(call: Callable[[], object], where: str) -> None:
    """What is done next works, and doesn't wait for what was interrupted."""
    began_s = time.monotonic()
    try:
        call()
    except hqueue.HQueueError as exc:
        raise AssertionError(f"after an interruption at {where}") from exc
    took_s = time.monotonic() - began_s
    assert took_s < QUICK_S, f"{took_s:.1f} s after an interruption at {where}"


class Numbers:
    """Puts and sends each number once, and compares the log with what is known of them."""

    def __init__(self) -> None:
        self.next = 0
        self.acknowledged: list[tuple[str, bytes]] = []

    def message(self) -> Message:
        """Each has a topic of its own number."""
        self.next += 1
        return Message(f"topic-{self.next}", b"%d" % self.next)

    def check(self, queue: hqueue.Queue) -> None:
        log = [(each.topic, each.value) for each in queue.scan()]
        assert all(topic == f"topic-{value.decode()}" for topic, value in log)
        assert len(set(log)) == len(log), "something is there twice"
        assert set(self.acknowledged) <= set(log), "something acknowledged is missing"


@interrupted_everywhere()
def test_puts_go_on_after_one_was_interrupted_anywhere(
    connect: Connect, each_place: EachPlace
) -> None:
    numbers = Numbers()
    with connect() as client:
        queue = client.create_queue(QUEUE, partitions=1)

        def put() -> None:
            message = numbers.message()
            queue.put(message, partition=0)
            numbers.acknowledged.append((message.topic, message.value))

        put()
        for where in each_place(put):
            quickly(put, where)
        numbers.check(queue)


@interrupted_everywhere(every=3)
def test_a_first_put_that_was_interrupted_anywhere_is_no_hindrance(
    connect: Connect, each_place: EachPlace
) -> None:
    numbers = Numbers()
    with connect() as client:
        client.create_queue(QUEUE, partitions=2)
        opened = [client.queue(QUEUE)]

        def put() -> None:
            message = numbers.message()
            opened[-1].put(message)
            numbers.acknowledged.append((message.topic, message.value))

        def put_first() -> None:
            opened.append(client.queue(QUEUE))
            put()

        for where in each_place(put_first):
            quickly(put, where)
        numbers.check(client.queue(QUEUE))


@interrupted_everywhere()
def test_a_producer_goes_on_after_a_send_was_interrupted_anywhere(
    connect: Connect, each_place: EachPlace
) -> None:
    numbers = Numbers()
    sent: list[tuple[Message, hqueue.Delivery[hqueue.MessageID]]] = []
    with connect() as client:
        queue = client.create_queue(QUEUE, partitions=1)
        producer = queue.producer(linger_ms=2, batch_messages_max=3)

        def send() -> None:
            message = numbers.message()
            sent.append((message, producer.send(message, partition=0, callback=lambda *_: None)))

        def is_written() -> None:
            send()
            sent[-1][1].result(QUICK_S)

        for where in each_place(send):
            quickly(is_written, where)
        assert producer.close(QUICK_S)
        for message, delivery in sent:
            delivery.result(0)
            numbers.acknowledged.append((message.topic, message.value))
        numbers.check(queue)


@interrupted_also_over_zookeeper(natively, in_memory, every=2)
def test_a_consumer_goes_on_after_it_was_interrupted_anywhere_and_misses_nothing(
    connect: Connect, each_place: EachPlace
) -> None:
    """`poll` and `commit` are interrupted at one place more each time; what a poll that raised has
    taken comes again.
    """
    with connect() as client:
        queue = client.create_queue(QUEUE, partitions=1)
        numbers = itertools.count()
        options = {"auto_commit": False, "client": client, "group": "g"}
        with hqueue.Consumer(QUEUE, **options) as consumer:  # type: ignore[arg-type]
            handed_out: list[int] = []

            def poll() -> None:
                handed_out.extend(int(each.value) for each in consumer.poll(500, 2))

            def poll_and_commit() -> None:
                poll()
                consumer.commit()

            def catch_up() -> None:
                ends_s = time.monotonic() + QUICK_S
                while (not handed_out or handed_out[-1] < last) and time.monotonic() < ends_s:
                    poll()
                assert handed_out, "nothing comes"
                assert handed_out[-1] == last, f"{last - handed_out[-1]} messages don't come"
                consumer.commit()

            def put_three() -> int:
                for last in itertools.islice(numbers, 3):
                    queue.put(Message("t", b"%d" % last), partition=0)
                return last

            last = put_three()
            catch_up()
            put_three()
            for where in each_place(poll_and_commit):
                last = put_three()
                quickly(catch_up, where)
                assert set(handed_out) == {*range(last + 1)}, f"after an interruption at {where}"
                put_three()


@interrupted_also_over_zookeeper(in_memory, every=3)
def test_a_closing_consumer_that_was_interrupted_is_closed_again_and_holds_up_nobody(
    connect: Connect, each_place: EachPlace
) -> None:
    with connect() as client:
        client.create_queue(QUEUE, partitions=1).put([Message("t", b"%d" % n) for n in range(3)])
        consumers: list[hqueue.Consumer] = []

        def join() -> None:
            options = {"auto_commit": False, "client": client, "group": "g"}
            consumers.append(hqueue.Consumer(QUEUE, **options))  # type: ignore[arg-type]
            assert len(consumers[-1].poll(QUICK_S * 1e3)) == 3

        def close() -> None:
            consumers[-1].close()

        join()
        for where in each_place(close):
            quickly(close, where)
            quickly(join, where)
        with pytest.raises(hqueue.ClosedError):
            consumers[-1].poll()


@interrupted_also_over_zookeeper(in_memory, every=7)
def test_a_subscription_that_was_interrupted_anywhere_is_there_or_not_and_the_next_one_is_served(
    connect: Connect, each_place: EachPlace, caplog: pytest.LogCaptureFixture
) -> None:
    with connect() as client:
        client.create_queue(QUEUE, partitions=1).put(Message("t", b""))
        options = {"auto_commit": False, "client": client, "group": "g"}
        with hqueue.Consumer(**options) as consumer:  # type: ignore[arg-type]

            def come_and_go() -> None:
                consumer.subscribe(QUEUE)
                consumer.unsubscribe()

            def get() -> None:
                assert len(consumer.poll(QUICK_S * 1e3)) == 1

            for where in each_place(come_and_go):
                if consumer.subscription():
                    consumer.poll(0)  # It consumes, as it says.
                else:
                    with pytest.raises(hqueue.InvalidInputError, match="consumes nothing"):
                        consumer.poll(0)
                consumer.unsubscribe()
                consumer.subscribe(QUEUE)
                quickly(get, where)
                consumer.unsubscribe()
        assert "by another hand" not in caplog.text


@pytest.mark.parametrize("options", [{}, {"by_id": True}, {"follow": True, "idle_ms_max": 1}])
@interrupted_everywhere()
def test_a_scan_that_was_interrupted_anywhere_says_so_and_never_seems_to_be_at_its_end(
    options: dict[str, object], each_place: EachPlace
) -> None:
    with in_memory() as client:
        queue = client.create_queue(QUEUE, partitions=2)
        for n in range(6):
            queue.put(Message("t", b"%d" % n), partition=n % 2)
        scanners: list[hqueue.QueueScanner] = []
        came: list[bytes] = []

        def scan() -> None:
            came.clear()
            scanners.append(queue.scan(bytes_max=1, **options))  # type: ignore[arg-type]
            came.extend(each.value for each in iter(scanners[-1].next, None))

        for where in each_place(scan):
            if not scanners:
                continue
            failure: hqueue.HQueueError | None = None
            try:
                came.extend(each.value for each in iter(scanners[-1].next, None))
            except hqueue.HQueueError as exc:
                failure = exc
            if failure is None:
                assert len(set(came)) == 6, f"after an interruption at {where}"
            else:
                with pytest.raises(hqueue.HQueueError, match="was interrupted"):
                    list(scanners[-1])
            scanners.pop().close()
        assert sorted(map(int, came)) == [*range(6)]


@interrupted_everywhere(every=4)
def test_puts_to_a_real_server_go_on_after_one_was_interrupted(
    server: local.LocalServer, queue_name: str, each_place: EachPlace
) -> None:
    numbers = Numbers()
    backend = NativeBackend(server, RawHBase(server.gateways[0]))
    with backend.connect(**BOUNDS) as client:
        queue = client.create_queue(queue_name, partitions=1)

        def put() -> None:
            message = numbers.message()
            queue.put(message, partition=0)
            numbers.acknowledged.append((message.topic, message.value))

        put()
        for where in each_place(put):
            quickly(put, where)
        numbers.check(queue)
        client.disable_queue(queue_name)
        client.delete_queue(queue_name)
