"""What puts and losses of power cost: ``python -m tests.faults.losses --cuts 6``.

On a cluster whose servers have disks of their own it measures puts to two queues, one with each
`durability`. Then it cuts the power of all servers while messages are put, read and consumed,
starts them again, and goes on, again and again. At the end it reads both logs, and judges: what is
gone of what was acknowledged must be the newest of a partition; and readers and groups that saw
more than is there must have got everything that came later.
"""

from __future__ import annotations

import bisect
import collections
import contextlib
import dataclasses
import json
import random
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import typer

import hqueue
from hqueue import Client, Consumer, HQueueError, Message, Queue
from hqueue.errors import LocalServerError
from hqueue.local import LocalServer
from hqueue.local.cluster import CLUSTER
from hqueue.local.lifecycle import start_profile

from .disks import disks_at
from .power_faults import disk_folders, lose_power
from .server_faults import start_apart

__all__ = ["Acknowledged", "Loss", "losses_of"]

PARTITIONS = 2
DURABILITIES = ("SYNC_WAL", "FSYNC_WAL")
MEASURED_S = 8.0
WRITERS = 8
PAUSE_S = 0.02
BEFORE_CUT_S = (6.0, 40.0)
"""A file system writes by itself what was not synced for 30 s."""
UP_WITHIN_S = 420.0
"""All servers start at once on one machine, which others use, too."""
SETTINGS: Mapping[str, Any] = {
    "operation_timeout_ms": 20_000,
    "request_timeout_ms": 5_000,
    "zookeeper_session_timeout_ms": 4_000,
    "clock_skew_ms_max": 1_000,
}


@dataclasses.dataclass(frozen=True)
class Acknowledged:
    """A message whose put was acknowledged: its partition and ID, and when that was."""

    partition: int
    id: int
    at_s: float


@dataclasses.dataclass(frozen=True)
class Loss:
    """What one cut took of what was acknowledged before.

    Args:
        messages: how many of them are gone.
        lost_ms: from the acknowledgement of the first that is gone to the cut.
        whole: whether in each partition those that are gone are the newest before the cut.
    """

    messages: int
    lost_ms: float
    whole: bool


def losses_of(
    acknowledged: Sequence[Acknowledged], left: Mapping[int, set[int]], cuts_s: Sequence[float]
) -> list[Loss]:
    """What each cut took.

    Args:
        acknowledged: what was acknowledged.
        left: the IDs that are in the log at the end, by partition.
        cuts_s: when the power was cut, ascending.
    """
    by_cut: list[list[Acknowledged]] = [[] for _ in range(len(cuts_s) + 1)]
    for each in acknowledged:
        by_cut[bisect.bisect_left(cuts_s, each.at_s)].append(each)
    losses = []
    for cut_s, before in zip([*cuts_s, float("inf")], by_cut, strict=True):
        gone = [each for each in before if each.id not in left[each.partition]]
        firsts: dict[int, int] = {}
        for each in gone:
            firsts[each.partition] = min(each.id, firsts.get(each.partition, each.id))
        whole = all(
            each.id < firsts.get(each.partition, each.id + 1)
            for each in before
            if each.id in left[each.partition]
        )
        lost_ms = 1e3 * (cut_s - min(each.at_s for each in gone)) if gone else 0.0
        losses.append(Loss(len(gone), lost_ms, whole))
    return losses


class _Load:
    """Puts to a queue, and reads and consumes it, from threads that go on through all."""

    def __init__(self, client: Client, queue: Queue) -> None:
        self._client = client
        self._queue = queue
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.acknowledged: list[Acknowledged] = []
        self.followed: dict[int, list[int]] = collections.defaultdict(list)
        self.consumed: dict[int, list[int]] = collections.defaultdict(list)
        self.errors: collections.Counter[str] = collections.Counter()
        self._pool = ThreadPoolExecutor(PARTITIONS + 2)
        self._running = [
            *(self._pool.submit(self._put, number) for number in range(PARTITIONS)),
            self._pool.submit(self._again, self._follow),
            self._pool.submit(self._again, self._consume),
        ]

    def end(self) -> None:
        """Let the readers come to the end, and stop."""
        self._stop.set()
        for each in self._running:
            each.result()
        self._pool.shutdown()

    def _put(self, partition: int) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            try:
                message_id = self._queue.put(Message("t", b"%d" % number), partition=partition)
            except HQueueError as exc:
                self._note(exc)
            else:
                with self._lock:
                    self.acknowledged.append(
                        Acknowledged(partition, int(message_id), time.monotonic())
                    )
            time.sleep(PAUSE_S)

    def _again(self, work: Callable[[], None]) -> None:
        """Begin again after each error, until it ends by itself."""
        while True:
            try:
                work()
                return
            except HQueueError as exc:
                self._note(exc)
                time.sleep(0.5)

    def _follow(self) -> None:
        while not self._stop.is_set():
            starts = {
                partition: hqueue.Scan(hqueue.MessageID.from_int(ids[-1] + 1 if ids else 0))
                for partition, ids in ((p, self.followed[p]) for p in range(PARTITIONS))
            }
            with self._queue.combined_partition_scanner(
                starts, follow=True, idle_ms_max=15_000
            ) as scanner:
                for message in scanner:
                    self.followed[message.partition].append(int(message.id))

    def _consume(self) -> None:
        group = f"{self._queue.name}-group"
        with Consumer([self._queue.name], group=group, client=self._client) as consumer:
            idle = 0
            while idle < 30 or not self._stop.is_set():
                messages = consumer.poll(500)
                idle = 0 if messages else idle + 1
                for message in messages:
                    self.consumed[message.partition].append(int(message.id))

    def _note(self, exc: HQueueError) -> None:
        with self._lock:
            self.errors[type(exc).__name__] += 1


