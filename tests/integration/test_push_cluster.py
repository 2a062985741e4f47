"""Push delivery on a real cluster: while ZooKeeper restarts, regions move, region servers die."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import hqueue
from hqueue import Subscription, local
from tests.support.waiting import wait_for
from tests.support.writing import whole_again

from .pushing import SESSION_MS, Received, WorkerProcess, put_numbers

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.thorough("on a cluster, whose start alone takes a minute; see `make test-faults`"),
]

PARTITIONS = 6
RECOVERY_S = 120

Start = Callable[..., WorkerProcess]


@pytest.fixture
def pushing(cluster_server: local.LocalServer, queue_name: str) -> Iterator[hqueue.Client]:
    """A client with a root of its own in ZooKeeper."""
    settings = cluster_server.settings(
        zookeeper_root=f"/{queue_name}",
        zookeeper_session_timeout_ms=SESSION_MS,
        request_timeout_ms=5_000,
    )
    with hqueue.connect(settings) as client:
        yield client


@pytest.fixture
def queue(pushing: hqueue.Client, queue_name: str) -> hqueue.Queue:
    return pushing.create_queue(queue_name, partitions=PARTITIONS)


@pytest.fixture
def start(cluster_server: local.LocalServer, pushing: hqueue.Client) -> Iterator[Start]:
    """Starts workers, each beside a region server; they are killed after the test."""
    started: list[WorkerProcess] = []

    def start_worker(host: int) -> WorkerProcess:
        environment = {
            "HQUEUE_GATEWAYS": ",".join(map(str, cluster_server.gateways)),
            "HQUEUE_ZOOKEEPER": cluster_server.zookeeper,
            "HQUEUE_ZOOKEEPER_ROOT": pushing.settings.zookeeper_root,
            "HQUEUE_ZOOKEEPER_SESSION_TIMEOUT_MS": str(SESSION_MS),
            "HQUEUE_REQUEST_TIMEOUT_MS": "5000",
        }
        worker = WorkerProcess(environment, pushing, region_host=f"127.0.0.{host}")
        started.append(worker)
        return worker.__enter__()

    yield start_worker
    for worker in started:
        worker.__exit__()


def region_hosts(client: hqueue.Client, queue: hqueue.Queue) -> dict[int, str]:
    return {location.partition: location.host for location in client.locations(queue.name)}


def test_each_partition_is_served_by_the_worker_beside_its_region(
    pushing: hqueue.Client, queue: hqueue.Queue, start: Start
) -> None:
    workers = {f"127.0.0.{host}": start(host) for host in (1, 2, 3)}
    got = Received()
    with queue.subscriber(Subscription("s"), got):

        def near() -> bool:
            return all(
                partition in workers[host].owns(queue)
                for partition, host in region_hosts(pushing, queue).items()
            )

        wait_for(near, "each is served beside its region")
        values = put_numbers(queue, range(60))
        got.await_values(values)
    assert got.check_order() == 0


def test_while_zookeeper_restarts_nothing_is_lost_and_no_claim_changes_hands(
    cluster_server: local.LocalServer, pushing: hqueue.Client, queue: hqueue.Queue, start: Start
) -> None:
    start(1)
    start(2)
    got = Received()
    with queue.subscriber(Subscription("s"), got):
        values = put_numbers(queue, range(60))
        got.await_values(values)
        with whole_again(cluster_server):
            cluster_server.kill("zookeeper")
            values += put_numbers(queue, range(60, 90))
            cluster_server.restart("zookeeper")
            values += put_numbers(queue, range(90, 120))
            got.await_values(values, timeout_s=RECOVERY_S)
    assert sorted(set(got.values)) == sorted(values)
    got.check_order()


def test_while_regions_move_or_their_server_dies_delivery_goes_on_in_order(
    cluster_server: local.LocalServer, pushing: hqueue.Client, queue: hqueue.Queue, start: Start
) -> None:
    start(1)
    start(2)
    got = Received()
    with queue.subscriber(Subscription("s"), got), whole_again(cluster_server):
        values = put_numbers(queue, range(60))
        got.await_values(values)
        moved = region_hosts(pushing, queue)[0]
        cluster_server.restart(f"regionserver-{moved.rpartition('.')[2]}", orderly_s=30)
        values += put_numbers(queue, range(60, 120))
        got.await_values(values, timeout_s=RECOVERY_S)
        host = region_hosts(pushing, queue)[0]
        cluster_server.kill(f"regionserver-{host.rpartition('.')[2]}")
        values += put_numbers(queue, range(120, 180))
        got.await_values(values, timeout_s=RECOVERY_S)
    assert sorted(got.values) == sorted(values), "nobody died who had to do again what was done"
    assert got.check_order() == 0
