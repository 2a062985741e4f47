"""What is interrupted everywhere, and goes on: puts, sends, polls, commits, closes and scans, on
clients of several kinds.

It needs nothing but the library, so that each Python on a machine can run it by itself:

    python -m tests.support.interrupted 5
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
import time
from collections.abc import Callable, Iterator

import hqueue
from hqueue import Message, Settings
from hqueue.client import Client
from hqueue.groups import pacing
from hqueue.hbase.native.appends import TableAppends
from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.reads import TableReads
from hqueue.hbase.native.regions import Meta, RegionMap
from hqueue.hbase.native.servers import Servers
from hqueue.hbase.native.zookeeper_registry import ZooKeeperRegistry
from hqueue.hbase.thrift.side_by_side import THREADS, SideBySide
from hqueue.zookeeper import ZooKeeperCoordination
from tests.support.interrupting import Interrupted, each_interruption, each_line
from tests.support.memory.cluster import MemoryCluster
from tests.support.memory.memory_store import MemoryStore
from tests.support.memory.metadata import MemoryCoordination, MemoryServer
from tests.support.memory.zookeeper import MemoryZooKeeper
from tests.support.region_server import RegionServer, meta_node, region_row
from tests.support.registries import reading
from tests.support.scripted_server import ScriptedServer

BOUNDS = {"request_timeout_ms": 1_000, "operation_timeout_ms": 4_000}
QUICK_S = 3.0
QUEUE = "interrupted"

Connect = Callable[[], contextlib.AbstractContextManager[Client]]
EachPlace = Callable[..., Iterator[str]]


@contextlib.contextmanager
def nobody_else_joining() -> Iterator[None]:
    """Groups have one member here: who joins waits for no others."""
    before, pacing.GATHER_MS = pacing.GATHER_MS, 1.0
    try:
        yield
    finally:
        pacing.GATHER_MS = before


@contextlib.contextmanager
def raising(kind: type[BaseException], says: str = "") -> Iterator[None]:
    """This kind is raised, and says that."""
    raised: BaseException | None = None
    try:
        yield
    except kind as exc:
        raised = exc
    assert raised is not None, f"no {kind.__name__} is raised"
    assert says in str(raised)


class NativeLog(TableAppends, TableReads):
    """A log on a scripted region server, whose clock is this machine's."""

    def clock_offset_ms(self) -> tuple[float, float]:
        return 0.0, 1.0


class NativeStore(MemoryStore):
    """A store whose rows lie on a scripted region server, and all else in memory."""

    def __init__(self, settings: Settings, server: ScriptedServer) -> None:
        super().__init__(MemoryCluster(), settings)
        self.servers = Servers(settings)
        registry = ZooKeeperRegistry(reading(lambda _: meta_node(server.address)), "/hbase")
        self._meta = Meta(registry)

    def log(self, queue: str) -> NativeLog:  # type: ignore[override]
        return NativeLog(self.servers, queue, RegionMap(self._meta, queue, 15_000))

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
        with Client(
            settings, store, lambda loop: MemoryCoordination(coordination, loop=loop)
        ) as client:
            yield client


@contextlib.contextmanager
def in_memory() -> Iterator[Client]:
    settings = Settings(notify_workers=False, **BOUNDS)  # type: ignore[arg-type]
    coordination = MemoryServer()
    store = MemoryStore(MemoryCluster(), settings)
    with Client(
        settings, store, lambda loop: MemoryCoordination(coordination, loop=loop)
    ) as client:
        yield client


@contextlib.contextmanager
def by_zookeeper() -> Iterator[Client]:
    """Rows in memory, and the coordination by kazoo."""
    with MemoryZooKeeper() as server:
        at = f"127.0.0.1:{server.port}"
        settings = Settings(zookeeper=at, notify_workers=False, **BOUNDS)  # type: ignore[arg-type]
        store = MemoryStore(MemoryCluster(), settings)
        with Client(
            settings, store, lambda loop: ZooKeeperCoordination(settings, loop=loop)
        ) as client:
            yield client


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


def puts(connect: Connect, each_place: EachPlace, name: str = QUEUE) -> None:
    """Puts go on after one was interrupted."""
    numbers = Numbers()
    with connect() as client:
        queue = client.create_queue(name, partitions=1)

        def put() -> None:
            message = numbers.message()
            queue.put(message, partition=0)
            numbers.acknowledged.append((message.topic, message.value))

        put()
        for where in each_place(put):
            quickly(put, where)
        numbers.check(queue)


