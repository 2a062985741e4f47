"""What is measured of consumer groups."""

from __future__ import annotations

import collections
import contextlib
import json
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kazoo.client import KazooClient

import hqueue
from hqueue import Consumer, Message, MessageID, Messages, PartitionKey, Queue

from .cases import Bench
from .measure import Comparison, compare, interleave, rate
from .members import BEGAN, ENDED

__all__ = ["GROUP_CASES", "MemberProcesses", "PartitionEvents"]

WAIT_S = 120
SETTLED_S = 1.0
"""Without an event for so long a group is settled."""
IDLE_S = 10.0
SESSION_MS = 30_000
PROCESSES = 4


def consumer(bench: Bench) -> Iterator[Comparison]:
    """A consumer that has all of a queue, against a scan of it. It joined its group before."""
    for value_bytes, a_batch, batches in ((100, 10_000, 200), (1_000, 2_000, 200)):
        queue = bench.queue(f"consumer-{value_bytes}")
        count = _fill(bench, queue, value_bytes, a_batch, bench.many(batches))
        with _joined(bench.client, queue) as joined:
            contenders = {
                "iterated": lambda joined=joined, count=count: _iterate(joined, count),
                "polled": lambda joined=joined, count=count: _poll(joined, count),
                "columns": lambda joined=joined, count=count: _columns(joined, count),
            }
            rivals = {
                "scan": lambda queue=queue: _scan(queue),
                "scanned columns": lambda queue=queue: _scan_columns(queue),
            }
            runs = {name: rate(work) for name, work in (contenders | rivals).items()}
            figures = compare(runs, bench.rounds)
        title = f"consume, {value_bytes:,} bytes"
        for name, contender, rival, scan in (
            ("iterated", "Consumer, iterated", "Queue.scan", "scan"),
            ("polled", "Consumer.poll", "Queue.scan", "scan"),
            ("columns", "Consumer, Arrow", "Queue.scan, Arrow", "scanned columns"),
        ):
            yield Comparison(title, contender, rival, "msg/s", figures[name], figures[scan], 0.9)


@contextlib.contextmanager
def _joined(client: hqueue.Client, queue: Queue) -> Iterator[Consumer]:
    """A consumer that has all partitions of a queue."""
    group = f"bench-{uuid.uuid4().hex[:12]}"
    with Consumer(queue.name, group=group, client=client) as joined:
        ends_s = time.monotonic() + WAIT_S
        while len(joined.assignment()) < queue.partitions:
            joined.poll(10, messages_max=1)
            if time.monotonic() > ends_s:
                raise TimeoutError("the consumer did not get all partitions")
        yield joined


