"""Restored queues: what writers and readers do whose messages a restoration discards."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence

import pytest

import hqueue
from hqueue import Consumer, HQueueError, Message, ReceivedMessage, Subscription
from hqueue.errors import SnapshotNotFoundError
from hqueue.log import PartitionWriter
from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline, drive
from hqueue.store import StorePort
from tests.integration.pushing import Received, put_numbers
from tests.support.backends import Backend
from tests.support.consuming import put_numbered, take, values
from tests.support.hubs import HubThread
from tests.support.memory.cluster import MemoryCluster
from tests.support.past import DAY_MS, put_in_the_past
from tests.support.raw import RawTables
from tests.support.waiting import wait_for

pytestmark = pytest.mark.in_memory

MakeQueue = Callable[..., hqueue.Queue]


@pytest.fixture
def admin(backend: Backend) -> Iterator[hqueue.Client]:
    """A client that takes snapshots. It expects clocks to be near, so that nothing waits long."""
    native = {} if isinstance(backend.raw, MemoryCluster) else {"hbase": "native"}
    with backend.connect(clock_skew_ms_max=1_000, operation_timeout_ms=120_000, **native) as client:
        yield client


@pytest.fixture
def snapshot(admin: hqueue.Client, queue_name: str) -> Iterator[str]:
    """The name of a snapshot, which is deleted after the test."""
    yield f"{queue_name}-snapshot"
    with contextlib.suppress(SnapshotNotFoundError):
        admin.delete_snapshot(f"{queue_name}-snapshot")


def scanned(queue: hqueue.Queue) -> list[int]:
    with queue.scan() as scanner:
        return sorted(int(message.value) for message in scanner)


def check_whole(queue: hqueue.Queue) -> None:
    """Check that a queue has no damage."""
    for checked in queue.verify():
        assert not checked.findings


@pytest.mark.in_memory_first
def test_a_restored_queue_is_whole_and_goes_on_with_higher_ids(
    admin: hqueue.Client, make_queue: MakeQueue, snapshot: str
) -> None:
    queue = admin.queue(make_queue(2).name)
    put_numbered(queue, 10)
    admin.create_snapshot(queue.name, snapshot)
    put_numbered(queue, 6, first=100)
    lost = max(each.end for each in queue.offsets())
    assert admin.restore_snapshot(snapshot) == queue.name
    assert scanned(queue) == list(range(10))
    put_numbered(queue, 2, first=10)
    assert scanned(queue) == list(range(12))
    with queue.scan(start=lost) as scanner:
        assert sorted(int(message.value) for message in scanner) == [10, 11]
    check_whole(queue)


@pytest.mark.in_memory_first
def test_a_queue_that_was_deleted_is_created_again_also_under_another_name(
    admin: hqueue.Client, make_queue: MakeQueue, snapshot: str
) -> None:
    name = make_queue(2).name
    put_numbered(admin.queue(name), 4)
    admin.create_snapshot(name, snapshot)
    assert [each.queue for each in admin.list_snapshots(name)] == [name]
    admin.delete_queue(name, force=True)
    other = f"{name}-other"
    for each in (name, other):
        admin.restore_snapshot(snapshot, queue=each)
        assert scanned(admin.queue(each)) == [0, 1, 2, 3]
    put_numbered(admin.queue(other), 1, first=4)
    assert scanned(admin.queue(name)) == [0, 1, 2, 3]
    with pytest.raises(hqueue.InvalidInputError, match="of another queue"):
        admin.restore_snapshot(snapshot, queue=other)
    admin.delete_queue(other, force=True)


@pytest.mark.in_memory_first
def test_writers_that_run_through_a_restoration_append_after_what_was_restored(
    admin: hqueue.Client, backend: Backend, make_queue: MakeQueue, snapshot: str
) -> None:
    queue = admin.queue(make_queue(1).name)
    numbers, stop = itertools.count(), threading.Event()
    acknowledged: list[list[int]] = [[], [], []]
    failures: list[Exception] = []

    def write(into: list[int], *, keyed: bool) -> None:
        with backend.connect() as client:
            writer = client.queue(queue.name)
            while not stop.is_set():
                number = next(numbers)
                key = {"idempotency_key": f"key-{number}"} if keyed else {}
                while not stop.is_set():
                    try:
                        writer.put(Message("t", b"%d" % number), partition=0, **key)
                    except HQueueError as exc:
                        failures.append(exc)
                        if keyed:
                            continue  # Of those that failed, each counts once all the same.
                    else:
                        into.append(number)
                    break

    threads = [
        threading.Thread(target=write, args=(into,), kwargs={"keyed": keyed})
        for into, keyed in zip(acknowledged, (False, False, True), strict=True)
    ]
    for thread in threads:
        thread.start()

    def settled(more: int) -> Callable[[], bool]:
        counts = [len(each) + more for each in acknowledged]
        return lambda: all(
            len(each) >= count for each, count in zip(acknowledged, counts, strict=True)
        )

    try:
        wait_for(settled(20), "all writers write")
        before = [list(each) for each in acknowledged]
        admin.create_snapshot(queue.name, snapshot)
        wait_for(settled(20), "all writers write on")
        admin.restore_snapshot(snapshot)
        after = [len(each) for each in acknowledged]
        wait_for(settled(20), "all writers write after the restoration")
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    kept = scanned(queue)
    assert len(kept) == len(set(kept)), "a message lies there twice"
    assert set(itertools.chain(*before)) <= set(kept)
    for each, count in zip(acknowledged, after, strict=True):
        # The answer to one may have come while the restoration's was under way.
        assert set(each[count:]) <= set(kept)
    check_whole(queue)
    assert all(isinstance(each, hqueue.QueueStateError) for each in failures), failures


@pytest.mark.parametrize("runs_on", [True, False])
@pytest.mark.parametrize("beyond", [True, False])
def test_a_group_misses_no_message_of_a_restored_queue(
    admin: hqueue.Client, make_queue: MakeQueue, snapshot: str, runs_on: bool, beyond: bool
) -> None:
    group = snapshot
    queue = admin.queue(make_queue(1).name)
    put_numbered(queue, 5)
    admin.create_snapshot(queue.name, snapshot)
    put_numbered(queue, 4, first=100)
    consumer = Consumer([queue.name], group=group, client=admin)
    try:
        taken = take(8 if beyond else 3, consumer)
        consumer.commit()
        if not runs_on:
            consumer.close()
        admin.restore_snapshot(snapshot)
        put_numbered(queue, 3, first=5)
        if not runs_on:
            consumer = Consumer([queue.name], group=group, client=admin)
        got = set(values(taken))
        wait_for(lambda: got.update(values(consumer.poll(20))) or {5, 6, 7} <= got, "all come")
        assert got >= set(range(8))
    finally:
        consumer.close()


@pytest.mark.in_memory_first
def test_old_headers_that_come_back_with_a_snapshot_are_collected_again_from_the_oldest_on(
    admin: hqueue.Client,
    make_queue: MakeQueue,
    raw: RawTables,
    store: StorePort,
    snapshot: str,
) -> None:
    queue = make_queue(ttl="1d")
    put_in_the_past(raw, queue, [9 * DAY_MS - n for n in range(30)] + [DAY_MS // 2])
    admin.create_snapshot(queue.name, snapshot)
    writer, log = PartitionWriter(0), store.log(queue.name)

    def collect() -> int:
        expired_ms = SYSTEM_CLOCK.wall_ms() - DAY_MS
        deadline = Deadline(SYSTEM_CLOCK, 60_000)
        return deadline.run(lambda: drive(writer.collect(expired_ms), log, deadline))

    assert [collect(), collect()] == [30, 0]
    admin.restore_snapshot(snapshot)
    assert [collect(), collect(), collect()] == [0, 30, 0]
    check_whole(queue)


@pytest.mark.parametrize("beyond", [True, False])
def test_a_share_group_misses_no_message_of_a_restored_queue(
    admin: hqueue.Client, make_queue: MakeQueue, snapshot: str, beyond: bool
) -> None:
    queue = admin.queue(make_queue(1).name)
    put_numbered(queue, 5)
    admin.create_snapshot(queue.name, snapshot)
    put_numbered(queue, 4, first=100)
    with hqueue.ShareConsumer(queue.name, group=snapshot, client=admin) as consumer:
        got: set[int] = set()

        def all_of(*wanted: int) -> Callable[[], bool]:
            def polled() -> bool:
                got.update(int(each.value) for each in consumer.poll(100, 1 if not beyond else 9))
                return got >= set(wanted)

            return polled

        wait_for(all_of(*range(5), *([103] if beyond else [])), "the first come")
        consumer.commit()
        admin.restore_snapshot(snapshot)
        put_numbered(queue, 3, first=5)
        wait_for(all_of(*range(8)), "those after the restoration come")


def test_a_subscriber_misses_no_message_of_a_restored_queue(
    admin: hqueue.Client, make: MakeQueue, start: Callable[..., object], snapshot: str
) -> None:
    queue = make(1)
    start()
    got = Received()
    with queue.subscriber(Subscription("s"), got):
        before = put_numbers(queue, range(5))
        admin.create_snapshot(queue.name, snapshot)
        lost = put_numbers(queue, range(5, 9))
        got.await_values(before + lost)
        admin.restore_snapshot(snapshot)
        after = put_numbers(queue, range(9, 12))
        got.await_values(after, timeout_s=120)
    assert got.values == before + lost + after


@pytest.mark.in_memory_first
def test_hubs_go_on_with_the_topics_of_a_restored_queue(
    admin: hqueue.Client, backend: Backend, make_queue: MakeQueue, snapshot: str
) -> None:
    queue = admin.queue(make_queue(2).name)
    received: list[bytes] = []

    def publish(address: hqueue.Address, *values: bytes) -> None:
        with hqueue.connect_hubs([address], queue=queue.name) as hubs:
            hubs.topic("t").publish_many(values)

    def receive(messages: Sequence[ReceivedMessage]) -> None:
        received.extend(each.value for each in messages)

    def sees(*values: bytes) -> Callable[[], bool]:
        return lambda: [message.value for message in queue.scan_topic("t")] == list(values)

    with (
        backend.connect() as first,
        HubThread(first, queue.name) as hub,
        hqueue.connect_hubs([hub.address], queue=queue.name) as hubs,
    ):
        hubs.topic("t").subscribe("s", receive)
        publish(hub.address, b"0", b"1")
        wait_for(lambda: received == [b"0", b"1"], "they are delivered")
        admin.create_snapshot(queue.name, snapshot)
        publish(hub.address, b"lost")
        wait_for(lambda: b"lost" in received, "it is delivered")
    with backend.connect() as second, HubThread(second, queue.name) as hub:
        # The control record by which it owns the topic is lost, too.
        publish(hub.address, b"lost, too")
        admin.restore_snapshot(snapshot)
        publish(hub.address, b"2")
        wait_for(sees(b"0", b"1", b"2"), "the topic is what was restored, and what came since")
        with hqueue.connect_hubs([hub.address], queue=queue.name) as hubs:
            hubs.topic("t").subscribe("s", receive)
            wait_for(lambda: b"2" in received, "it is delivered")
            publish(hub.address, b"3")
            wait_for(lambda: b"3" in received, "it is delivered")
        wait_for(sees(b"0", b"1", b"2", b"3"), "all is read")
    check_whole(queue)
