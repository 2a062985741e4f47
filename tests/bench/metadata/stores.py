"""Topics on HBase, and ever more of them on ZooKeeper."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import happybase

import hqueue
from hqueue.metadata.blobs import encode_blob
from hqueue.metadata.managers import Rows, SubscriptionData, Tree
from hqueue.metadata.managers.encoding import encode_subscription
from hqueue.metadata.ports import Version
from tests.support.zookeeper_server import ZooKeeperServer

from ..measure import Comparison
from .bare import BarePuts, BareSets
from .cases import Latency, Send, Work, latencies, update_rates
from .population import RECORDS_A_TOPIC, Population, Subscription, load_nodes, load_rows

__all__ = ["Point", "growth_on_zookeeper", "hbase_population", "hbase_updates"]

QUEUE = "bench"
WAIT_S = 120.0

SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000)
HEAP_MB = 6_144
SHRINKING = ("-XX:MinHeapFreeRatio=5", "-XX:MaxHeapFreeRatio=20")
"""What Java has of the machine's memory says what it needs then."""
START_S = 300.0
START_S_MAX = 30.0
"""One that takes longer to start is no ZooKeeper to wait for: there the growth ends."""


class Point(NamedTuple):
    """What was measured on ZooKeeper, at one size."""

    records: int
    load_s: float
    """How long it took to write those that are more than at the size before, past the managers."""
    memory_bytes: int
    start_s: float
    """How long it takes to start with them."""
    latencies: Mapping[str, Sequence[Latency]]
    """By operation, of each round."""


def hbase_population(
    client: hqueue.Client, connection: happybase.Connection, topics: int
) -> Population:
    """So many topics, in the client's table."""
    metadata = client.topic_metadata(QUEUE, store="hbase")
    metadata.persistence.read_topic_persistence_info("none").result(WAIT_S)  # Creates the table.
    layout = Rows(client.coordination.paths.root, QUEUE)
    load_rows(connection, client.settings.metadata_table, layout, topics)
    return Population(metadata, topics)


def hbase_updates(amount: Work, client: hqueue.Client, population: Population) -> Comparison:
    """Updates of state on HBase."""
    layout = Rows(client.coordination.paths.root, QUEUE)

    def bare(known: Mapping[Subscription, Version]) -> Send:
        rows = [layout.subscription(*each).encode() for each in known]
        puts = BarePuts(client.settings, rows)
        return lambda data: puts.send(encode_subscription(SubscriptionData(None, data.state)))

    return update_rates(amount, population, "HBase", "bare conditional puts", bare)


def growth_on_zookeeper(amount: Work) -> Iterator[Point | Comparison]:
    """Ever more topics on a ZooKeeper of their own, until it is not reasonable any more; and
    updates of state at the first size.
    """
    with ZooKeeperServer(heap_mb=HEAP_MB, options=SHRINKING, start_s=START_S) as server:
        settings = hqueue.Settings(zookeeper=server.zookeeper)
        there = 0
        for records in map(amount.many, SIZES):
            topics = max(1, records // RECORDS_A_TOPIC)
            with hqueue.connect(settings) as client:
                layout = Tree(client.coordination.paths.root, QUEUE)
                began_s = time.perf_counter()
                load_nodes(server.zookeeper, layout, range(there, topics))
                load_s = time.perf_counter() - began_s
                population = Population(client.topic_metadata(QUEUE, store="zookeeper"), topics)
                if not there:
                    yield _zookeeper_updates(amount, server.zookeeper, layout, population)
                found = latencies({"zookeeper": population}, amount)
            there = topics
            memory_bytes = server.memory_bytes()
            server.kill()
            began_s = time.perf_counter()
            server.start()
            start_s = time.perf_counter() - began_s
            yield Point(
                topics * RECORDS_A_TOPIC,
                load_s,
                memory_bytes,
                start_s,
                {operation: each["zookeeper"] for operation, each in found.items()},
            )
            if start_s > START_S_MAX:
                return


def _zookeeper_updates(
    amount: Work, zookeeper: str, layout: Tree, population: Population
) -> Comparison:

    with contextlib.ExitStack() as opened:

        def bare(known: Mapping[Subscription, Version]) -> Send:
            nodes = {layout.subscription(*each): version for each, version in known.items()}
            sets = BareSets(zookeeper, nodes)
            opened.callback(sets.close)
            return lambda data: sets.send(encode_blob(encode_subscription(data)))

        return update_rates(amount, population, "ZooKeeper", "bare conditional sets", bare)
