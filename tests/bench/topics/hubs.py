"""Hubs in processes of their own, and what calls them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import psutil

import hqueue
from hqueue import Address, HubClientSettings, local
from hqueue.rpc.services import load
from hqueue.runtime.clock import SYSTEM_CLOCK
from hqueue.topics.calls import HubCalls
from hqueue.topics.exchanges import HubMethod
from tests.support.hub_subscribers import Subscriber

from ..push import await_condition

__all__ = ["SESSION_MS", "Hubs", "Topics"]

HUBS = 3
THREADS = 64
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
        self.processes: dict[str, psutil.Popen] = {}
        for _ in range(HUBS):
            known = self.addresses()
            command = [sys.executable, "-m", "hqueue.cli", "hub", queue]
            process = psutil.Popen(command, env=environment)
            try:
                await_condition(lambda known=known: self.addresses() - known)  # type: ignore[misc]
            except BaseException:
                process.kill()
                self.close()
                raise
            (address,) = self.addresses() - known
            self.processes[address] = process

    def addresses(self) -> set[str]:
        """Those that are available."""
        with self._client.topic_metadata(self._queue) as metadata:
            return {str(address) for address in metadata.hubs.list()}

    def used_s(self) -> dict[str, float]:
        """The processor time that each has taken."""
        return {
            address: sum(process.cpu_times()[:2])
            for address, process in self.processes.items()
            if process.poll() is None
        }

    def rss_bytes(self) -> list[int]:
        """The memory of each."""
        return [process.memory_info().rss for process in self.processes.values()]

    def kill(self, address: str) -> None:
        """Let one die."""
        self.processes[address].kill()
        self.processes[address].wait()

    def close(self) -> None:
        for process in self.processes.values():
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
            process.wait()


class Topics:
    """Topics by way of hubs, called by many threads."""

    def __init__(self, queue: str, hubs: Sequence[str], subscriber: Subscriber) -> None:
        settings = HubClientSettings(hubs=tuple(map(Address.parse, hubs)), queue=queue)
        self._calls = HubCalls(settings, SYSTEM_CLOCK)
        self.queue = queue
        self._delivery = subscriber.delivery()
        self._pool = ThreadPoolExecutor(THREADS)
        self.owners: dict[str, str] = {}

    def subscribe(self, topics: Sequence[str]) -> float:
        """Create topics, or find them, each with a subscription that is attached; in how many
        seconds.
        """
        began_s = time.monotonic()
        for _ in self._pool.map(self.subscribe_one, topics):
            pass
        return time.monotonic() - began_s

    def subscribe_one(self, topic: str) -> None:
        """The same for one, by the caller's thread."""
        arguments = self.queue, "s", topic, 2, self._delivery, None
        self.owners[topic] = self._call(topic, HubMethod("subscribe", arguments))

    def publish(self, topic: str) -> None:
        """Publish a message, by the caller's thread."""
        message = load("subscriber").TMessage(topic=b"", value=b"v")
        arguments = self.queue, "bench", topic, message
        self.owners[topic] = self._call(topic, HubMethod("publish", arguments, [message]))

    def close(self) -> None:
        self._pool.shutdown()
        self._calls.close()

    def _call(self, topic: str, method: HubMethod) -> str:
        _, owner = self._calls.call(
            self.queue, topic, method, timeout_ms=TIMEOUT_MS, repeatable=True
        )
        return str(owner)
