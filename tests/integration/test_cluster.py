"""A real cluster: nearness, and servers and masters that move, die and come back under load."""

from __future__ import annotations

import collections
import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import hqueue
from hqueue import Message, local
from hqueue.settings.addresses import Address
from tests.support.history import Seen, check, seen_by
from tests.support.proxy import Fate, Proxies, Proxy
from tests.support.raw import RawHBase
from tests.support.registries import host_of_meta, master_of
from tests.support.second_master import SECOND_MASTER, second_master
from tests.support.waiting import wait_for
from tests.support.writing import Writing, whole_again

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.thorough("on a cluster, whose start alone takes a minute; see `make test-faults`"),
]

PARTITIONS = 6
ConnectBoth = Callable[..., list[hqueue.Client]]


@pytest.fixture(scope="module")
def cluster(cluster_server: local.LocalServer) -> Iterator[hqueue.Client]:
    """A client, once new queues are spread over all region servers: on a busy machine the last one
    reports later than HBase is ready.
    """
    names = (f"spread-{number}" for number in itertools.count())
    with hqueue.connect(cluster_server.settings(request_timeout_ms=5_000)) as client:

        def is_spread() -> bool:
            queue = client.create_queue(next(names), partitions=PARTITIONS)
            return set(host_of(client, queue).values()) == {0, 1, 2}

        wait_for(is_spread, "queues are spread over the servers")
        yield client


@pytest.fixture(scope="module", params=["gateways", "native"])
def either(
    request: pytest.FixtureRequest, cluster_server: local.LocalServer
) -> Iterator[hqueue.Client]:
    """A client over gateways, and one that calls the region servers itself."""
    given: dict[str, object] = {} if request.param == "gateways" else {"gateways": ()}
    settings = cluster_server.settings(request_timeout_ms=5_000, **given)
    assert settings.hbase == request.param
    with hqueue.connect(settings) as client:
        yield client


@pytest.fixture
def either_queue(either: hqueue.Client, queue_name: str) -> hqueue.Queue:
    """As `queue`."""
    return either.create_queue(queue_name, partitions=PARTITIONS)


@pytest.fixture
def queue(cluster: hqueue.Client, queue_name: str) -> hqueue.Queue:
    """A queue of its own. It goes with the cluster: deleting it would take some seconds."""
    return cluster.create_queue(queue_name, partitions=PARTITIONS)


@pytest.fixture
def connect_both(
    cluster_server: local.LocalServer,
) -> Iterator[Callable[..., list[hqueue.Client]]]:
    """Opens two native clients: one finds HBase by ZooKeeper, the other by these masters."""
    with contextlib.ExitStack() as stack:

        def connect(*masters: Address) -> list[hqueue.Client]:
            ways: list[dict[str, object]] = [{"hbase": "native"}, {"hbase_masters": masters}]
            return [
                stack.enter_context(
                    hqueue.connect(cluster_server.settings(request_timeout_ms=5_000, **way))
                )
                for way in ways
            ]

        yield connect


@pytest.fixture
def proxies(cluster_server: local.LocalServer) -> Iterator[Proxies]:
    with Proxies(cluster_server) as between:
        yield between


def host_of(client: hqueue.Client, queue: hqueue.Queue) -> dict[int, int]:
    """The number of the region server that has each partition: 0 to 2."""
    return {p.partition: int(p.host.rpartition(".")[2]) - 1 for p in client.locations(queue.name)}


def region_server_on(host: str) -> str:
    """The name of the process."""
    return f"regionserver-{host.rpartition('.')[2]}"


def calls(proxies: list[Proxy], method: str) -> list[int]:
    return [proxy.calls[method] for proxy in proxies]


