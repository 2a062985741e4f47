"""HBase's own RPC against the gateways, in what stands on them: workers, Spark, hubs, topics'
metadata, and the local server.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import psutil

import hqueue
from hqueue import DeliveryOptions, Messages, Queue, ReceivedMessage, Subscription, local
from hqueue.metadata.managers import Rows
from hqueue.settings.connection import GATEWAYS, NATIVE
from pyspark_hqueue import DefaultSource

from .cases import Bench
from .hubs import RunningHub, running_hub
from .measure import WARM_ROUNDS, Comparison, compare, rate
from .metadata.cases import WAIT_S
from .metadata.population import Population, load_rows, subscription_of, updates
from .native import latency
from .publishers import TOPIC, VALUE
from .push import await_claims, await_condition, running_worker
from .spark import counted, fill, spark_session, spark_settings

__all__ = ["NATIVE_ROLE_CASES"]

WAYS = (NATIVE, GATEWAYS)
IDLE_S = 5.0
GROWN_S = 5.0
"""Until the pauses between polls have grown to their full length."""

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
UPDATES_A_SECOND = 20_000.0
STARTS_MAX = 3
REGIONS = 64
"""Of a worker's queue: a local server's heap is small, and there are two."""


class _Delivering:
    """A worker that has a queue of its own, below a root of its own, and a subscriber to it."""

    def __init__(self, bench: Bench, way: str, opened: contextlib.ExitStack) -> None:
        root = f"/hqueue-bench-{way}"
        self.client = opened.enter_context(hqueue.connect(bench.settings(way, zookeeper_root=root)))
        partitions = bench.many(1_000)
        made = bench.queue(
            f"native-worker-{way}",
            partitions,
            partitions_per_region=max(1, partitions // REGIONS),
        )
        self.queue: Queue = self.client.queue(made.name)
        self.process = opened.enter_context(
            running_worker(bench, self.client, hbase=way, zookeeper_root=root)
        )
        self._got = 0
        options = DeliveryOptions(batch_messages_max=5_000)
        subscription = Subscription("bench", start="latest", delivery=options)
        opened.enter_context(self.queue.subscriber(subscription, self._listen))
        await_claims(self.client, self.queue)

    def deliver(self, messages: Messages, batches: int) -> float:
        """Put so many batches, all to one partition, and await them at the subscriber; the
        worker's processor time for each message, in microseconds.
        """
        self._got = 0
        count = batches * len(messages)
        before_s = used_s(self.process)
        for _ in range(batches):
            self.queue.put(messages, partition=0)
        await_condition(lambda: self._got >= count)
        return spent_s(self.process, before_s) / count * 1e6

    def _listen(self, messages: Sequence[ReceivedMessage]) -> None:
        self._got += len(messages)


def used_s(process: psutil.Process) -> float:
    """The processor time that a process has had."""
    times = process.cpu_times()
    return float(times.user + times.system)


def spent_s(process: psutil.Process, before_s: float) -> float:
    """What it has had since then; at least what the system counts in."""
    return max(TICK_S, used_s(process) - before_s)


def worker(bench: Bench) -> Iterator[Comparison]:
    """A worker's processor time: while its subscriptions wait, and for what it delivers."""
    with contextlib.ExitStack() as opened:
        workers = {way: _Delivering(bench, way, opened) for way in WAYS}
        threading.Event().wait(GROWN_S)
        idle: dict[str, list[float]] = {way: [] for way in WAYS}
        for _ in range(bench.rounds):
            before_s = {way: used_s(each.process) for way, each in workers.items()}
            threading.Event().wait(IDLE_S)
            for way, each in workers.items():
                idle[way].append(spent_s(each.process, before_s[way]) / IDLE_S * 100)
        partitions = workers[NATIVE].queue.partitions
        messages, batches = Messages("topic", [bytes(100)] * 1_000), bench.many(50)
        costs = compare(
            {
                way: lambda each=each: each.deliver(messages, batches)  # type: ignore[misc]
                for way, each in workers.items()
            },
            bench.rounds,
        )
    yield _at_most(
        f"CPU time of a worker with {partitions:,} idle subscriptions", "% of a core",
        {way: tuple(figures) for way, figures in idle.items()}, 1.0,
    )  # fmt: skip
    yield _at_most("a worker's processor time for a message", "µs", costs, 1.0)


def spark(bench: Bench) -> Iterator[Comparison]:
    """Count and sum of lengths, of the same queue."""
    queue = fill(bench, "native-spark", bench.many(2_000_000))
    with spark_session() as session:
        session.dataSource.register(DefaultSource)

        def reading(way: str) -> Callable[[], float]:
            options = {"queue": queue.name, **spark_settings(bench, way)}
            return rate(lambda: counted(session.read.format("hqueue").options(**options).load()))

        figures = compare({way: reading(way) for way in WAYS}, bench.rounds)
    yield Comparison(
        "Spark, count and sum of lengths", NATIVE, GATEWAYS, "msg/s",
        figures[NATIVE], figures[GATEWAYS], 1.0,
    )  # fmt: skip


