"""Consumers of a group in processes that die, stand still, leave and join, while messages are put:
every message is handed out, none is passed by, and none comes again that was committed.
"""

from __future__ import annotations

import functools
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

import hqueue
from hqueue import HQueueError, Outcome, local
from tests.faults.checker import check
from tests.faults.consumer import STYLES
from tests.faults.group_checker import check_group, takeovers
from tests.faults.group_history import owners
from tests.faults.history import History, Put, Recorder
from tests.faults.messages import KEYS, made, token_of
from tests.faults.processes import Processes
from tests.faults.record_files import now_s
from tests.faults.run import read_all
from tests.faults.specification import DRAINED
from tests.support.waiting import wait_for
from tests.support.zookeeper_server import ZooKeeperServer

pytestmark = pytest.mark.servers

PUT_EVERY_S = 0.02
MakeQueue = Callable[..., hqueue.Queue]
wait_until = functools.partial(wait_for, pause_s=0.25, timeout_s=120)

TAKEOVER_S_MAX = 30.0
"""What a machine that has much else to do may take; what it took is printed."""
ENDING_S = 120.0


class Consumers:
    """Processes of consumers of one queue, and somebody who puts messages into it.

    Args:
        queue: the queue, which nobody else puts into.
        folder: for what they write down.
        settings: of the processes' clients.
        seed: of what they choose.
        each: so many consumers are in each process.
    """

    def __init__(
        self,
        queue: hqueue.Queue,
        folder: Path,
        settings: hqueue.Settings,
        *,
        seed: int,
        each: int,
    ) -> None:
        self.session_s = settings.zookeeper_session_timeout_ms / 1e3
        self._queue = queue
        self._folder = folder
        given = {
            "gateways": ",".join(map(str, settings.gateways)),
            "zookeeper": settings.zookeeper,
            "zookeeper_root": settings.zookeeper_root,
            "zookeeper_session_timeout_ms": settings.zookeeper_session_timeout_ms,
            "notify_workers": False,
        }
        self._processes = Processes(seed, queue.name, folder, given, consumers=each)
        self._killed_s: dict[str, float] = {}
        self._stopped = threading.Event()
        self._pool = ThreadPoolExecutor(1)
        self._putting: Future[None] | None = None

    def __enter__(self) -> Consumers:
        self._putting = self._pool.submit(self._put)
        return self

    def __exit__(self, *error: object) -> None:
        self._stopped.set()
        self._processes.kill()
        self._pool.shutdown()

    def start(self, number: int) -> None:
        """Start so many processes."""
        for n in range(number):
            self._processes.start("consumer", STYLES[n % len(STYLES)])

    def running(self) -> list[str]:
        return sorted(self._processes.running("consumer"))

    def kill(self, name: str) -> None:
        os.kill(self._processes.running("consumer")[name], signal.SIGKILL)
        self._killed_s[name] = now_s()

    def replace(self, name: str) -> None:
        """Start another in place of one that was killed."""
        self._processes.replace("consumer", name)

    def send(self, name: str, number: int) -> None:
        os.kill(self._processes.running("consumer")[name], number)

    def owners(self) -> dict[int, str]:
        """The process that took each partition over last."""
        return owners(self._folder)

    def finish(self) -> History:
        """Put nothing any more, let all be consumed, and read what was written down."""
        self._stopped.set()
        assert self._putting is not None
        self._putting.result()
        (self._folder / DRAINED).touch()
        assert self._processes.end("consumer", ENDING_S) == []
        return read_all(self._queue, self._folder)

    def check(self, history: History, *, restarts_s: list[float]) -> None:
        """Judge it, and print how soon others had what killed processes had had.

        Args:
            history: the history.
            restarts_s: when ZooKeeper was started again: it counts all sessions from then on.
        """
        assert [*check(history), *check_group(history)] == []
        took_s = [
            took_s
            for process, at_s in self._killed_s.items()
            for took_s in takeovers(history, {process: at_s}).values()
            if not any(at_s < restarted_s < at_s + took_s for restarted_s in restarts_s)
        ]
        assert took_s, "no process was killed that had a partition"
        print(
            f"{len(took_s)} partitions of killed processes were taken over after at most "
            f"{max(took_s):.1f} s; the session is {self.session_s:.0f} s"
        )
        assert max(took_s) < self.session_s + TAKEOVER_S_MAX

    def _put(self) -> None:
        """One message into each partition in turn."""
        recorder, number = Recorder(self._folder / "putter.producer.jsonl"), 0
        chance = random.Random(self._queue.name)
        while not self._stopped.wait(PUT_EVERY_S):
            partition = number % self._queue.partitions
            messages = made([f"m{number}"], 0, KEYS, chance)
            tokens = [token_of(message) for message in messages]
            recorder.invoke(Put("putter", number, tokens, partition, now_s()))
            try:
                ids = self._queue.put(messages, partition=partition)
            except HQueueError as exc:
                outcome = "unknown" if exc.outcome is Outcome.UNKNOWN else "fail"
                recorder.complete(number, outcome, [], str(exc))  # type: ignore[arg-type]
            else:
                recorder.complete(number, "ok", map(int, ids))
            number += 1


