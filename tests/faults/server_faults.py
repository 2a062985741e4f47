"""What the nemesis does to servers."""

from __future__ import annotations

import contextlib
import functools
import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from hqueue import Client, HQueueError
from hqueue.errors import LocalServerError
from hqueue.local import LocalServer

from .history import now_s
from .nemesis import Harm, NotDoneError, insist
from .regions import Regions
from .schedule import Planned

__all__ = ["ServerFaults", "start_apart"]

_T = TypeVar("_T")

HOSTS = 3
MOVER = "org.apache.hadoop.hbase.util.RegionMover"
MOVES_MAX = 3
SAID_MAX = 2_000
BOUND_S = 90.0
ENDS_WITHIN_S = 20.0
ASK_EVERY_S = 10.0
START_APART_S = (0.0, 1.0)
NOTICED_WITHIN_S = 6.0
"""A region server whose session is over learns that with its next report, or from ZooKeeper."""
LOG_LINES = 5_000
UNRECOVERABLE = "Block length mismatch"
"""A data node that logs this can't recover a block that it was receiving, until it is restarted."""


class ServerFaults:
    """Faults of region servers, gateways, data nodes, the master, ZooKeeper and the table.

    A server that is down because of a fault is brought up again when it ends. One that won't come
    up is tried again before the next fault: the rest of the cluster goes on, as it must.

    Args:
        server: the cluster.
        client: a client that does not go through the proxies.
        queue: the queue.
        fill: writes megabytes into a partition, within a time.
        say: called with what happens.
    """

    def __init__(
        self,
        server: LocalServer,
        client: Client,
        queue: str,
        *,
        fill: Callable[[int, float], None],
        say: Callable[[str], None],
    ) -> None:
        self._server = server
        self._client = client
        self._queue = queue
        self._regions = Regions(server.settings(gateways=()))
        self._fill = fill
        self._say = say
        self._region_servers = {
            process.host: process.name
            for process in server.processes
            if process.name.startswith("regionserver")
        }
        self.zookeepers = [
            process.name for process in server.processes if process.name.startswith("zookeeper")
        ]
        """The names of ZooKeeper's servers."""
        self._datanodes = [
            process.name for process in server.processes if process.name.startswith("datanode")
        ]
        self._picked: set[str] = set()
        self._located: Sequence[str] | None = None
        self._whole_s = now_s()
        self.deposed: list[tuple[float, float]] = []
        """When a region server may have answered that had lost its regions and not noticed."""
        self.kinds: dict[str, Callable[[Planned], Harm]] = {
            name: self.healed(begin)
            for name, begin in (
                ("kill-regionserver", lambda item: self.killed(self.holder(item))),
                ("kill-meta", lambda item: self.killed(self._holder_of_meta(item))),
                ("kill-gateway", lambda item: self.killed(*_gateways(item))),
                ("kill-datanode", lambda item: self.killed(self.datanode(item))),
                ("pause-regionserver", self._pause_region_server),
                ("pause-gateway", lambda item: self._paused(*_gateways(item))),
                ("restart-master", lambda _: self.killed("master")),
                ("restart-zookeeper", lambda _: self.killed(*self.zookeepers)),
                ("kill-namenode", lambda _: self.killed("namenode")),
                ("kill-all", self._kill_all),
                ("move-regions", self._move_regions),
                ("disable-queue", self._disable_queue),
                ("compact", self._compact),
            )
        }

    def heal(self) -> None:
        """Bring up whatever is not: left by a fault, or ended by itself. Not while several faults
        are under way.
        """
        if self._located is not None:
            return
        self._picked.clear()
        for process in self._server.processes:
            if process.paused:
                self._server.resume(process.name)
            if not process.alive:
                self._say(f"{process.name} had ended; starting it")
                if process.name.startswith("regionserver"):  # The machine was slow, perhaps.
                    self.deposed.append((self._whole_s, now_s()))
                self.restart(process.name)
        for name in {
            line.process
            for line in self._server.last_log_lines(LOG_LINES, "datanode-*")
            if UNRECOVERABLE in line.text
        }:  # As docs/repairing.md says; its new log does not say it any more.
            self._say(f"{name} can't recover a block; restarting it")
            self._server.kill(name)
            self.restart(name)
        self._whole_s = now_s()

    def whole(self, work: Callable[[], _T]) -> _T:
        """Do something when everything is up; what ended by itself is brought up before it."""
        self.heal()
        return work()

    def _insist(self, change: Callable[[], _T]) -> _T:
        """Do something while this fault has no server down. Before each attempt, what ended by
        itself is brought up: the cluster may not be over the fault before, and the master, when it
        ends, does not start itself.
        """
        return insist(lambda: self.whole(change), self._say)

    def healed(self, begin: Callable[[Planned], Harm]) -> Callable[[Planned], Harm]:
        """A fault that begins when everything is up."""

        def healed(item: Planned) -> Harm:
            self.heal()
            return begin(item)

        return healed

    @contextlib.contextmanager
    def several(self) -> Iterator[None]:
        """Several faults are under way, each of other servers: nothing is brought up for the next
        one. What they choose from is what was there before the first.
        """
        self._located = self._holders()
        try:
            yield
        finally:
            self._located = None

    def pick(self, names: Sequence[str], item: Planned) -> str:
        """One of these servers, other than those that faults under way harm.

        Raises:
            NotDoneError: faults harm all of them already.
        """
        left = [name for name in names if name not in self._picked]
        if not left:
            raise NotDoneError(f"all are harmed already: {', '.join(names)}")
        chosen = left[item.target % len(left)]
        self._picked.add(chosen)
        return chosen

    def datanode(self, item: Planned) -> str:
        """A data node."""
        return self.pick(self._datanodes, item)

    def restart(self, name: str) -> None:
        """Bring up a process that is down; one that won't come up is tried again later."""
        try:
            self._server.restart(name, timeout_s=BOUND_S)
        except LocalServerError as exc:
            self._say(f"{name} did not come up, and is tried again later: {exc.text}")

    def flush(self) -> None:
        """Ask for a flush of each region of the queue; a region server that can't may end."""
        for region in insist(lambda: self._regions.all(self._queue), self._say):
            with contextlib.suppress(HQueueError):
                self._regions.flush(self._queue, region.name)

    def killed(self, *names: str) -> Harm:
        """Kill these processes, all at once; they are started again when the fault ends."""
        with ThreadPoolExecutor(len(names), "kill") as pool:
            list(pool.map(self._server.kill, names))

        def mend() -> None:
            with ThreadPoolExecutor(len(names), "restart") as pool:
                list(pool.map(self.restart, names))

        return Harm(" ".join(names), mend)

    def _kill_all(self, item: Planned) -> Harm:
        """Kill all servers at once, and start them in an order that is drawn, all within seconds.

        A server that ends because one that it needs was not there yet is started again.
        """
        rng = random.Random(item.target)
        names = [process.name for process in self._server.processes]
        rng.shuffle(names)
        self.killed(*names)

        mend = functools.partial(self.start_all, names, rng)
        return self.deposing(Harm(f"all, then {' '.join(names)}", mend))

    def start_all(self, names: Sequence[str], rng: random.Random) -> None:
        """Start all servers in this order, within seconds; those that end again, too.

        Raises:
            NotDoneError: some did not come up in time.
        """
        start_apart(names, self.restart, rng)
        if not self.within(BOUND_S, self._is_whole):
            raise NotDoneError("not all servers came up again")

    def _is_whole(self) -> bool:
        """Whether all servers run; those that don't are started."""
        self.heal()
        return all(process.alive for process in self._server.processes)

    def _paused(self, *names: str) -> Harm:
        for name in names:
            self._server.pause(name)

        def mend() -> None:
            for name in names:
                self._server.resume(name)

        return Harm(" ".join(names), mend)

    def holder(self, item: Planned) -> str:
        """A region server that holds one of the partitions; another one if all these are harmed."""
        holders = self._holders() if self._located is None else self._located
        whole = [name for name in holders if name not in self._picked]
        return self.pick(whole or list(self._region_servers.values()), item)

    def _holders(self) -> list[str]:
        """For each partition the region server that holds it."""
        located = self._insist(lambda: self._client.locations(self._queue))
        return [self._region_servers[each.host] for each in located]

    def deposing(self, harm: Harm) -> Harm:
        """A fault by which region servers may lose their regions without noticing. When it is
        mended those that did end, and all that ended are brought up again.
        """
        began_s = now_s()

        def mend() -> None:
            if self._located is not None:  # It ends when all are over.
                harm.mend()
                return
            try:
                harm.mend()
            finally:
                time.sleep(NOTICED_WITHIN_S)
                self.deposed.append((began_s, now_s()))
                self.heal()

        return Harm(harm.target, mend)

    def _holder_of_meta(self, item: Planned) -> str:
        return self.pick([self._region_servers[self._insist(self._regions.host_of_meta)]], item)

    def _alive(self, name: str) -> bool:
        return any(p.name == name and p.alive for p in self._server.processes)

    def _pause_region_server(self, item: Planned) -> Harm:
        name = self.holder(item)
        paused = self._paused(name)

        def mend() -> None:
            # It learns that the master has given its regions to others, and ends.
            resumed_s = now_s()
            paused.mend()
            ended = self.within(ENDS_WITHIN_S, lambda: not self._alive(name))
            self.deposed.append((resumed_s, now_s()))
            if not ended:
                raise NotDoneError("its session survived the pause")
            self.restart(name)

        return Harm(name, mend)

    def _move_regions(self, item: Planned) -> Harm:
        name = self.holder(item)
        process = next(p for p in self._server.processes if p.name == name)
        address = f"{process.host}:{process.ports[name]}"

        def move(how: str) -> None:
            for _ in range(MOVES_MAX):
                said = self._server.run_tool(
                    MOVER,
                    *("-r", address, "-o", how, "-m", "4", "-t", "60"),
                    *("-f", str(self._server.home / "moved-regions")),
                    timeout_s=BOUND_S,
                )
                if said.returncode == 0:
                    return
                self._say(f"{how} failed: {said.stdout[-SAID_MAX:]} {said.stderr[-SAID_MAX:]}")
            raise NotDoneError(f"{how} failed {MOVES_MAX} times")

        move("unload")
        return Harm(name, lambda: move("load"))

    def _disable_queue(self, _: Planned) -> Harm:
        self._insist(lambda: self._client.disable_queue(self._queue))
        return Harm(
            self._queue, lambda: self._insist(lambda: self._client.enable_queue(self._queue))
        )

    def _compact(self, item: Planned) -> Harm:
        regions = self._insist(lambda: self._regions.all(self._queue))
        partition = item.target % len(regions)
        name = regions[partition].name
        encoded = name.rstrip(b".").rpartition(b".")[2].decode()
        flushed = self._logged("Finished flush", encoded)
        compacted = self._logged("Completed major compaction", encoded)

        def is_flushed_twice() -> bool:
            return self._logged("Finished flush", encoded) >= flushed + 2

        def is_compacted() -> bool:
            return self._logged("Completed major compaction", encoded) > compacted

        self._until(is_flushed_twice, lambda: self._fill(partition, BOUND_S))
        self._until(
            is_compacted,
            lambda: insist(lambda: self._regions.compact(self._queue, name), self._say),
        )
        return Harm(f"partition {partition}")

    def _logged(self, *texts: str) -> int:
        """How many lines of the region servers' logs have all these texts."""
        lines = self._server.last_log_lines(LOG_LINES, "regionserver-*")
        return sum(all(text in line.text for text in texts) for line in lines)

    def _until(self, done: Callable[[], bool], ask: Callable[[], object]) -> None:
        """Ask for something, again now and then, until it is done."""
        deadline = time.monotonic() + BOUND_S
        while time.monotonic() < deadline:
            ask()
            if self.within(ASK_EVERY_S, done):
                return
        raise NotDoneError("it was asked for, but did not happen in time")

    def within(self, bound_s: float, done: Callable[[], bool]) -> bool:
        """Whether it is so within a time."""
        deadline = time.monotonic() + bound_s
        while not done():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.2)
        return True


def start_apart(names: Sequence[str], restart: Callable[[str], None], rng: random.Random) -> None:
    """Start processes in this order, moments apart; each waits by itself for those it needs."""
    with ThreadPoolExecutor(len(names), "restart") as pool:
        starting = []
        for name in names:
            starting.append(pool.submit(restart, name))
            time.sleep(rng.uniform(*START_APART_S))
        for each in starting:
            each.result()


def _host(item: Planned) -> int:
    return 1 + item.target % HOSTS


def _gateways(item: Planned) -> tuple[str, str]:
    return f"thrift1-{_host(item)}", f"thrift2-{_host(item)}"