def test_each_partition_is_written_and_read_through_the_gateway_on_its_regions_host(
    cluster: hqueue.Client, queue: hqueue.Queue, proxies: Proxies
) -> None:
    hosts = host_of(cluster, queue)
    assert set(hosts.values()) == {0, 1, 2}, "the partitions are spread over the servers"
    with hqueue.connect(proxies.settings()) as client:
        near = client.queue(queue.name)
        for n in range(120):
            near.put(Message("t", b"%d" % n), partition=n % PARTITIONS)
        per_host = collections.Counter(hosts.values())
        assert calls(proxies.thrift2, "checkAndPut") == [20 * per_host[h] for h in range(3)]
        assert len(list(near.scan())) == 120
        assert calls(proxies.thrift1, "scannerOpenWithScan") == [per_host[h] for h in range(3)]


def test_a_gateway_that_fails_is_avoided_and_tried_again_later(
    cluster: hqueue.Client, queue: hqueue.Queue, proxies: Proxies
) -> None:
    partition, host = next(iter(host_of(cluster, queue).items()))
    failing = proxies.thrift2[host]
    with hqueue.connect(proxies.settings(gateway_retry_ms=500)) as client:
        near = client.queue(queue.name)
        told = [Seen(partition, int(near.put(Message("t", b"0:0"), partition=partition)), "0:0")]
        failing.fate = lambda _: Fate.LOSE_REQUEST
        proxies.reset()
        ends = time.monotonic() + 2
        while time.monotonic() < ends:
            value = f"0:{len(told)}"
            i = near.put(Message("t", value.encode()), partition=partition)
            told.append(Seen(partition, int(i), value))
        assert 1 <= sum(failing.calls.values()) <= 5, "tried now and then, not for each put"
        assert sum(calls(proxies.thrift2, "checkAndPut")) >= len(told) - 1
        failing.fate = lambda _: Fate.PASS

        def is_used_again() -> bool:
            value = f"0:{len(told)}"
            i = near.put(Message("t", value.encode()), partition=partition)
            told.append(Seen(partition, int(i), value))
            return failing.calls["checkAndPut"] >= 20

        wait_for(is_used_again, "the near gateway is used again")
        check(told, seen_by(near.scan()))


def test_a_thrift1_gateway_that_hangs_is_avoided_though_its_host_answers_writers(
    cluster: hqueue.Client, queue: hqueue.Queue, proxies: Proxies
) -> None:
    hosts = host_of(cluster, queue)
    partition = 0
    settings = proxies.settings(request_timeout_ms=1_000, operation_timeout_ms=10_000)
    with hqueue.connect(settings) as client:
        near = client.queue(queue.name)
        with Writing(near, 3) as writing:
            writing.await_more()
            proxies.thrift1[hosts[partition]].fate = lambda _: Fate.HANG
            began = time.monotonic()
            for _ in range(3):
                assert len(list(near.scan(partition=partition))) > 0
            assert time.monotonic() - began < 20
        check(writing.acknowledged, seen_by(near.scan()))


def run_through(
    queue: hqueue.Queue, fault: Callable[[], None], writer: hqueue.Queue | None = None
) -> tuple[float, list[Seen]]:
    """Write and read all the time through a fault; returns the longest stall of a put. What is put
    one by one goes to `writer` if it is given: the same queue, by another client.
    """
    follower = queue.scan(follow=True)
    with ThreadPoolExecutor(2) as pool, contextlib.closing(follower):
        following = pool.submit(list, follower)
        with Writing(writer or queue, 4) as writing, queue.producer() as producer:
            writing.await_more(50)
            sent = []
            for n in range(400):
                sent.append((n, producer.send(Message("t", b"p:%d" % n), partition=n % PARTITIONS)))
                if n == 200:
                    fault()
            scanning = pool.submit(lambda: seen_by(queue.scan(bytes_max=5_000)))
            # Every writer goes through all the partitions.
            writing.await_more(50)
        scanned = scanning.result(120)
        acknowledged = writing.acknowledged
        acknowledged += [Seen(n % PARTITIONS, int(d.result(0)), f"p:{n}") for n, d in sent]
        offsets = {each.partition: each.end for each in queue.offsets()}
        wait_for(
            lambda: all(follower.positions()[p] >= each for p, each in offsets.items()),
            "the follower meets the ends",
            timeout_s=90,
        )
        follower.close()
        followed = seen_by(following.result(60))
    check(acknowledged, followed, seen_by(queue.scan()))
    whole = {(seen.partition, seen.id) for seen in followed}
    assert {(seen.partition, seen.id) for seen in scanned} <= whole
    return max(writing.stalls_s), followed


