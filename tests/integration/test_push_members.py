"""Processes of one subscriber that share its partitions, on real servers, as they come, go, die and
stand still.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest

import hqueue
from hqueue import Message
from tests.support.waiting import wait_for

from .pushing import SESSION_MS, WorkerProcess, put_numbers
from .running import Program

Make = Callable[..., hqueue.Queue]
Start = Callable[..., WorkerProcess]

PARTITIONS = 6
TICK_MS = 2_000
"""ZooKeeper ends sessions at its ticks."""


@dataclasses.dataclass(frozen=True)
class Call:
    """A call as its listener noted it."""

    member: str
    partition: int
    numbers: tuple[int, ...]
    began_ns: int
    ended_ns: int | None
    """None if it never ended."""


class Members:
    """Processes that share a subscription, and what each noted.

    Args:
        client: a client of the same server.
        queue: the queue.
        environment: theirs.
        folder: where they note their calls.
    """

    def __init__(
        self,
        client: hqueue.Client,
        queue: hqueue.Queue,
        environment: dict[str, str],
        folder: Path,
    ) -> None:
        self.queue = queue
        self._client = client
        self._environment = environment
        self._folder = folder
        self._programs: list[Program] = []
        self._died_ns: dict[str, int] = {}

    def start(self, name: str, pause_ms: float = 0) -> Program:
        """Start another, which is called so here."""
        program = Program(
            "share",
            self.queue.name,
            "s",
            self._folder / name,
            pause_ms,
            environment=self._environment,
        )
        self._programs.append(program)
        program.await_ready()
        return program

    def kill(self, name: str, program: Program) -> None:
        """What a crash is."""
        os.kill(program.pid, signal.SIGKILL)
        self._died_ns[name] = time.monotonic_ns()

    def end(self) -> None:
        for program in self._programs:
            program.__exit__(None, None, None)

    def shares(self) -> list[int]:
        """How many partitions each of those has that are present."""
        listed = self._client.coordination.subscriptions.list(self.queue.name)
        return sorted(Counter(each.address for each in listed.values() if each).values())

    def settle(self, *shares: int, timeout_s: float = 60) -> None:
        wait_for(
            lambda: self.shares() == sorted(shares), f"they share {shares}", timeout_s=timeout_s
        )

    def calls(self) -> list[Call]:
        """All calls that were noted, in the order in which they began."""
        calls = []
        for path in self._folder.iterdir():
            begun: dict[tuple[int, tuple[int, ...]], int] = {}
            for line in path.read_text("utf-8").splitlines(keepends=True):
                if not line.endswith("\n"):
                    continue  # Its writer was killed.
                noted = json.loads(line)
                key = noted["partition"], tuple(noted["numbers"])
                if noted["what"] == "begin":
                    assert key not in begun
                    begun[key] = noted["at_ns"]
                else:
                    calls.append(Call(path.name, *key, begun.pop(key), noted["at_ns"]))
            died_ns = self._died_ns.get(path.name)
            calls += [Call(path.name, *key, began, died_ns) for key, began in begun.items()]
        return sorted(calls, key=lambda call: call.began_ns)

    def numbers(self) -> set[int]:
        return {number for call in self.calls() for number in call.numbers}

    def await_numbers(self, numbers: Collection[int], timeout_s: float = 60) -> None:
        wanted = set(numbers)
        wait_for(lambda: wanted <= self.numbers(), "all messages came", timeout_s=timeout_s)

    def check(self, numbers: Collection[int]) -> int:
        """All came, in order, and no two calls for a partition were ever handled at the same time;
        how many messages came again.
        """
        calls = self.calls()
        by_partition: dict[int, list[Call]] = defaultdict(list)
        for call in calls:
            by_partition[call.partition].append(call)
        repeated = 0
        for partition, its_calls in by_partition.items():
            for before, after in itertools.pairwise(its_calls):
                assert before.ended_ns is not None, f"{before} never ended"
                assert before.ended_ns <= after.began_ns, f"at the same time: {before}, {after}"
            first: list[int] = []
            for number in (number for call in its_calls for number in call.numbers):
                if first and number <= first[-1]:
                    assert number in first, f"{number} of {partition} came after a later one"
                    repeated += 1
                else:
                    first.append(number)
        assert {number for call in calls for number in call.numbers} == set(numbers)
        return repeated


class Load:
    """Puts numbers, each in a partition of its own turn, until it is stopped."""

    def __init__(self, queue: hqueue.Queue) -> None:
        self._queue = queue
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.numbers: list[int] = []

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopping.set()
        self._thread.join()

    def await_more(self, count: int) -> None:
        """Wait until so many more are put."""
        wanted = len(self.numbers) + count
        wait_for(lambda: len(self.numbers) >= wanted, "more is put")

    def _run(self) -> None:
        for number in itertools.count():
            if self._stopping.is_set():
                return
            self._queue.put(Message("t", b"%d" % number), partition=number % PARTITIONS)
            self.numbers.append(number)


@pytest.fixture
def members(
    make: Make, pushing: hqueue.Client, server_environment: dict[str, str], tmp_path: Path
) -> Iterator[Members]:
    environment = {
        **server_environment,
        "HQUEUE_ZOOKEEPER_ROOT": pushing.settings.zookeeper_root,
        "HQUEUE_ZOOKEEPER_SESSION_TIMEOUT_MS": str(SESSION_MS),
    }
    folder = tmp_path / "calls"
    folder.mkdir()
    made = Members(pushing, make(PARTITIONS), environment, folder)
    yield made
    made.end()


def test_a_rolling_update_under_load_loses_and_repeats_nothing(
    members: Members, start: Start
) -> None:
    start(checkpoint_ms=50)
    running = members.start("0", pause_ms=2)
    members.settle(6)
    with Load(members.queue) as load:
        load.await_more(50)
        members.start("1", pause_ms=2)
        members.settle(3, 3)
        load.await_more(50)
        assert running.result() == []
        members.settle(6)
        load.await_more(50)
    members.await_numbers(load.numbers)
    assert members.check(load.numbers) == 0
    assert {call.member for call in members.calls()} == {"0", "1"}


@pytest.mark.thorough("waits for a session to end")
def test_when_one_is_killed_the_others_take_over(members: Members, start: Start) -> None:
    start(checkpoint_ms=50)
    members.start("a", pause_ms=2)
    killed = members.start("b", pause_ms=2)
    members.settle(3, 3)
    with Load(members.queue) as load:
        load.await_more(200)
        members.kill("b", killed)
        began_s = time.monotonic()
        members.settle(6, timeout_s=60)
        took_ms = (time.monotonic() - began_s) * 1e3
        load.await_more(100)
    members.await_numbers(load.numbers)
    members.check(load.numbers)
    assert took_ms < SESSION_MS + TICK_MS + 2_000


@pytest.mark.thorough("waits for a session to end")
def test_one_that_stands_still_for_longer_than_its_session_handles_nothing_of_another_s(
    members: Members, start: Start
) -> None:
    start(checkpoint_ms=50)
    members.start("a")
    still = members.start("b")
    members.settle(3, 3)
    numbers = list(range(60))
    put_numbers(members.queue, numbers)
    members.await_numbers(numbers)
    with still.paused():
        # A worker calls it all the same: what is sent lies in its connections until it goes on.
        during = list(range(60, 120))
        put_numbers(members.queue, during)
        members.await_numbers(during)
        assert members.shares() == [6]
        stood_ns = time.monotonic_ns()
    members.settle(3, 3)
    later = list(range(120, 180))
    put_numbers(members.queue, later)
    members.await_numbers(later)
    assert members.check(range(180)) == 0
    after = [call for call in members.calls() if call.member == "b" and call.began_ns > stood_ns]
    assert not {number for call in after for number in call.numbers}.intersection(during)
    assert after, "it takes part again"


@pytest.mark.thorough("members come and go for half a minute")
def test_members_that_come_go_die_and_stand_still_under_load(
    members: Members, start: Start
) -> None:
    for _ in range(2):
        start(checkpoint_ms=50)
    members.start("steady", pause_ms=3)
    members.settle(6)
    with Load(members.queue) as load:
        for turn in range(3):
            leaving, dying = f"leaving-{turn}", f"dying-{turn}"
            goes, dies = members.start(leaving, pause_ms=3), members.start(dying, pause_ms=3)
            members.settle(2, 2, 2)
            load.await_more(100)
            assert goes.result() == []
            members.settle(3, 3)
            load.await_more(100)
            members.kill(dying, dies)
            members.settle(6)
            load.await_more(100)
    members.await_numbers(load.numbers)
    members.check(load.numbers)
