"""Tasks on the hosts of their regions: a real cluster, and Spark workers on the same hosts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

import hqueue
from hqueue import local
from tests.support.proxy import Proxies
from tests.support.waiting import wait_for
from tests.support.writing import whole_again

from .queries import put
from .standalone import SparkCluster

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.thorough("Spark on three hosts beside a cluster, fifteen processes, 70 s"),
]

PARTITIONS = 6
MESSAGES = 600
HOSTS = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
PROGRAM = Path(__file__).parent / "programs" / "locality.py"


class Reads:
    """The program beside this file, which reads the queue as often as it is asked."""

    def __init__(self, master: str, queue: str, gateways: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM), master, queue, gateways],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        )

    def __enter__(self) -> Reads:
        assert self._line() == "ready"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def read(self) -> list[dict[str, Any]]:
        """The tasks of one more read: where each ran, and how much of each partition it read."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        found: list[dict[str, Any]] = json.loads(self._line())
        return found

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@pytest.fixture
def spark_cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path, HOSTS) as started:
        yield started


def hosts_of(client: hqueue.Client, queue: hqueue.Queue) -> dict[int, str]:
    return {p.partition: p.host for p in client.locations(queue.name)}


def check_read(tasks: list[dict[str, Any]], hosts: dict[int, str]) -> None:
    """Everything was read once, by tasks on the hosts of what they read."""
    assert len(tasks) >= len(set(hosts.values()))
    read: Counter[int] = Counter()
    for task in tasks:
        assert task["locality"] == "NODE_LOCAL", task
        for partition, number in task["partitions"].items():
            assert hosts[int(partition)] == task["host"], task
            read[int(partition)] += number
    assert read == dict.fromkeys(range(PARTITIONS), MESSAGES)


def test_tasks_run_on_the_hosts_of_their_regions_and_follow_one_that_moves(
    cluster_server: local.LocalServer, spark_cluster: SparkCluster, queue_name: str
) -> None:
    with (
        hqueue.connect(cluster_server.settings()) as client,
        Proxies(cluster_server) as proxies,
    ):
        queue = client.create_queue(queue_name, partitions=PARTITIONS)
        for partition in range(PARTITIONS):
            put(queue, partition, 0, MESSAGES)
        before = hosts_of(client, queue)
        assert set(before.values()) == set(HOSTS)
        gateways = ",".join(map(str, proxies.settings().gateways))
        with Reads(spark_cluster.url, queue.name, gateways) as reads:
            tasks = reads.read()
            check_read(tasks, before)
            for host, proxy in zip(HOSTS, proxies.thrift1, strict=True):
                there = sum(len(task["partitions"]) for task in tasks if task["host"] == host)
                assert proxy.calls["scannerOpenWithScan"] == there, "through its own gateway"
            moved = before[0]
            with whole_again(cluster_server):
                name = f"regionserver-{HOSTS.index(moved) + 1}"
                cluster_server.restart(name, orderly_s=30)
                wait_for(lambda: hosts_of(client, queue)[0] != moved, "the region has moved")
                after = hosts_of(client, queue)
                check_read(reads.read(), after)
