"""Many processes at once write and follow; every message is accounted for."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import hqueue
from hqueue import Message
from tests.support.history import Seen, check, seen_by

from .running import Program

MakeQueue = Callable[..., hqueue.Queue]


def run(
    queue: hqueue.Queue,
    environment: dict[str, str],
    writers: Sequence[Sequence[object]],
    readers: int,
) -> tuple[list[Seen], list[list[Seen]]]:
    """Start readers, then writers at one moment; returns what each acknowledged and saw."""
    with contextlib.ExitStack() as stack:
        following = [
            stack.enter_context(Program("follow", queue.name, environment=environment))
            for _ in range(readers)
        ]
        writing = [
            stack.enter_context(
                Program("write", queue.name, f"w{n}", *arguments, environment=environment)
            )
            for n, arguments in enumerate(writers)
        ]
        for program in (*following, *writing):
            program.await_ready()
        for program in writing:
            program.begin()
        acknowledged = [Seen.parse(line) for w in writing for line in w.result()]
        for partition in range(queue.partitions):
            queue.put(Message("end", b"0:0"), partition=partition)
        seen = [[Seen.parse(line) for line in f.result()] for f in following]
    return acknowledged, seen


def scanned(queue: hqueue.Queue) -> list[Seen]:
    return seen_by(m for m in queue.scan() if m.topic != "end")


def test_processes_that_share_one_partition_lose_double_and_reorder_nothing(
    make_queue: MakeQueue, process_environment: dict[str, str]
) -> None:
    queue = make_queue()
    acknowledged, seen = run(queue, process_environment, [(60, "put", 0)] * 4, readers=2)
    assert len({s.value.partition(":")[0] for s in acknowledged}) == 4
    check(acknowledged, scanned(queue), *seen)


def test_processes_that_share_many_partitions_lose_double_and_reorder_nothing(
    make_queue: MakeQueue, process_environment: dict[str, str]
) -> None:
    queue = make_queue(6, partitions_per_region=4)
    writers = [
        (60, "put", 0, 1, 2),
        (60, "put", 2, 3, 4, 5),
        (60, "any"),
        (60, "any"),
        (100, "producer", 0, 3, 5),
    ]
    acknowledged, seen = run(queue, process_environment, writers, readers=2)
    check(acknowledged, scanned(queue), *seen)


def test_threads_that_share_a_queue_lose_double_and_reorder_nothing(make_queue: MakeQueue) -> None:
    queue = make_queue(3)
    start = threading.Barrier(8)

    def write(thread: int) -> list[Seen]:
        start.wait(30)
        told = []
        for n in range(60):
            partition = None if thread >= 6 else (thread + n) % 3
            i = queue.put(Message("t", b"%d:%d" % (thread, n)), partition=partition)
            told.append(Seen(-1 if partition is None else partition, int(i), f"{thread}:{n}"))
        return told

    with queue.scan(follow=True, idle_ms_max=120_000) as follower, ThreadPoolExecutor(8) as pool:
        written = [pool.submit(write, thread) for thread in range(8)]
        followed = [message for _, message in zip(range(480), follower, strict=False)]
        acknowledged = [seen for future in written for seen in future.result()]
    check(acknowledged, seen_by(followed), seen_by(queue.scan()))


def test_threads_that_share_a_producer_lose_double_and_reorder_nothing(
    make_queue: MakeQueue,
) -> None:
    queue = make_queue(3)
    start = threading.Barrier(8)

    def send(thread: int) -> list[tuple[int, hqueue.Delivery, str]]:
        start.wait(30)
        sent = []
        for n in range(1_500):
            value = f"{thread}:{n}"
            partition = (thread + n) % 3
            delivery = producer.send(Message("t", value.encode()), partition=partition)
            sent.append((partition, delivery, value))
        return sent

    with queue.producer(linger_ms=2, batch_messages_max=100) as producer:
        with ThreadPoolExecutor(8) as pool:
            sent = [
                s for future in [pool.submit(send, t) for t in range(8)] for s in future.result()
            ]
        assert producer.flush(60)
        acknowledged = [Seen(p, int(delivery.result(0)), value) for p, delivery, value in sent]
    check(acknowledged, seen_by(queue.scan()))


def test_threads_that_read_with_scanners_of_their_own_see_the_same(make_queue: MakeQueue) -> None:
    queue = make_queue(2)
    for n in range(200):
        queue.put([Message("t", b"0:%d" % (3 * n + k)) for k in range(3)], partition=n % 2)
    with ThreadPoolExecutor(6) as pool:
        seen = list(pool.map(lambda _: seen_by(queue.scan(bytes_max=500)), range(6)))
    check(seen[0], *seen)
    assert len(seen[0]) == 600
