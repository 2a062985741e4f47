"""Hubs in threads of the test's process."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

import hqueue
from hqueue import Address
from hqueue_workers.hub.hosted_queue import HostedQueue
from hqueue_workers.hub.hub import Hub
from hqueue_workers.hub.limits import HubLimits
from hqueue_workers.hub.settings import HubSettings

__all__ = ["HubThread"]

READY_S = 60.0

Result = TypeVar("Result")


class HubThread:
    """A hub in a thread, so that a test can reach its session and what it owns.

    Args:
        client: its client; not shared with anything else.
        queues: what it serves.
        limits: what no setting bounds.
        settings: the hub's settings by name.
    """

    def __init__(
        self,
        client: hqueue.Client,
        *queues: str,
        limits: HubLimits | None = None,
        **settings: object,
    ) -> None:
        given: dict[str, Any] = {
            "host": "127.0.0.1",
            "port": 0,
            "metrics_port": 0,
            "balance_ms": 200,
            **settings,
        }
        self._settings = HubSettings(**given)
        self._queues = queues
        self._limits = limits
        self.client = client
        self.hub: Hub
        self.address: Address
        self.failure: BaseException | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._main)

    def __enter__(self) -> HubThread:
        self._thread.start()
        assert self._ready.wait(READY_S)
        if self.failure is not None:
            raise self.failure
        return self

    def __exit__(self, *exc: object) -> None:
        self.terminate()

    def owns(self, queue: str) -> set[str]:
        """The topics of a queue that it owns."""
        return {owned.name for owned in self.hosted(queue).topics.owned()}

    def hosted(self, queue: str) -> HostedQueue:
        """A queue that it serves."""
        return self.hub.hosted[queue]

    def counted(self, name: str) -> float:
        """A metric without labels."""
        found = self.hub.metrics.registry.get_sample_value(name)
        assert found is not None, name
        return found

    def get(self, path: str) -> tuple[int, bytes]:
        """A page of its port for health and metrics: the status, and the page."""
        connection = http.client.HTTPConnection("127.0.0.1", self.hub.health_port, timeout=READY_S)
        with contextlib.closing(connection):
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Do something in its event loop, as the calls that it serves are done."""
        return self.submit(work).result(READY_S)

    def submit(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """As `run`; it is not waited for."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._thread.is_alive()

    def terminate(self) -> None:
        """Ask it to end, and wait for that."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join()

    def _main(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException as exc:  # The test must see it.
            self.failure = exc
        finally:
            self._ready.set()

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self.hub = Hub(self.client, self._queues, self._settings, limits=self._limits)

        def ready(address: Address) -> None:
            self.address = address
            self._ready.set()

        await self.hub.run(self._stopping, ready)
