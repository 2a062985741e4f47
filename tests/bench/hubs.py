"""What is measured of hubs: hub, publishers and servers on one machine."""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import psutil

import hqueue
from hqueue import Message, Queue, ReceivedMessage, Subscription
from hqueue.settings.connection import NATIVE

from .cases import Bench
from .measure import Comparison, compare, interleave
from .publishers import PARTITION, TOPIC, VALUE
from .push import await_claims, await_condition, publish, running_worker

__all__ = ["HUB_CASES", "RunningHub", "running_hub"]


class RunningHub(NamedTuple):
    """A hub's process."""

    address: str
    process: psutil.Process


PUBLISHERS = 32
WRITE_S = 3.0


@contextlib.contextmanager
def running_hub(
    bench: Bench, queue: Queue, hbase: str = NATIVE, **given: object
) -> Iterator[RunningHub]:
    """A hub in a process of its own, by this way to HBase, with these settings; it is killed at
    the end.
    """
    own = {"hub_host": "127.0.0.1", "hub_port": 0, "hub_metrics_port": 0}
    environment = bench.environment(hbase, **own, **given)
    command = [sys.executable, "-m", "hqueue.cli", "hub", queue.name]
    process = subprocess.Popen(command, env=environment)
    try:
        with bench.client.topic_metadata(queue.name) as metadata:
            await_condition(metadata.hubs.list)
            (address,) = metadata.hubs.list()
        yield RunningHub(str(address), psutil.Process(process.pid))
    finally:
        process.kill()
        process.wait()


def latency(bench: Bench) -> Iterator[Comparison]:
    """One publisher: what a publish takes, against a put of its own."""
    queue = bench.queue("hub-latency")
    with (
        running_hub(bench, queue) as hub,
        hqueue.connect_hubs(hub.address, queue=queue.name) as hubs,
    ):
        figures = interleave(
            {
                "publish": lambda: hubs.topic(TOPIC).publish(VALUE),
                "put": lambda: queue.put(Message(TOPIC, VALUE), partition=PARTITION),
            },
            times=bench.many(300),
            rounds=bench.rounds,
            prepare=lambda: None,
            figure=lambda seconds: statistics.median(seconds) * 1e3,
        )
    yield Comparison(
        "one message, p50", "HubTopic.publish", "Queue.put", "ms",
        figures["publish"], figures["put"], 2.0, at_most=True,
    )  # fmt: skip


DELIVERED_PER_S = 200


def delivery(bench: Bench) -> Iterator[Comparison]:
    """From the call that writes a message to the listener: through a hub, against push. One is
    written after the other, so that each goes alone.
    """
    queue, beside = bench.queue("hub-delivery"), bench.queue("hub-delivery-push")
    took_ms: list[float] = []

    def listen(messages: Sequence[ReceivedMessage]) -> None:
        now_ns = time.perf_counter_ns()
        took_ms.extend((now_ns - int(message.value)) / 1e6 for message in messages)

    number = bench.many(5 * DELIVERED_PER_S)
    with (
        running_hub(bench, queue) as hub,
        hqueue.connect_hubs(hub.address, queue=queue.name) as hubs,
        hubs.topic(TOPIC).subscribe("bench", listen),
        running_worker(bench),
        beside.subscriber(Subscription("bench", start="latest"), listen),
    ):
        await_claims(bench.client, beside)

        def median(write: Callable[[bytes], object]) -> float:
            took_ms.clear()
            publish(write, number, DELIVERED_PER_S)
            await_condition(lambda: len(took_ms) >= number)
            return statistics.median(took_ms)

        figures = compare(
            {
                "hub": lambda: median(lambda value: hubs.topic(TOPIC).publish(value)),
                "push": lambda: median(
                    lambda value: beside.put(Message(TOPIC, value), partition=PARTITION)
                ),
            },
            bench.rounds,
        )
    yield Comparison(
        f"publish to subscriber at {DELIVERED_PER_S:,} msg/s, p50", "hub", "push", "ms",
        figures["hub"], figures["push"], 1.5, at_most=True,
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
        running_hub(bench, queue) as hub,
        Publishers("hub", hub.address, queue.name) as publishing,
        Publishers("put", bench.client.settings.zookeeper, beside.name) as putting,
    ):
        figures = compare({"publish": publishing.rate, "put": putting.rate}, bench.rounds)
    yield Comparison(
        f"{PUBLISHERS} processes that write small messages",
        "HubTopic.publish to one topic", "Queue.put to one partition", "msg/s",
        figures["publish"], figures["put"], 5.0,
    )  # fmt: skip


HUB_CASES: dict[str, Callable[[Bench], Iterator[Comparison]]] = {
    "hub-latency": latency,
    "hub-delivery": delivery,
    "hub-together": together,
}
