"""A role that is attacked: ``python -m tests.strangers.served ROLE [FOLDER]``. With a folder of
certificates its ports speak TLS.

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
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hqueue
from hqueue import ReceivedMessage, Status, Subscription
from hqueue.net.security import security_of
from hqueue.push.listener import Listeners
from hqueue.push.service import Consumption
from hqueue.runtime.memory import bound_arenas
from hqueue.topics.endpoint import Endpoint
from tests.integration.pushing import WorkerThread
from tests.support.backends import MemoryBackend
from tests.support.hubs import HubThread

from .proof import HONEST, Proof, none, proven_by

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
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._put, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Put no more."""
        self._ended.set()
        self._thread.join()

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
        while not self._ended.wait(PUT_EVERY_S):
            self._queue.put(hqueue.Message("t", b"%f" % time.monotonic()), partition=0)


Ports = dict[str, int]
Taken = Callable[[], list[float]]


def _none() -> list[float]:
    return []


@contextlib.contextmanager
def hub(proof: Proof = none) -> Iterator[tuple[Ports, Taken]]:
    """A hub, which serves the Thrift API, too."""
    backend = MemoryBackend().apart(SESSION_MS)
    proven = proof("hub")
    allowed = {"creators": f"{HONEST}*", "authorizer": "acl"}
    if proven:
        allowed |= {"api_principals": f"{HONEST}*", "metrics_principals": f"{HONEST}*"}
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(backend.connect())
        client.create_queue("q", partitions=2)
        own = stack.enter_context(backend.connect(**proven))
        running = stack.enter_context(HubThread(own, "q", api_port=0, **allowed))
        api = running.hub.api
        assert api is not None
        ports = running.address.port, api.address.port, running.hub.health_port
        yield dict(zip(("hub", "api", "health"), ports, strict=True)), _none


@contextlib.contextmanager
def worker(proof: Proof = none) -> Iterator[tuple[Ports, Taken]]:
    """A worker, which delivers what it is notified of, and nothing else before a minute."""
    backend = MemoryBackend().apart(SESSION_MS)
    with contextlib.ExitStack() as stack:
        # Producers and subscribers see first whether anything listens there.
        looked_for = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        given = {
            "notify_workers": True,
            "zookeeper": f"127.0.0.1:{looked_for.getsockname()[1]}",
        }
        client = stack.enter_context(backend.connect(**given, **proof(f"{HONEST}-producer")))
        queue = client.create_queue("q", partitions=1)
        delivered = stack.enter_context(contextlib.closing(Delivered(queue)))
        proven = proof("worker")
        own = stack.enter_context(backend.connect(**given, **proven))
        allowed = {"notification_principals": f"{HONEST}*"} if proven else {}
        running = stack.enter_context(WorkerThread(own, poll_ms_max=60_000, **allowed))
        stack.enter_context(queue.subscriber(Subscription("s"), delivered, host="127.0.0.1"))
        ends_s = time.monotonic() + 60
        while not delivered.take():
            assert time.monotonic() < ends_s, "nothing is delivered"
            time.sleep(0.1)
        (record,) = client.coordination.workers.list().values()
        yield {"notified": record.address.port}, delivered.take
        running.terminate()


@contextlib.contextmanager
def subscriber(proof: Proof = none) -> Iterator[tuple[Ports, Taken]]:
    """A subscriber."""
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(MemoryBackend().connect(**proof("subscriber")))
        queue = client.create_queue("q", partitions=1)
        running = stack.enter_context(
            queue.subscriber(Subscription("s"), lambda messages: Status.DONE, host="127.0.0.1")
        )
        assert running.address is not None
        yield {"subscriber": running.address.port}, _none


@contextlib.contextmanager
def hub_client(proof: Proof = none) -> Iterator[tuple[Ports, Taken]]:
    """A hub's client that has subscribed."""
    security = security_of(hqueue.Settings(**proof("subscriber")))
    guard = None if security is None else security.delivery_guard()
    endpoint = Endpoint("127.0.0.1", 0, guard)
    consumption = Consumption(Listeners(lambda messages: Status.DONE, 5_000, "sub"), 4, 5_000)
    subscribed: Any = SimpleNamespace(
        topic="t", subscriber="s", consumption=consumption, ended=False
    )
    endpoint.add(subscribed)
    endpoint.start()
    yield {"hub's client": endpoint.address.port}, _none
    endpoint.close(0)


Role = Callable[[Proof], contextlib.AbstractContextManager[tuple[Ports, Taken]]]
ROLES: dict[str, Role] = {
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
    name, *folder = sys.argv[1:]
    with ROLES[name](proven_by(Path(folder[0])) if folder else none) as (ports, taken):
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