def first_puts(connect: Connect, each_place: EachPlace) -> None:
    """A first put that was interrupted is no hindrance to the next."""
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


def sends(connect: Connect, each_place: EachPlace) -> None:
    """A producer goes on after a send was interrupted."""
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


def flushes(connect: Connect, each_place: EachPlace) -> None:
    """What was sent is written, and known to be, after waits for it were interrupted."""
    numbers = Numbers()
    with connect() as client:
        queue = client.create_queue(QUEUE, partitions=1)
        producers = [queue.producer(linger_ms=1)]
        sent: list[tuple[Message, hqueue.Delivery[hqueue.MessageID]]] = []

        def send() -> None:
            message = numbers.message()
            sent.append((message, producers[-1].send(message, partition=0)))

        def flush() -> None:
            assert sent[-1][1].exception(QUICK_S) is None
            assert producers[-1].flush(QUICK_S)
            assert producers[-1].close(QUICK_S)

        send()
        for where in each_place(flush):
            quickly(flush, where)
            producers.append(queue.producer(linger_ms=1))
            send()
        for message, delivery in sent:
            delivery.result(0)
            numbers.acknowledged.append((message.topic, message.value))
        numbers.check(queue)


def closes_of_clients(connect: Connect, each_place: EachPlace) -> None:
    """A client whose close was interrupted is closed again."""
    with contextlib.ExitStack() as stack:
        clients: list[Client] = []

        def open_another() -> None:
            client = stack.enter_context(connect())
            client.create_queue(QUEUE, partitions=1).put(Message("t", b""))
            clients.append(client)

        def close() -> None:
            clients[-1].close()

        open_another()
        for where in each_place(close):
            quickly(close, where)
            open_another()
        with raising(hqueue.ClosedError):
            clients[-1].queue(QUEUE).put(Message("t", b""))


