"""Gateways are killed and paused; nothing is lost, doubled or reordered.

Each test leaves the server whole again.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import hqueue
from hqueue import GatewayAddress, Message, Outcome, StoreUnavailableError, local
from tests.support.history import Seen, check, seen_by
from tests.support.waiting import wait_for
from tests.support.writing import Writing, whole_again

MakeQueue = Callable[..., hqueue.Queue]


def fill(queue: hqueue.Queue, number: int) -> list[Seen]:
    return [
        Seen(p, int(queue.put(Message("t", b"0:%d" % n), partition=p)), f"0:{n}")
        for n in range(number)
        for p in [n % queue.partitions]
    ]


def test_scans_in_the_middle_complete_exactly_after_their_gateway_was_killed(
    server: local.LocalServer, make_queue: MakeQueue
) -> None:
    queue = make_queue(2)
    written = fill(queue, 200)
    scanners = [
        queue.scan(bytes_max=2_000),
        queue.scan(bytes_max=2_000, merge_sorted=True),
        queue.scan(bytes_max=2_000, topics=["t"]),
        queue.scan(bytes_max=2_000, follow=True, idle_ms_max=1),
    ]
    begun = [[m for _, m in zip(range(30), scanner, strict=False)] for scanner in scanners]
    with whole_again(server):
        server.kill("thrift1")
        with ThreadPoolExecutor(len(scanners)) as pool:
            rest = [pool.submit(list, scanner) for scanner in scanners]
            server.restart("thrift1")
            seen = [
                seen_by([*first, *more.result(60)]) for first, more in zip(begun, rest, strict=True)
            ]
    check(written, *seen)


def test_puts_while_their_gateway_is_killed_are_each_there_once(
    server: local.LocalServer, make_queue: MakeQueue
) -> None:
    queue = make_queue(3)
    follower = queue.scan(follow=True)
    followed: list[hqueue.Message] = []

    def follow() -> None:
        followed.extend(m for m in follower)

    with whole_again(server), queue.producer() as producer, ThreadPoolExecutor(1) as pool:
        following = pool.submit(follow)
        with Writing(queue, 4) as writing:
            writing.await_more()
            server.kill("thrift2")
            sent = [
                (n, producer.send(Message("t", b"p:%d" % n), partition=n % 3)) for n in range(500)
            ]
            server.restart("thrift2")
            writing.await_more()
        assert producer.flush(60)
        acknowledged = writing.acknowledged
        acknowledged += [Seen(n % 3, int(d.result(0)), f"p:{n}") for n, d in sent]
        list(queue.scan())
        # All is in the log; the follower ends when it has come by.
        offsets = {p: each.end for p, each in enumerate(queue.offsets())}
        wait_for(
            lambda: all(follower.positions()[p] >= each for p, each in offsets.items()),
            "the follower meets the end",
        )
        follower.close()
        following.result(60)
    check(acknowledged, seen_by(queue.scan()), seen_by(followed))


@pytest.mark.thorough("waits for the bounds themselves, 10 s")
@pytest.mark.parametrize("name", ["thrift1", "thrift2"])
def test_a_gateway_that_stands_still_for_longer_than_a_request_may_take(
    server: local.LocalServer, make_queue: MakeQueue, name: str
) -> None:
    queue_name = make_queue(2).name
    with hqueue.connect(server.settings(request_timeout_ms=1_000)) as client:
        queue = client.queue(queue_name)
        before = [
            Seen(n % 2, int(queue.put(Message("t", b"a:%d" % n), partition=n % 2)), f"a:{n}")
            for n in range(100)
        ]
        scanner = queue.scan(bytes_max=2_000)
        first = [m for _, m in zip(range(20), scanner, strict=False)]
        with whole_again(server), Writing(queue, 3) as writing, ThreadPoolExecutor(1) as pool:
            writing.await_more()
            server.pause(name)
            paused = time.monotonic()
            rest = pool.submit(list, scanner)
            if name == "thrift1":
                writing.await_more()
            wait_for(lambda: time.monotonic() - paused > 2.5, "two requests time out")
            server.resume(name)
            rest.result(60)
            writing.await_more()
        in_turn = sorted((*first, *rest.result()), key=lambda m: m.partition)
        values = [m.value for m in in_turn]
        assert [v for v in values if v.startswith(b"a:")] == [
            b"a:%d" % n for p in (0, 1) for n in range(p, 100, 2)
        ]
        check([*before, *writing.acknowledged], seen_by(queue.scan()))


def dead_address() -> GatewayAddress:
    """A gateway's address where nothing listens."""
    ports = []
    for _ in range(2):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            ports.append(taken.getsockname()[1])
    return GatewayAddress("127.0.0.1", *ports)


@pytest.mark.thorough("waits for the bounds themselves, 7 s")
def test_with_all_gateways_dead_every_operation_fails_in_its_time_and_not_earlier(
    server: local.LocalServer, make_queue: MakeQueue
) -> None:
    queue_name = make_queue(2).name
    with hqueue.connect(server.settings(operation_timeout_ms=1_500)) as client:
        queue = client.queue(queue_name)
        # Of partition 0 the writer knows nothing, and so sends no put before it has asked.
        queue.put(Message("t", b"0:0"), partition=1)
        dead = hqueue.connect(
            server.settings(gateways=(dead_address(), dead_address()), operation_timeout_ms=1_500)
        )
        operations: list[Callable[[], object]] = [
            lambda: queue.put(Message("t", b"0:1"), partition=0),
            lambda: list(queue.scan()),
            lambda: list(queue.scan(merge_sorted=True)),
            lambda: list(queue.scan(follow=True)),
            queue.offsets,
            lambda: dead.create_queue("x", partitions=1),
            lambda: dead.queue("x"),
            dead.list_queues,
        ]
        with whole_again(server):
            server.kill("thrift1")
            server.kill("thrift2")
            with ThreadPoolExecutor(len(operations)) as pool:
                for failed in [pool.submit(outcome_of, each) for each in operations]:
                    error, took_s = failed.result(30)
                    assert isinstance(error, StoreUnavailableError)
                    assert 1.4 < took_s < 30
                    assert error.outcome is Outcome.NOT_APPLIED
        queue.put(Message("t", b"0:2"))
        assert [seen.value for seen in sorted(seen_by(queue.scan()), key=lambda s: s.id)] == [
            "0:0",
            "0:2",
        ]


def outcome_of(operation: Callable[[], object]) -> tuple[BaseException | None, float]:
    began = time.monotonic()
    try:
        operation()
    except hqueue.HQueueError as exc:
        return exc, time.monotonic() - began
    return None, time.monotonic() - began


def test_a_dead_gateway_among_others_costs_no_put_and_no_scan(
    server: local.LocalServer, make_queue: MakeQueue
) -> None:
    queue_name = make_queue(2).name
    gateways = (dead_address(), *server.gateways, dead_address())
    with hqueue.connect(server.settings(gateways=gateways)) as client:
        queue = client.queue(queue_name)
        began = time.monotonic()
        written = fill(queue, 100)
        check(written, seen_by(queue.scan()), seen_by(queue.scan(bytes_max=500)))
        assert time.monotonic() - began < 60
