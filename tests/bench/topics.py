"""``python -m tests.bench.topics``: how the cost of hubs grows with the number of topics.

Three hubs own topics that have a subscriber each. What they take while nothing happens is
measured, and how long it takes until the topics of one that was killed are served by the others,
when they are called for.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer

import hqueue
from hqueue import Address, HubClientSettings, local
from hqueue.rpc.services import load
from hqueue.runtime.clock import SYSTEM_CLOCK
from hqueue.topics.calls import HubCalls
from tests.support.hub_subscribers import Subscriber

from .measure import await_calm
from .push import await_condition
from .server import fresh_server

__all__ = ["main"]

HUBS = 3
PARTITIONS = 6
THREADS = 32
IDLE_S = 30.0
TAKEN_MAX = 10_000
SESSION_MS = 10_000
TIMEOUT_MS = 300_000


class Hubs:
    """Hubs of a queue, in processes of their own; they are killed at the end."""

    def __init__(self, server: local.LocalServer, client: hqueue.Client, queue: str) -> None:
        self._client = client
        self._queue = queue
        environment = {
            **os.environ,
            "HQUEUE_ZOOKEEPER": server.settings().zookeeper,
            "HQUEUE_ZOOKEEPER_SESSION_TIMEOUT_MS": str(SESSION_MS),
            "HQUEUE_METADATA_STORE": client.settings.metadata_store,
            "HQUEUE_HUB_HOST": "127.0.0.1",
            "HQUEUE_HUB_PORT": "0",
            "HQUEUE_HUB_METRICS_PORT": "0",
            "HQUEUE_HUB_SESSION_MS": "3600000",
        }
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        for _ in range(HUBS):
            known = self.addresses()
            command = [sys.executable, "-m", "hqueue.cli", "hub", queue]
            process = subprocess.Popen(command, env=environment)
            try:
                await_condition(lambda known=known: self.addresses() - known)  # type: ignore[misc]
            except BaseException:
                process.kill()
                self.close()
                raise
            (address,) = self.addresses() - known
            self.processes[address] = process

    def addresses(self) -> set[str]:
        with self._client.topic_metadata(self._queue) as metadata:
            return {str(address) for address in metadata.hubs.list()}

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()


class Topics:
    """Topics by way of hubs, called by many threads."""

    def __init__(self, queue: str, hubs: Sequence[str], subscriber: Subscriber) -> None:
        settings = HubClientSettings(hubs=tuple(map(Address.parse, hubs)), queue=queue)
        self._calls = HubCalls(settings, SYSTEM_CLOCK)
        self._queue = queue
        self._subscriber = subscriber
        self._pool = ThreadPoolExecutor(THREADS)
        self.owners: dict[str, str] = {}

    def subscribe(self, topics: Sequence[str]) -> None:
        """Create topics, each with a subscription that is attached."""
        delivery = self._subscriber.delivery()

        def one(topic: str) -> None:
            _, owner = self._calls.call(
                self._queue,
                topic,
                lambda hub, to: hub.subscribe(self._queue, "s", topic, 2, delivery, None, to),
                timeout_ms=TIMEOUT_MS,
                repeatable=True,
            )
            self.owners[topic] = str(owner)

        for _ in self._pool.map(one, topics):
            pass

    def publish(self, topics: Sequence[str]) -> list[float]:
        """Publish a message to each; when each was there, in seconds from now on, in order."""
        began_s = time.monotonic()
        message = load("subscriber").TMessage(topic=b"", value=b"v")

        def one(topic: str) -> float:
            self._calls.call(
                self._queue,
                topic,
                lambda hub, to: hub.publish(self._queue, "bench", topic, message, to),
                timeout_ms=TIMEOUT_MS,
                repeatable=True,
            )
            return time.monotonic() - began_s

        return sorted(self._pool.map(one, topics))

    def close(self) -> None:
        self._pool.shutdown()
        self._calls.close()


def measure(server: local.LocalServer, store: str, count: int) -> dict[str, Any]:
    """The figures for so many topics."""
    name = f"bench-topics-{store}-{count}"
    with (
        hqueue.connect(server.settings(metadata_store=store)) as client,
        contextlib.ExitStack() as stack,
    ):
        client.create_queue(name, partitions=PARTITIONS)
        hubs = Hubs(server, client, name)
        stack.callback(hubs.close)
        addresses = sorted(hubs.addresses())
        subscriber = stack.enter_context(
            Subscriber(name, lambda: [*map(Address.parse, addresses)], "s")
        )
        topics = Topics(name, addresses, subscriber)
        stack.callback(topics.close)
        names = [f"t{number}" for number in range(count)]
        began_s = time.monotonic()
        topics.subscribe(names)
        created_s = time.monotonic() - began_s
        await_calm()
        idle = list(_idle(hubs))
        victim = max(addresses, key=lambda at: sum(at == each for each in topics.owners.values()))
        owned = [topic for topic, owner in topics.owners.items() if owner == victim][:TAKEN_MAX]
        hubs.processes[victim].kill()
        taken_s = topics.publish(owned)
        return {
            "store": store,
            "topics": count,
            "created_a_second": round(count / created_s),
            "idle_core_percent": round(max(each[0] for each in idle), 2),
            "rss_mb": round(max(each[1] for each in idle)),
            "most_topics_of_a_hub": max(
                sum(at == each for each in topics.owners.values()) for at in addresses
            ),
            "taken": len(owned),
            "first_taken_s": round(taken_s[0], 1),
            "all_taken_s": round(taken_s[-1], 1),
        }


def _idle(hubs: Hubs) -> Iterator[tuple[float, float]]:
    """What each hub takes while nothing happens: percent of a core, and MiB."""
    seen = [psutil.Process(process.pid) for process in hubs.processes.values()]
    before = [sum(each.cpu_times()[:2]) for each in seen]
    threading.Event().wait(IDLE_S)
    for process, used_s in zip(seen, before, strict=True):
        spent_s = sum(process.cpu_times()[:2]) - used_s
        yield 100 * spent_s / IDLE_S, process.memory_info().rss / 2**20


def main(
    topics: Annotated[list[int] | None, typer.Option(help="How many; once for each.")] = None,
    store: Annotated[str, typer.Option(help="Of metadata: zookeeper or hbase.")] = "zookeeper",
    figures: Annotated[Path | None, typer.Option(help="Where to write them, as JSON.")] = None,
) -> None:
    """Measure, on a server of its own."""
    rows = []
    with fresh_server() as server:
        for count in topics or (1_000, 10_000, 100_000):
            rows.append(measure(server, store, count))
            print(json.dumps(rows[-1]), flush=True)
    if figures is not None:
        figures.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    typer.run(main)
