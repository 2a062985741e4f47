"""A role that is attacked: ``python -m tests.strangers.served ROLE``.

It prints its ports as JSON, and then, for each line that it is given, what it has used so far.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import resource
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import hqueue
from hqueue import ReceivedMessage, Status, Subscription
from hqueue.push.listener import Listeners
from hqueue.push.service import Consumption
from hqueue.runtime.memory import bound_arenas
from hqueue.topics.endpoint import Endpoint
from tests.integration.pushing import WorkerThread
from tests.support.backends import MemoryBackend
from tests.support.hubs import HubThread

__all__ = ["ROLES"]

PUT_EVERY_S = 0.05
SESSION_MS = 10_000
"""As with ZooKeeper by default."""


class Lines(logging.Handler):
    """Counts what is logged, by its logger."""

    def __init__(self) -> None:
        super().__init__()
        self.counted: dict[str, int] = {}
        self.last = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.counted[record.name] = self.counted.get(record.name, 0) + 1
        self.last = record.getMessage()


class Delivered:
    """Puts a message now and then, and says how long after its put each was delivered."""

    def __init__(self, queue: hqueue.Queue) -> None:
        self._queue = queue
        self._lock = threading.Lock()
        self._took_ms: list[float] = []
        threading.Thread(target=self._put, daemon=True).start()

    def __call__(self, messages: Sequence[ReceivedMessage]) -> Status:
        now_s = time.monotonic()
        with self._lock:
            self._took_ms += [1e3 * (now_s - float(message.value)) for message in messages]
        return Status.DONE

    def take(self) -> list[float]:
        """What was measured since it was asked last."""
        with self._lock:
            took_ms, self._took_ms = self._took_ms, []
        return took_ms

    def _put(self) -> None:
        while True:
            self._queue.put(hqueue.Message("t", b"%f" % time.monotonic()), partition=0)
            time.sleep(PUT_EVERY_S)


Ports = dict[str, int]
Taken = Callable[[], list[float]]


def _none() -> list[float]:
    return []


@contextlib.contextmanager
def hub() -> Iterator[tuple[Ports, Taken]]:
    """A hub, which serves the Thrift API, too."""
    backend = MemoryBackend().apart(SESSION_MS)
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(backend.connect())
        client.create_queue("q", partitions=2)
        with socket.create_server(("127.0.0.1", 0)) as probe:
            health = probe.getsockname()[1]
        own = stack.enter_context(backend.connect())
        running = stack.enter_context(HubThread(own, "q", api_port=0, metrics_port=health))
        api = running.hub.api
        assert api is not None
        yield {"hub": running.address.port, "api": api.address.port, "health": health}, _none


@contextlib.contextmanager
def worker() -> Iterator[tuple[Ports, Taken]]:
    """A worker, which delivers what it is notified of, and nothing else before a minute."""
    backend = MemoryBackend().apart(SESSION_MS)
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(backend.connect(notify_workers=True))
        queue = client.create_queue("q", partitions=1)
        delivered = Delivered(queue)
        own = stack.enter_context(backend.connect(notify_workers=True))
        running = stack.enter_context(WorkerThread(own, poll_ms_max=60_000))
        stack.enter_context(queue.subscriber(Subscription("s"), delivered))
        ends_s = time.monotonic() + 60
        while not delivered.take():
            assert time.monotonic() < ends_s, "nothing is delivered"
            time.sleep(0.1)
        (record,) = client.coordination.workers.list().values()
        yield {"notified": record.address.port}, delivered.take
        running.terminate()


@contextlib.contextmanager
def subscriber() -> Iterator[tuple[Ports, Taken]]:
    """A subscriber."""
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(MemoryBackend().connect())
        queue = client.create_queue("q", partitions=1)
        running = stack.enter_context(
            queue.subscriber(Subscription("s"), lambda messages: Status.DONE)
        )
        assert running.address is not None
        yield {"subscriber": running.address.port}, _none


@contextlib.contextmanager
def hub_client() -> Iterator[tuple[Ports, Taken]]:
    """A hub's client that has subscribed."""
    endpoint = Endpoint("127.0.0.1", 0)
    consumption = Consumption(Listeners(lambda messages: Status.DONE, 5_000, "sub"), 4, 5_000)
    subscribed: Any = SimpleNamespace(
        topic="t", subscriber="s", consumption=consumption, ended=False
    )
    endpoint.add(subscribed)
    endpoint.start()
    yield {"hub's client": endpoint.address.port}, _none
    endpoint.close(0)


ROLES: dict[str, Callable[[], contextlib.AbstractContextManager[tuple[Ports, Taken]]]] = {
    "hub": hub,
    "worker": worker,
    "subscriber": subscriber,
    "hub_client": hub_client,
}


def _rss_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as pages:
        return int(pages.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    lines = Lines()
    logging.getLogger().addHandler(lines)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    bound_arenas()
    say = functools.partial(print, flush=True)
    most_bytes = 0

    def watch() -> None:
        nonlocal most_bytes
        while True:
            most_bytes = max(most_bytes, _rss_bytes())
            time.sleep(0.02)

    threading.Thread(target=watch, daemon=True).start()
    with ROLES[sys.argv[1]]() as (ports, taken):
        say(json.dumps(ports))
        for _ in sys.stdin:
            most, most_bytes = max(most_bytes, _rss_bytes()), 0
            used = {
                "processor_s": time.process_time(),
                "most_bytes": most,
                "lines": lines.counted,
                "last": lines.last,
                "took_ms": taken(),
            }
            say(json.dumps(used))


if __name__ == "__main__":
    main()
    os._exit(0)
