"""What is measured of hubs: hub, publishers and servers on one machine."""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator

import hqueue
from hqueue import Message, Queue

from .cases import Bench
from .measure import Comparison, compare, interleave
from .publishers import PARTITION, TOPIC, VALUE
from .push import await_condition

__all__ = ["HUB_CASES"]

PUBLISHERS = 32
WRITE_S = 3.0


@contextlib.contextmanager
def running_hub(bench: Bench, queue: Queue) -> Iterator[str]:
    """The address of a hub in a process of its own; it is killed at the end."""
    environment = {
        **os.environ,
        "HQUEUE_GATEWAYS": str(bench.gateway),
        "HQUEUE_ZOOKEEPER": bench.client.settings.zookeeper,
        "HQUEUE_HUB_HOST": "127.0.0.1",
        "HQUEUE_HUB_PORT": "0",
        "HQUEUE_HUB_METRICS_PORT": "0",
    }
    command = [sys.executable, "-m", "hqueue.cli", "hub", queue.name]
    process = subprocess.Popen(command, env=environment)
    try:
        with bench.client.topic_metadata(queue.name) as metadata:
            await_condition(metadata.hubs.list)
            (address,) = metadata.hubs.list()
        yield str(address)
    finally:
        process.kill()
        process.wait()


def latency(bench: Bench) -> Iterator[Comparison]:
    """One publisher: what a publish takes, against a put of its own."""
    queue = bench.queue("hub-latency")
    with (
        running_hub(bench, queue) as address,
        hqueue.connect(hubs=address, queue=queue.name) as hubs,
    ):
        figures = interleave(
            {
                "publish": lambda: hubs.publish(TOPIC, VALUE),
                "put": lambda: queue.put(Message(TOPIC, VALUE), partition=PARTITION),
            },
            times=bench.many(300),
            rounds=bench.rounds,
            prepare=lambda: None,
            figure=lambda seconds: statistics.median(seconds) * 1e3,
        )
    yield Comparison(
        "one message, p50", "HubClient.publish", "Queue.put", "ms",
        figures["publish"], figures["put"], 2.0, at_most=True,
    )  # fmt: skip


class Publishers:
    """Processes that write at the same time."""

    def __init__(self, way: str, address: str, queue: str) -> None:
        command = [sys.executable, "-m", "tests.bench.publishers", way, address, queue]
        self._processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(PUBLISHERS)
        ]

    def __enter__(self) -> Publishers:
        for process in self._processes:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise RuntimeError("a publisher did not start")
        return self

    def __exit__(self, *exc: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def rate(self) -> float:
        """How many messages a second they write together."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{WRITE_S}\n")
            process.stdin.flush()
        written = 0
        for process in self._processes:
            assert process.stdout is not None
            written += int(process.stdout.readline())
        return written / WRITE_S


def together(bench: Bench) -> Iterator[Comparison]:
    """Many publishers to one topic, against as many that put to one partition."""
    queue = bench.queue("hub-together", partitions=2)
    beside = bench.queue("hub-beside", partitions=1)
    with (
        running_hub(bench, queue) as address,
        Publishers("hub", address, queue.name) as publishing,
        Publishers("put", str(bench.gateway), beside.name) as putting,
    ):
        figures = compare({"publish": publishing.rate, "put": putting.rate}, bench.rounds)
    yield Comparison(
        f"{PUBLISHERS} processes that write small messages",
        "HubClient.publish to one topic", "Queue.put to one partition", "msg/s",
        figures["publish"], figures["put"], 5.0,
    )  # fmt: skip


HUB_CASES: dict[str, Callable[[Bench], Iterator[Comparison]]] = {
    "hub-latency": latency,
    "hub-together": together,
}