def hub(bench: Bench) -> Iterator[Comparison]:
    """One publisher: what a publish takes, and the hub's processor time for it."""
    times = 300
    with contextlib.ExitStack() as opened:
        hubs: dict[str, RunningHub] = {}
        publish: dict[str, Callable[[], object]] = {}
        for way in WAYS:
            queue = bench.queue(f"native-hub-{way}")
            hubs[way] = opened.enter_context(running_hub(bench, queue, way))
            publisher = opened.enter_context(
                hqueue.connect_hubs(hubs[way].address, queue=queue.name)
            )
            publish[way] = lambda publisher=publisher: publisher.topic(TOPIC).publish(VALUE)
        yield latency(bench, "a publish", publish, times, 0.8)

        def cost(way: str) -> float:
            before_s = used_s(hubs[way].process)
            for _ in range(bench.many(times)):
                publish[way]()
            return spent_s(hubs[way].process, before_s) / bench.many(times) * 1e3

        costs = compare({way: lambda way=way: cost(way) for way in WAYS}, bench.rounds)  # type: ignore[misc]
    yield _at_most("a hub's processor time for a publish", "ms", costs, 1.0)


def metadata(bench: Bench) -> Iterator[Comparison]:
    """Updates of subscriptions' states, of the same topics: one by one, and many under way."""
    topics, many = bench.many(2_000), bench.many(5_000)
    table = f"bench-metadata-{time.time_ns()}"
    with contextlib.ExitStack() as opened:
        populations = {}
        for way in WAYS:
            client = opened.enter_context(hqueue.connect(bench.settings(way, metadata_table=table)))
            managers = opened.enter_context(client.topic_metadata("bench", store="hbase"))
            populations[way] = Population(managers, topics)
        managers.persistence.read_topic_persistence_info("none").result(WAIT_S)  # Makes the table.
        layout = Rows(client.coordination.paths.root, "bench")
        load_rows(bench.happybase(), table, layout, topics)
        yield _one_by_one(bench, populations)
        chosen = min(many, populations[NATIVE].subscriptions)
        states = itertools.cycle(map(subscription_of, range(100)))
        known = populations[NATIVE].choose(chosen)

        def update(population: Population) -> int:
            futures = updates(population.metadata, known, next(states))
            written = [future.result(WAIT_S) for future in futures]
            known.update(dict(zip(known, written, strict=True)))
            return len(written)

        runs = {way: rate(lambda each=each: update(each)) for way, each in populations.items()}  # type: ignore[misc]
        figures = compare(runs, bench.rounds)
    title = "updates of state, many under way"
    for rival, against, goal in (
        (GATEWAYS, figures[GATEWAYS], 2.0),
        ("goal", (UPDATES_A_SECOND,) * bench.rounds, 1.0),
    ):
        yield Comparison(title, NATIVE, rival, "updates/s", figures[NATIVE], against, goal)


def _one_by_one(bench: Bench, populations: Mapping[str, Population]) -> Comparison:
    times = bench.many(500) * (bench.rounds + WARM_ROUNDS)
    known = populations[NATIVE].choose(min(2 * times, populations[NATIVE].subscriptions))
    turns = itertools.cycle(known)
    states = itertools.cycle(map(subscription_of, range(100)))

    def update(population: Population) -> None:
        one = next(turns)
        [future] = updates(population.metadata, {one: known[one]}, next(states))
        known[one] = future.result(WAIT_S)

    steps = {way: lambda each=each: update(each) for way, each in populations.items()}  # type: ignore[misc]
    return latency(bench, "an update of a state", steps, 500, 0.67)


def server(bench: Bench) -> Iterator[Comparison]:
    """The local server, started without gateways and with them: until it is ready, and memory."""
    took: dict[str, list[float]] = {way: [] for way in WAYS}
    memory: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(min(bench.rounds, STARTS_MAX)):
        for way in WAYS:
            with tempfile.TemporaryDirectory(prefix="hqueue-bench-start-") as home:
                began_s = time.perf_counter()
                with local.start(gateways=way == GATEWAYS, home=home) as started:
                    took[way].append(time.perf_counter() - began_s)
                    processes = [psutil.Process(each.pid) for each in started.processes]
                    held = sum(each.memory_info().rss for each in processes)
                    memory[way].append(held / 2**20)
    for title, unit, figures in (
        ("start of the local server", "s", took),
        ("memory of the local server after its start", "MiB", memory),
    ):
        yield Comparison(
            title, "without gateways", "with gateways", unit,
            tuple(figures[NATIVE]), tuple(figures[GATEWAYS]), 0.8, at_most=True,
        )  # fmt: skip


def _at_most(
    title: str, unit: str, figures: Mapping[str, tuple[float, ...]], goal: float
) -> Comparison:
    return Comparison(
        title, NATIVE, GATEWAYS, unit, figures[NATIVE], figures[GATEWAYS], goal, at_most=True
    )


NATIVE_ROLE_CASES: dict[str, Callable[[Bench], Iterator[Comparison]]] = {
    "native-worker": worker,
    "native-spark": spark,
    "native-hub": hub,
    "native-metadata": metadata,
    "native-server": server,
}