def test_a_member_that_dies_and_one_that_stands_still_cost_no_message_and_double_no_commit(
    server: local.LocalServer, make_queue: MakeQueue, queue_name: str, tmp_path: Path
) -> None:
    queue = make_queue(4)
    settings = server.settings(zookeeper_root=f"/{queue_name}", zookeeper_session_timeout_ms=2_000)
    with Consumers(queue, tmp_path, settings, seed=1, each=1) as consumers:
        consumers.start(4)
        wait_until(lambda: len(set(consumers.owners().values())) == 4, "each has a partition")
        dead, stopped, *_ = dict.fromkeys(consumers.owners().values())
        consumers.send(stopped, signal.SIGSTOP)
        consumers.kill(dead)
        wait_until(
            lambda: {dead, stopped}.isdisjoint(consumers.owners().values()),
            "others have what they had",
        )
        consumers.send(stopped, signal.SIGCONT)
        consumers.replace(dead)
        wait_until(lambda: len(set(consumers.owners().values())) == 4, "each has one again")
        consumers.check(consumers.finish(), restarts_s=[])


PROCESSES, EACH, PARTITIONS = 10, 5, 50
FAULTS_S = 45.0


@pytest.mark.thorough("50 consumers and ZooKeeper's restarts, more than a minute")
@pytest.mark.parametrize("seed", [1])
def test_fifty_consumers_that_come_and_go_die_and_stand_still_consume_everything(
    server: local.LocalServer, make_queue: MakeQueue, tmp_path: Path, seed: int
) -> None:
    queue = make_queue(PARTITIONS, partitions_per_region=25)
    chance = random.Random(seed)
    restarts_s: list[float] = []
    with ZooKeeperServer({"tickTime": 500, "maxClientCnxns": 0}) as zookeeper:
        settings = server.settings(
            zookeeper=zookeeper.zookeeper, zookeeper_session_timeout_ms=6_000
        )
        with Consumers(queue, tmp_path, settings, seed=seed, each=EACH) as consumers:

            def kill() -> None:
                name = chance.choice(consumers.running())
                consumers.kill(name)
                time.sleep(chance.uniform(0, 8))
                consumers.replace(name)

            def stop() -> None:
                names = chance.sample(consumers.running(), 2)
                for name in names:
                    consumers.send(name, signal.SIGSTOP)
                time.sleep(chance.uniform(1.2, 2) * consumers.session_s)
                for name in names:
                    consumers.send(name, signal.SIGCONT)

            def restart() -> None:
                zookeeper.kill()
                time.sleep(chance.uniform(0, 2))
                zookeeper.start()
                restarts_s.append(now_s())

            consumers.start(PROCESSES)
            wait_until(lambda: len(consumers.owners()) == PARTITIONS, "all partitions are consumed")
            ends_s = time.monotonic() + FAULTS_S
            left = [kill, stop, restart]
            while left or time.monotonic() < ends_s:
                fault = left.pop() if left else chance.choice([kill, kill, stop, stop, restart])
                fault()
                time.sleep(chance.uniform(0, 3))
            kill()
            consumers.check(consumers.finish(), restarts_s=restarts_s)
