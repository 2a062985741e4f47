"""Scanners and puts of the Thrift API while what stands below it dies and moves."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import hqueue
from hqueue import Message, local
from tests.support.apache_thrift import ApacheClient, apache_module
from tests.support.waiting import wait_for
from tests.support.writing import whole_again

from .pushing import SESSION_MS, WorkerProcess

API = apache_module()
PARTITIONS = 3
MESSAGES = 120
TIMEOUT_S = 200


def fill(queue: hqueue.Queue) -> dict[int, list[bytes]]:
    """Messages that take many requests to be read, by partition."""
    values: dict[int, list[bytes]] = {}
    for partition in range(queue.partitions):
        values[partition] = [b"%d:%d" % (partition, n) + bytes(500) for n in range(MESSAGES)]
        for at in range(0, MESSAGES, 4):
            batch = [Message("t", value) for value in values[partition][at : at + 4]]
            queue.put(batch, partition=partition)
    return values


def read_through(
    address: tuple[str, int], queue: hqueue.Queue, fault: Callable[[], object]
) -> None:
    """Scan each partition with a fault in the middle, and put beside it."""
    wanted = fill(queue)
    with ApacheClient(*address, timeout_s=TIMEOUT_S) as caller:
        scanners = {
            partition: caller.messageScannerOpen(queue.name, partition, API.TMessageScan())
            for partition in wanted
        }
        came = {
            partition: [caller.messageScannerGet(scanner).value for _ in range(10)]
            for partition, scanner in scanners.items()
        }
        failing = threading.Thread(target=fault)
        failing.start()
        rounds = 0
        while failing.is_alive() or rounds < 4:
            for partition, scanner in scanners.items():
                more = [Message("t", b"%d:more:%d" % (partition, rounds))]
                caller.putMessagesWithPid(queue.name, partition, [struct(each) for each in more])
                wanted[partition] += [each.value for each in more]
                came[partition] += [m.value for m in caller.messageScannerGetList(scanner, 8)]
            rounds += 1
        failing.join()
        for partition, scanner in scanners.items():
            while messages := caller.messageScannerGetList(scanner, 1_000):
                came[partition] += [message.value for message in messages]
    assert came == wanted


def struct(message: Message) -> Any:
    return API.TMessage(topic=message.topic.encode(), value=message.value)


@pytest.mark.parametrize("gateway", ["thrift1", "thrift2"])
def test_a_gateway_that_is_killed_only_takes_time(
    server: local.LocalServer,
    make: Callable[..., hqueue.Queue],
    start: Callable[..., WorkerProcess],
    gateway: str,
) -> None:
    queue = make(PARTITIONS)
    worker = start(push=False, api_port=0, scanner_bytes_max=2_048)

    def fault() -> None:
        server.kill(gateway)
        server.restart(gateway)

    with whole_again(server):
        read_through(worker.api_address(), queue, fault)


@pytest.mark.thorough("that scanners go on while regions move is shown by the library's, too")
def test_a_region_that_moves_only_takes_time(
    cluster_server: local.LocalServer, queue_name: str
) -> None:
    settings = cluster_server.settings(
        zookeeper_root=f"/{queue_name}", zookeeper_session_timeout_ms=SESSION_MS
    )
    environment = {
        "HQUEUE_GATEWAYS": ",".join(map(str, cluster_server.gateways)),
        "HQUEUE_ZOOKEEPER": cluster_server.zookeeper,
        "HQUEUE_ZOOKEEPER_ROOT": settings.zookeeper_root,
        "HQUEUE_REQUEST_TIMEOUT_MS": "5000",
    }
    served = {"push": False, "api_port": 0, "scanner_bytes_max": 2_048}
    with hqueue.connect(settings) as client, whole_again(cluster_server):
        queue = client.create_queue(queue_name, partitions=PARTITIONS)
        before = client.locations(queue.name)[0].host
        with WorkerProcess(environment, client, **served) as worker:
            read_through(
                worker.api_address(),
                queue,
                lambda: cluster_server.restart(
                    f"regionserver-{before.rpartition('.')[2]}", orderly_s=30
                ),
            )
        wait_for(lambda: client.locations(queue.name)[0].host != before, "the region has moved")
        client.disable_queue(queue.name)
        client.delete_queue(queue.name)