def polls_and_commits(connect: Connect, each_place: EachPlace) -> None:
    """A consumer goes on after it was interrupted, and misses nothing: `poll` and `commit` at one
    place more each time; what a poll that raised has taken comes again.
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
                assert handed_out == [*range(last + 1)], f"after an interruption at {where}"
                put_three()


class OwnInterrupted(Interrupted, hqueue.HQueueError):
    """What a handler raises that uses the library, and does not catch its errors."""


def raises_own(_: hqueue.Consumer | None, number: int, frame: object) -> None:
    raise OwnInterrupted("raised by a handler")


def commits_and_raises(consumer: hqueue.Consumer, number: int, frame: object) -> None:
    with contextlib.suppress(hqueue.InvalidInputError):  # It interrupts another commit.
        consumer.commit()
    raise Interrupted("raised by a handler")


def handouts(
    connect: Connect,
    each_place: EachPlace,
    *,
    by: str,
    left: int = 0,
    handler: Callable[[hqueue.Consumer, int, object], None] | None = None,
) -> None:
    """A consumer that is interrupted when it is asked for more hands nothing out again that it had
    handed out before, and misses nothing.

    Args:
        by: how messages are taken, as `TAKEN_BY` says.
        left: messages that were fetched and not taken, about, when it is interrupted.
        handler: what interrupts it; one that raises if None.
    """
    with connect() as client:
        queue = client.create_queue(QUEUE, partitions=1)
        numbers = itertools.count()
        options = {"auto_commit": False, "client": client, "group": "g"}
        with hqueue.Consumer(QUEUE, **options) as consumer:  # type: ignore[arg-type]
            handed_out: list[int] = []

            def put() -> int:
                for _ in range(2):
                    batch = [Message("t", b"%d" % n) for n in itertools.islice(numbers, 3)]
                    queue.put(batch, partition=0)
                return int(batch[-1].value)

            def take() -> None:
                takes[-1]()

            def take_up_to(number: int) -> None:
                ends_s = time.monotonic() + 5 * QUICK_S  # The first one imports Arrow.
                while not handed_out or handed_out[-1] < number:
                    assert time.monotonic() < ends_s, f"{number} doesn't come: {handed_out[-9:]}"
                    take()

            def prepare() -> int:
                last = put()
                take_up_to(last - left)
                return put() if handed_out[-1] == last else last

            handling = {} if handler is None else {"handle": functools.partial(handler, consumer)}
            takes = [TAKEN_BY[by](consumer, handed_out)]
            last = prepare()
            for where in each_place(take, **handling):
                takes.append(TAKEN_BY[by](consumer, handed_out))
                quickly(functools.partial(take_up_to, last), where)
                assert handed_out == [*range(last + 1)], f"after an interruption at {where}"
                last = prepare()


def _by_polls(consumer: hqueue.Consumer, handed_out: list[int]) -> Callable[[], None]:
    return lambda: handed_out.extend([int(each.value) for each in consumer.poll(500, 2)])


def _by_one_iteration(consumer: hqueue.Consumer, handed_out: list[int]) -> Callable[[], None]:
    messages = consumer.messages(idle_ms_max=QUICK_S * 1e3)
    return lambda: handed_out.append(int(next(messages).value))


def _by_iterations(consumer: hqueue.Consumer, handed_out: list[int]) -> Callable[[], None]:
    def take() -> None:
        messages = consumer.messages(idle_ms_max=QUICK_S * 1e3)
        handed_out.append(int(next(messages).value))
        messages.close()  # Where it is freed instead, Python reports what is raised, and goes on.

    return take


def _by_arrow_batches(consumer: hqueue.Consumer, handed_out: list[int]) -> Callable[[], None]:
    batches = consumer.arrow_batches(idle_ms_max=QUICK_S * 1e3)
    return lambda: handed_out.extend(map(int, next(batches)["value"].to_pylist()))


TAKEN_BY = {
    "polls": _by_polls,
    "one iteration": _by_one_iteration,
    "iterations": _by_iterations,
    "arrow batches": _by_arrow_batches,
}


def closes_of_consumers(connect: Connect, each_place: EachPlace) -> None:
    """A consumer whose close was interrupted is closed again, and holds up nobody."""
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
        with raising(hqueue.ClosedError):
            consumers[-1].poll()


def subscriptions(connect: Connect, each_place: EachPlace) -> None:
    """A subscription that was interrupted is there or not, as it says; the next one is served."""
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
                    with raising(hqueue.InvalidInputError, "consumes nothing"):
                        consumer.poll(0)
                consumer.unsubscribe()
                consumer.subscribe(QUEUE)
                quickly(get, where)
                consumer.unsubscribe()


def scans(each_place: EachPlace, **options: object) -> None:
    """A scan that was interrupted says so, and never seems to be at its end."""
    with in_memory() as client:
        queue = client.create_queue(QUEUE, partitions=2)
        for n in range(6):
            queue.put(Message("t", b"%d" % n), partition=n % 2)
        scanners: list[hqueue.Scanner] = []
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
                with raising(hqueue.HQueueError, "was interrupted"):
                    list(scanners[-1])
            scanners.pop().close()
        assert sorted(map(int, came)) == [*range(6)]


def requests_side_by_side(each_place: EachPlace) -> None:
    """Requests that several threads make go on after their caller was interrupted: none waits for
    a thread that is lost, no result is another one's.
    """
    side_by_side = SideBySide()
    inputs = range(THREADS + 4)

    def double(number: int) -> int:
        return 2 * number

    def each() -> None:
        assert side_by_side.each(inputs, double) == [2 * number for number in inputs]

    def alone() -> None:
        assert side_by_side.each([1, 2], double) == [2, 4]

    def both() -> None:
        alone()
        each()

    with contextlib.closing(side_by_side):
        for where in each_place(both):
            quickly(both, where)


SCENES = [
    puts,
    first_puts,
    sends,
    flushes,
    closes_of_clients,
    polls_and_commits,
    closes_of_consumers,
    subscriptions,
]
SCANS: list[dict[str, object]] = [{}, {"merge_sorted": True}, {"follow": True, "idle_ms_max": 1}]


def main(every: int) -> None:
    """Go through each scene, over memory alone, and say at how many places it was interrupted."""
    scenes: dict[str, Callable[[EachPlace], None]] = {
        each.__name__: functools.partial(each, in_memory) for each in SCENES
    }
    scenes["native puts"] = functools.partial(puts, natively)
    # Record batches need an extra, and a single iteration has no place on some Pythons.
    for by in sorted(TAKEN_BY.keys() - {"arrow batches", "one iteration"}):
        scenes[by] = functools.partial(handouts, in_memory, by=by, left=2)
    scenes |= {f"scans {each}": functools.partial(scans, **each) for each in SCANS}
    scenes["requests side by side"] = requests_side_by_side
    with nobody_else_joining():
        for name, scene in scenes.items():
            for places in (each_interruption, each_line):
                came = itertools.count()

                def counted(call: Callable[[], object]) -> Iterator[str]:
                    for where in places(call, every=every):  # noqa: B023
                        next(came)  # noqa: B023
                        yield where

                scene(counted)
                count = next(came)
                assert count, name
                print(name, places.__name__, count, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