def _measured(queue: Queue) -> dict[str, float]:
    """How fast puts of 100 bytes are: one after the other, and from several threads."""

    def put_for(seconds: float) -> list[float]:
        took, ends_s = [], time.monotonic() + seconds
        while time.monotonic() < ends_s:
            began_s = time.monotonic()
            queue.put(Message("t", bytes(100)))
            took.append(1e3 * (time.monotonic() - began_s))
        return took

    put_for(2.0)
    alone = sorted(put_for(MEASURED_S))
    with ThreadPoolExecutor(WRITERS) as pool:
        together = list(pool.map(put_for, [MEASURED_S] * WRITERS))
    return {
        "p50_ms": round(statistics.median(alone), 2),
        "p99_ms": round(alone[int(len(alone) * 0.99)], 2),
        f"puts_a_second_of_{WRITERS}": round(sum(map(len, together)) / MEASURED_S),
    }


def _await_puts(queues: Sequence[Queue]) -> None:
    """Wait until all partitions take puts again."""
    began_s = time.monotonic()
    for queue in queues:
        for partition in range(PARTITIONS):
            while True:
                try:
                    queue.put(Message("up", b""), partition=partition)
                    break
                except HQueueError:
                    if time.monotonic() - began_s > UP_WITHIN_S:
                        raise
                    time.sleep(0.5)


def _judged(load: _Load, queue: Queue, cuts_s: Sequence[float]) -> dict[str, Any]:
    ids: dict[int, list[int]] = {}
    findings = []
    for partition in range(PARTITIONS):
        with queue.scan(partition=partition) as scanner:
            ids[partition] = [int(message.id) for message in scanner]
        findings += [each.problem for each in list(queue.verify([partition]))[-1].findings]
    left = {partition: set(found) for partition, found in ids.items()}
    return {
        "acknowledged": len(load.acknowledged),
        "losses": [dataclasses.asdict(each) for each in losses_of(load.acknowledged, left, cuts_s)],
        "findings": findings,
        "follower": _reader(load.followed, left),
        "group": _reader(load.consumed, left),
        "errors": dict(load.errors),
    }


def _reader(got: Mapping[int, Sequence[int]], left: Mapping[int, set[int]]) -> dict[str, int]:
    """What a reader missed of what is there, and what it got that is not, or twice."""
    return {
        "missed": sum(len(left[p] - set(got[p])) for p in left),
        "gone": sum(len(set(got[p]) - left[p]) for p in left),
        "again": sum(len(got[p]) - len(set(got[p])) for p in left),
    }


def _start_again(server: LocalServer, rng: random.Random) -> None:
    names = rng.sample([each.name for each in server.processes], len(server.processes))

    def restart(name: str) -> None:
        try:
            server.restart(name, timeout_s=90)
        except LocalServerError as exc:
            typer.echo(f"{name} did not come up: {exc.text}")

    start_apart(names, restart, rng)
    for process in server.processes:
        if not process.alive:
            restart(process.name)


@contextlib.contextmanager
def _logs_kept(server: LocalServer, folder: Path) -> Iterator[None]:
    """Keep the servers' logs if it fails."""
    try:
        yield
    except BaseException:
        shutil.copytree(server.logs_dir, folder, dirs_exist_ok=True)
        raise


def main(
    cuts: Annotated[int, typer.Option(help="How often the power of all servers is cut.")] = 6,
    seed: Annotated[int, typer.Option(help="Of the times and of the orders.")] = 1,
    report: Annotated[Path, typer.Option(help="Where the figures go.")] = Path("losses.json"),
    *,
    measure: Annotated[bool, typer.Option(help="Measure puts before.")] = True,
) -> None:
    """Cut the power of all servers again and again, and count what is lost."""
    rng = random.Random(seed)
    figures: dict[str, Any] = {"seed": seed}
    with (
        tempfile.TemporaryDirectory(prefix="hqueue-losses-") as home,
        disks_at(*disk_folders(Path(home))) as disks,
        start_profile(CLUSTER, home=home) as server,
        _logs_kept(server, report.with_suffix(".logs")),
        hqueue.connect(server.settings(**SETTINGS)) as client,
    ):
        for disk in disks.values():
            disk.sync()
        queues = {
            durability: client.create_queue(
                f"losses-{durability.lower()}", partitions=PARTITIONS, durability=durability
            )
            for durability in DURABILITIES
        }
        if measure:
            figures["puts"] = {name: _measured(queue) for name, queue in queues.items()}
            typer.echo(json.dumps(figures["puts"]))
        loads = {name: _Load(client, queue) for name, queue in queues.items()}
        cuts_s: list[float] = []
        figures["down_s"] = []
        for number in range(cuts):
            time.sleep(rng.uniform(*BEFORE_CUT_S))
            names = rng.sample([each.name for each in server.processes], len(server.processes))
            cuts_s.append(lose_power(server, disks, names))
            _start_again(server, rng)
            _await_puts([*queues.values()])
            figures["down_s"].append(round(time.monotonic() - cuts_s[-1], 1))
            typer.echo(f"cut {number + 1}: puts again after {figures['down_s'][-1]} s")
        time.sleep(3)
        for load in loads.values():
            load.end()
        for name, queue in queues.items():
            figures[name] = _judged(loads[name], queue, cuts_s)
    report.write_text(json.dumps(figures, indent=2) + "\n")
    typer.echo(json.dumps(figures, indent=2))


if __name__ == "__main__":
    typer.run(main)