def _fill(bench: Bench, queue: Queue, value_bytes: int, a_batch: int, batches: int) -> int:
    values = [message.value * (value_bytes // 100) for message in bench.messages(a_batch)]
    for number in range(batches):
        queue.put(Messages("topic", values), partition=number % queue.partitions)
    return a_batch * batches


def _scan(queue: Queue) -> int:
    with queue.scan() as scanner:
        return sum(1 for _ in scanner)


def _scan_columns(queue: Queue) -> int:
    with queue.scan() as scanner:
        return sum(batch.num_rows for batch in scanner.arrow_batches())


def _iterate(joined: Consumer, count: int) -> int:
    joined.seek_to_beginning()
    came = 0
    for _ in joined:
        came += 1
        if came == count:
            break
    return came


def _poll(joined: Consumer, count: int) -> int:
    joined.seek_to_beginning()
    came = 0
    while came < count:
        came += len(joined.poll(1_000))
    return came


def _columns(joined: Consumer, count: int) -> int:
    joined.seek_to_beginning()
    came = 0
    for batch in joined.arrow_batches():
        came += batch.num_rows
        if came == count:
            break
    return came


def commit(bench: Bench) -> Iterator[Comparison]:
    """Commits of one partition and of many, against bare sets of nodes by kazoo."""
    partitions = bench.many(1_000)
    queue = bench.queue("commit", partitions=partitions, partitions_per_region=250)
    ids: dict[PartitionKey, MessageID] = {}
    for number in range(partitions):
        key = PartitionKey(queue.name, number)
        ids[key] = queue.put(Message("topic", b""), partition=number)
    one = dict(list(ids.items())[:1])
    zookeeper = KazooClient(bench.client.settings.zookeeper)
    zookeeper.start(WAIT_S)
    paths = [f"/hqueue-bench-commit/{number}" for number in range(partitions)]
    try:
        for path in paths:
            zookeeper.ensure_path(path)
        with Consumer(group=f"bench-{uuid.uuid4().hex[:12]}", client=bench.client) as assigned:
            assigned.assign(ids)
            assigned.seek_to_end()
            turns = collections.Counter[str]()

            def committing(what: str, places: dict[PartitionKey, MessageID]) -> None:
                """Another place each time: after the message, or before it."""
                turns[what] += 1
                after = turns[what] % 2
                assigned.commit(
                    {k: place.next() if after else place for k, place in places.items()}
                )

            def setting(chosen: Sequence[str]) -> None:
                answers = [zookeeper.set_async(path, b"x" * 100) for path in chosen]
                for answer in answers:
                    answer.get(timeout=WAIT_S)

            for title, times, places, rival, goal in (
                ("a commit of 1 partition", 300, one, "a set by kazoo", 1.5),
                (
                    f"a commit of {partitions:,} partitions", 5, ids,
                    f"{partitions:,} sets by kazoo, sent before any answer", 2.0,
                ),
            ):  # fmt: skip
                figures = interleave(
                    {
                        "commit": lambda t=title, p=places: committing(t, p),
                        "set": lambda p=places: setting(paths[: len(p)]),
                    },
                    times=bench.many(times),
                    rounds=bench.rounds,
                    prepare=lambda: None,
                    figure=lambda seconds: statistics.median(seconds) * 1e3,
                )
                yield Comparison(
                    title, "Consumer.commit", rival, "ms", figures["commit"], figures["set"],
                    goal, at_most=True,
                )  # fmt: skip
    finally:
        zookeeper.delete("/hqueue-bench-commit", recursive=True)
        zookeeper.stop()
        zookeeper.close()


class PartitionEvents:
    """Who has which partition, by what members said."""

    def __init__(self) -> None:
        self.owners: dict[int, str] = {}
        self.last_s = float("-inf")
        """When something happened last."""
        self.pauses_ms: list[float] = []
        """How long each partition that moved had no owner."""
        self._ended_s: dict[int, float] = {}

    def take(self, events: Sequence[tuple[float, str, str, int]]) -> None:
        """Take in what happened, of all members together, in any order."""
        for at_s, what, member, partition in sorted(events):
            self.last_s = max(self.last_s, at_s)
            if what == BEGAN:
                self.owners[partition] = member
                if partition in self._ended_s:
                    self.pauses_ms.append((at_s - self._ended_s.pop(partition)) * 1e3)
            elif what == ENDED:
                self._ended_s[partition] = at_s
                if self.owners.get(partition) == member:
                    del self.owners[partition]

    def is_even(self, partitions: int, members: int) -> bool:
        """Whether each partition has a member, and no member two more than another."""
        held = collections.Counter(self.owners.values())
        return (
            len(self.owners) == partitions
            and len(held) == min(members, partitions)
            and max(held.values()) - min(held.values()) <= 1
        )


class MemberProcesses:
    """Processes with members of one group. Ended with the block.

    Args:
        zookeeper: where it is.
        partitions: how many the members share.
        processes: how many there are.
    """

    def __init__(self, zookeeper: str, partitions: int, processes: int = PROCESSES) -> None:
        self.events = PartitionEvents()
        self.members: list[str] = []
        self._partitions = partitions
        root, group = f"/hqueue-bench-{uuid.uuid4().hex[:12]}", "bench"
        self._processes = [
            subprocess.Popen(
                [
                    sys.executable, "-m", "tests.bench.members",
                    zookeeper, root, group, str(partitions), str(SESSION_MS),
                ],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )
            for _ in range(processes)
        ]  # fmt: skip

    def __enter__(self) -> MemberProcesses:
        return self

    def __exit__(self, *exc: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()

    def join(self, count: int) -> float:
        """Let so many more join, spread over the processes; when that began."""
        began_s = time.monotonic()
        new = [f"m{len(self.members) + number:04}" for number in range(count)]
        self._each("join", new)
        self.members += new
        return began_s

    def leave(self) -> float:
        """Let the last one leave; when that began."""
        began_s = time.monotonic()
        self._each("leave", [self.members[-1]])
        self.members.pop()
        return began_s

    def report(self) -> int:
        """Take in what happened; how many requests were made in all, besides pings."""
        answers = [self._ask(process, {"do": "report"}) for process in self._processes]
        self.events.take([tuple(event) for answer in answers for event in answer["events"]])
        return sum(answer["requests"] for answer in answers)

    def await_settled(self) -> None:
        """Wait until every partition has a member, evenly, and nothing happens any more."""
        ends_s = time.monotonic() + WAIT_S
        while True:
            self.report()
            even = self.events.is_even(self._partitions, len(self.members))
            if even and time.monotonic() - self.events.last_s > SETTLED_S:
                return
            if time.monotonic() > ends_s:
                raise TimeoutError("the group did not settle")
            time.sleep(0.05)

    def _each(self, what: str, members: Sequence[str]) -> None:
        """Ask all at once, each for its share: members stay where they joined."""
        shares: dict[int, list[str]] = collections.defaultdict(list)
        for name in members:
            shares[int(name[1:]) % len(self._processes)].append(name)
        for number, share in shares.items():
            self._send(self._processes[number], {"do": what, "members": share})
        for number in shares:
            self._answer(self._processes[number])

    def _ask(self, process: subprocess.Popen[str], command: dict[str, Any]) -> Any:
        self._send(process, command)
        return self._answer(process)

    @staticmethod
    def _send(process: subprocess.Popen[str], command: dict[str, Any]) -> None:
        assert process.stdin is not None
        process.stdin.write(json.dumps(command) + "\n")
        process.stdin.flush()

    @staticmethod
    def _answer(process: subprocess.Popen[str]) -> Any:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError("a process with members has ended")
        return json.loads(line)


def rebalance(bench: Bench) -> Iterator[Comparison]:
    """A hundred members with sessions of their own share a thousand partitions: one joins, one
    leaves. And what they ask of ZooKeeper while nothing happens.
    """
    members, partitions = bench.many(100), bench.many(1_000)
    took: dict[str, list[float]] = {"all": [], "joins": [], "leaves": []}
    pauses: dict[str, list[float]] = {"joins": [], "leaves": []}
    moved: list[float] = []
    idle: list[float] = []
    for _ in range(bench.rounds):
        with MemberProcesses(bench.client.settings.zookeeper, partitions) as group:
            events = group.events
            began_s = group.join(members)
            group.await_settled()
            took["all"].append((events.last_s - began_s) * 1e3)
            for what, change in (("joins", lambda: group.join(1)), ("leaves", group.leave)):
                before = dict(events.owners)
                events.pauses_ms.clear()
                began_s = change()
                group.await_settled()
                took[what].append((events.last_s - began_s) * 1e3)
                pauses[what].append(statistics.median(events.pauses_ms))
                if what == "joins":
                    changed = sum(before[key] != owner for key, owner in events.owners.items())
                    moved.append(len(events.pauses_ms) / max(1, changed))
            asked = group.report()
            time.sleep(IDLE_S)
            idle.append(float(group.report() - asked))
    title = f"a group of {members:,} members and {partitions:,} partitions"
    yield _goal(title, "all join at once", took["all"], 3_000, "ms")
    for what in ("joins", "leaves"):
        yield _goal(title, f"one {what}: until all is settled", took[what], 3_000, "ms")
        yield _goal(title, f"one {what}: pause of a partition that moves", pauses[what], 50, "ms")
    yield _goal(title, "one joins: stops for each partition that moves", moved, 1, "stops")
    yield _goal(title, f"requests besides pings in {IDLE_S:.0f} idle seconds", idle, 1, "requests")


def _goal(title: str, what: str, figures: Sequence[float], goal: float, unit: str) -> Comparison:
    return Comparison(
        title, what, "goal", unit, tuple(figures), (float(goal),) * len(figures), 1, at_most=True
    )


GROUP_CASES: dict[str, Callable[[Bench], Iterator[Comparison]]] = {
    case.__name__: case for case in (consumer, commit, rebalance)
}
