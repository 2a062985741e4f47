"""The nemesis: a seeded schedule of faults, and what each does to the cluster.

The schedule is drawn from the seed alone, so the same seed gives the same one. Faults come one
after the other, each with a time for which it lasts and a calm after it; a server that was killed
is started again when its fault ends.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from hqueue import Client, HQueueError
from hqueue.hbase import Gateways, region_locations
from hqueue.local import LocalServer

from ..integration.proxy import Fate, Proxies
from .clock import set_clock
from .history import now_s

__all__ = ["FAULTS", "Event", "Nemesis", "schedule"]

_T = TypeVar("_T")

HOSTS = (1, 2, 3)
CALM_S = (3.0, 7.0)


@dataclasses.dataclass(frozen=True)
class Fault:
    """A kind of fault.

    Args:
        name: its name.
        doc: what it does.
        lasts_s: for how long, from and to.
    """

    name: str
    doc: str
    lasts_s: tuple[float, float]


FAULTS: dict[str, Fault] = {
    fault.name: fault
    for fault in (
        Fault("kill-regionserver", "kill -9 a region server", (5, 10)),
        Fault("kill-meta", "kill -9 the region server that holds hbase:meta", (5, 10)),
        Fault("kill-gateway", "kill -9 a gateway pair", (3, 8)),
        Fault("kill-datanode", "kill -9 a DataNode", (4, 8)),
        Fault("kill-producer", "kill -9 a producer in mid-append, and start another", (0, 0.5)),
        Fault("pause-regionserver", "stop a region server past its session, and continue", (8, 12)),
        Fault("pause-gateway", "stop a gateway past the request time-out, and continue", (6, 10)),
        Fault("pause-producer", "stop a producer past every time-out, and continue", (25, 35)),
        Fault("restart-master", "kill -9 the master, and start it", (1, 3)),
        Fault("move-regions", "unload a region server's regions to the others", (0, 1)),
        Fault("cut-connections", "break connections, before requests and before answers", (4, 8)),
        Fault("delay-connections", "delay every request by up to 300 ms", (5, 8)),
        Fault("set-clock", "put a producer's clock minutes ahead or back", (4, 8)),
        Fault("disable-queue", "disable the queue, and enable it", (2, 4)),
    )
}


@dataclasses.dataclass(frozen=True)
class Planned:
    """One fault of a schedule."""

    fault: str
    after_s: float
    lasts_s: float
    target: int
    sign: int


@dataclasses.dataclass
class Event:
    """A fault that took place. Times as in histories."""

    fault: str
    target: str
    began_s: float
    ended_s: float = 0.0


def schedule(seed: int, duration_s: float, faults: Sequence[str]) -> list[Planned]:
    """Faults for so long, each kind about as often as the others.

    All kinds come once, in a random order, before any comes twice.
    """
    rng = random.Random(seed)
    planned: list[Planned] = []
    total_s = 0.0
    while True:
        turn = list(faults)
        rng.shuffle(turn)
        for name in turn:
            item = Planned(
                name,
                rng.uniform(*CALM_S),
                rng.uniform(*FAULTS[name].lasts_s),
                rng.randrange(3),
                rng.choice((-1, 1)),
            )
            total_s += item.after_s + item.lasts_s
            if total_s > duration_s and planned:
                return planned
            planned.append(item)


class Nemesis:
    """Carries a schedule out.

    Args:
        server: the cluster.
        client: a client that does not go through the proxies.
        queue: the queue.
        proxies: what producers and readers connect to.
        producers: the process IDs of the producers, by name.
        replace: starts a producer in place of a killed one.
        folder: the folder of the history.
        say: told what happens.
    """

    def __init__(
        self,
        *,
        server: LocalServer,
        client: Client,
        queue: str,
        proxies: Proxies,
        producers: Callable[[], dict[str, int]],
        replace: Callable[[str], None],
        folder: Path,
        say: Callable[[str], None],
    ) -> None:
        self._server = server
        self._client = client
        self._queue = queue
        self._proxies = proxies
        self._producers = producers
        self._replace = replace
        self._folder = folder
        self._say = say
        self._ended = threading.Event()
        self.events: list[Event] = []

    def run(self, planned: Sequence[Planned]) -> None:
        """All faults of a schedule; every one is mended when this returns."""
        for item in planned:
            self._ended.wait(item.after_s)
            begin: Callable[[Planned], tuple[str, Callable[[], None]]] = getattr(
                self, "_" + item.fault.replace("-", "_")
            )
            event = Event(item.fault, "", now_s())
            self.events.append(event)
            event.target, mend = begin(item)
            self._say(f"{item.fault} {event.target} for {item.lasts_s:.1f} s")
            try:
                self._ended.wait(item.lasts_s)
            finally:
                mend()
                event.ended_s = now_s()

    def _killed(self, *names: str) -> tuple[str, Callable[[], None]]:
        for name in names:
            self._server.kill(name)

        def mend() -> None:
            for name in names:
                self._server.restart(name)

        return " ".join(names), mend

    def _paused(self, *names: str) -> tuple[str, Callable[[], None]]:
        for name in names:
            self._server.pause(name)

        def mend() -> None:
            for name in names:
                self._server.resume(name)

        return " ".join(names), mend

    def _kill_regionserver(self, item: Planned) -> tuple[str, Callable[[], None]]:
        return self._killed(f"regionserver-{HOSTS[item.target]}")

    def _kill_meta(self, _: Planned) -> tuple[str, Callable[[], None]]:
        with contextlib.closing(Gateways(self._client.settings)) as gateways:
            host = self._insist(lambda: region_locations(gateways, "hbase:meta"))[0].host
        return self._killed(f"regionserver-{host.rpartition('.')[2]}")

    def _kill_gateway(self, item: Planned) -> tuple[str, Callable[[], None]]:
        number = HOSTS[item.target]
        return self._killed(f"thrift1-{number}", f"thrift2-{number}")

    def _kill_datanode(self, item: Planned) -> tuple[str, Callable[[], None]]:
        return self._killed(f"datanode-{HOSTS[item.target]}")

    def _restart_master(self, _: Planned) -> tuple[str, Callable[[], None]]:
        return self._killed("master")

    def _pause_regionserver(self, item: Planned) -> tuple[str, Callable[[], None]]:
        name = f"regionserver-{HOSTS[item.target]}"
        target, resume = self._paused(name)

        def mend() -> None:
            # The master took its regions away: it finds out that it was declared dead, and ends.
            resume()
            deadline = time.monotonic() + 60
            while self._alive(name) and time.monotonic() < deadline:
                self._ended.wait(0.5)
            self._server.restart(name)

        return target, mend

    def _pause_gateway(self, item: Planned) -> tuple[str, Callable[[], None]]:
        number = HOSTS[item.target]
        return self._paused(f"thrift1-{number}", f"thrift2-{number}")

    def _alive(self, name: str) -> bool:
        return any(p.name == name and p.alive for p in self._server.processes)

    def _a_producer(self, item: Planned) -> tuple[str, int]:
        producers = sorted(self._producers().items())
        return producers[item.target % len(producers)]

    def _kill_producer(self, item: Planned) -> tuple[str, Callable[[], None]]:
        name, pid = self._a_producer(item)
        os.kill(pid, signal.SIGKILL)
        return name, lambda: self._replace(name)

    def _pause_producer(self, item: Planned) -> tuple[str, Callable[[], None]]:
        name, pid = self._a_producer(item)
        os.kill(pid, signal.SIGSTOP)
        return name, lambda: os.kill(pid, signal.SIGCONT)

    def _set_clock(self, item: Planned) -> tuple[str, Callable[[], None]]:
        name, _ = self._a_producer(item)
        path = self._folder / f"{name}.clock"
        set_clock(path, item.sign * 180_000)
        return f"{name} {'ahead' if item.sign > 0 else 'back'}", lambda: set_clock(path, 0)

    def _disable_queue(self, _: Planned) -> tuple[str, Callable[[], None]]:
        self._insist(lambda: self._client.disable_queue(self._queue))
        return self._queue, lambda: self._insist(lambda: self._client.enable_queue(self._queue))

    def _cut_connections(self, item: Planned) -> tuple[str, Callable[[], None]]:
        rng = random.Random(item.target)

        def fate(_: str) -> Fate:
            choice = rng.random()
            if choice < 0.1:
                return Fate.LOSE_REQUEST
            return Fate.LOSE_ANSWER if choice < 0.2 else Fate.PASS

        return self._through_proxies(fate)

    def _delay_connections(self, item: Planned) -> tuple[str, Callable[[], None]]:
        rng = random.Random(item.target)

        def fate(_: str) -> Fate:
            time.sleep(rng.random() * 0.3)
            return Fate.PASS

        return self._through_proxies(fate)

    def _through_proxies(self, fate: Callable[[str], Fate]) -> tuple[str, Callable[[], None]]:
        self._proxies.set_fate(fate)
        return "all gateways", lambda: self._proxies.set_fate(lambda _: Fate.PASS)

    def _move_regions(self, item: Planned) -> tuple[str, Callable[[], None]]:
        name = f"regionserver-{HOSTS[item.target]}"
        process = next(p for p in self._server.processes if p.name == name)
        address = f"{process.host}:{process.ports[name]}"
        mover = "org.apache.hadoop.hbase.util.RegionMover"
        said = self._server.run_tool(
            mover, "-r", address, "-o", "unload", "-n", "-m", "4", timeout_s=120
        )
        if said.returncode != 0:
            self._say(f"not all regions were moved: {said.stderr[-500:]}")
        return address, lambda: None

    def _insist(self, change: Callable[[], _T]) -> _T:
        """Do it in spite of the faults before it, which the cluster may not be over yet."""
        deadline = time.monotonic() + 120
        while True:
            try:
                return change()
            except HQueueError as exc:
                if time.monotonic() > deadline:
                    raise
                self._say(f"again: {exc}")
                self._ended.wait(0.5)