def test_regions_that_move_while_all_write_and_read_lose_nothing(
    either: hqueue.Client, cluster_server: local.LocalServer, either_queue: hqueue.Queue
) -> None:
    cluster, queue = either, either_queue
    before = host_of(cluster, queue)
    moved = before[0]

    def move() -> None:
        cluster_server.restart(f"regionserver-{moved + 1}", orderly_s=30)

    with whole_again(cluster_server):
        run_through(queue, move)
    wait_for(lambda: host_of(cluster, queue)[0] != moved, "the region has moved")


def test_a_region_server_killed_while_all_write_and_read_loses_nothing(
    either: hqueue.Client, cluster_server: local.LocalServer, either_queue: hqueue.Queue
) -> None:
    cluster, queue = either, either_queue
    host = host_of(cluster, queue)[1]
    with whole_again(cluster_server):
        stall_s, _ = run_through(queue, lambda: cluster_server.kill(f"regionserver-{host + 1}"))
        assert 0.5 < stall_s < 60, "a put waited for the region, and went on"
        raw = RawHBase(cluster_server.gateways[0])
        assert {int(r.host[-1]) - 1 for r in raw.regions(queue.name)} <= {0, 1, 2} - {host}


def test_a_region_server_that_stands_still_longer_than_requests_wait_loses_nothing(
    either: hqueue.Client, cluster_server: local.LocalServer, either_queue: hqueue.Queue
) -> None:
    name = f"regionserver-{host_of(either, either_queue)[0] + 1}"

    def stand_still() -> None:
        cluster_server.pause(name)
        time.sleep(7)
        cluster_server.resume(name)

    with whole_again(cluster_server):
        run_through(either_queue, stand_still)


def test_a_dead_master_stops_no_put_and_no_scan(
    either: hqueue.Client,
    cluster_server: local.LocalServer,
    either_queue: hqueue.Queue,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, queue = either, either_queue
    monkeypatch.setattr("hqueue.produce.header_reaper.EVERY_MS", 0)
    fresh = cluster.queue(queue.name)
    with whole_again(cluster_server):
        cluster_server.kill("master")
        began = time.monotonic()
        told = [
            Seen(p, int(fresh.put(Message("t", b"0:%d" % n), partition=p)), f"0:{n}")
            for n in range(60)
            for p in [n % PARTITIONS]
        ]
        check(told, seen_by(fresh.scan()))
        assert time.monotonic() - began < 50


def test_meta_that_moves_and_whose_server_is_killed_is_found_by_either_registry(
    cluster_server: local.LocalServer, connect_both: ConnectBoth, queue: hqueue.Queue
) -> None:
    one, other = connect_both(master_of(cluster_server))
    first = host_of_meta(cluster_server)

    def move_and_kill() -> None:
        cluster_server.restart(region_server_on(first), orderly_s=30)
        second = wait_for(lambda: host_of_meta(cluster_server, than=first), "it has moved")
        cluster_server.kill(region_server_on(second))

    with whole_again(cluster_server):
        run_through(one.queue(queue.name), move_and_kill, other.queue(queue.name))


def test_a_master_that_takes_over_is_found_by_either_registry_while_all_write_and_read(
    cluster_server: local.LocalServer, connect_both: ConnectBoth, queue: hqueue.Queue
) -> None:
    with whole_again(cluster_server), second_master(cluster_server):
        masters = [master_of(cluster_server, name) for name in ("master", SECOND_MASTER)]
        one, other = clients = connect_both(*masters)
        assert [each.describe_queue(queue.name).partitions for each in clients] == [PARTITIONS] * 2

        def kill() -> None:
            cluster_server.kill("master")
            for hours, client in enumerate(clients, 1):
                client.alter_queue(queue.name, ttl=f"{hours}h")
                assert client.describe_queue(queue.name).ttl_seconds == hours * 3_600

        run_through(one.queue(queue.name), kill, other.queue(queue.name))
