"""The example that reads, processes and writes puts each result once, whatever becomes of it."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import hqueue
from hqueue import Message
from tests.support.memory.zookeeper import MemoryZooKeeper
from tests.support.waiting import wait_for

from .running import FOLDER

pytestmark = pytest.mark.in_memory_first

EXAMPLE = Path(__file__).parents[2] / "examples" / "read_process_write.py"
CUTS = (3, 5, 2)
"""How many messages one takes at a time: others than the one before it, and than the one after."""
POINTS = 11
"""A cut has five: so these lie in more than two cuts."""
BEFORE_THE_PUT, BEFORE_THE_COMMIT = 2, 4
PARTITIONS = 2
GROUP = "billing"
DEADLINE_S = 120

MakeQueue = Callable[..., hqueue.Queue]


@pytest.fixture
def session_ms(request: pytest.FixtureRequest) -> int:
    return 2_000 if request.node.callspec.params["backend"] == "hbase" else 500


@pytest.fixture
def environment(
    process_environment: dict[str, str],
    request: pytest.FixtureRequest,
    queue_name: str,
    session_ms: int,
) -> Iterator[dict[str, str]]:
    """Where processes find the back end and a ZooKeeper, with a root of their own in it."""
    own = {
        **process_environment,
        "HQUEUE_ZOOKEEPER_ROOT": f"/{queue_name}",
        "HQUEUE_ZOOKEEPER_SESSION_TIMEOUT_MS": str(session_ms),
    }
    if request.node.callspec.params["backend"] == "hbase":
        yield own
        return
    with MemoryZooKeeper() as server:
        yield {**own, "HQUEUE_ZOOKEEPER": f"127.0.0.1:{server.port}"}


class Pipelines:
    """Starts the example, to get a signal at a point. What still runs is killed after the test."""

    def __init__(self, environment: dict[str, str], source: str, target: str, idle_ms: int) -> None:
        self._environment = environment
        self._arguments = [str(EXAMPLE), source, target, GROUP, "--idle-ms", str(idle_ms)]
        self._started: list[subprocess.Popen[str]] = []

    def start(self, kind: signal.Signals, point: int, cut: int) -> subprocess.Popen[str]:
        program = [sys.executable, str(FOLDER / "signal_at.py"), kind.name, str(point)]
        self._started.append(
            subprocess.Popen(
                [*program, *self._arguments, "--cut", str(cut)],
                env=self._environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return self._started[-1]

    def run(self, kind: signal.Signals, point: int, cut: int) -> tuple[int, str]:
        """How it ended, and what it said on stderr."""
        process = self.start(kind, point, cut)
        _, said = process.communicate(timeout=DEADLINE_S)
        return process.returncode, said

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()


@pytest.fixture
def queues(make_queue: MakeQueue) -> tuple[hqueue.Queue, hqueue.Queue]:
    """The one that is read, with messages in batches of many lengths; and the one for results."""
    source, target = make_queue(PARTITIONS), make_queue(PARTITIONS)
    numbers = itertools.count()
    for n in range(24):
        messages = [Message("t", b"message %d" % next(numbers)) for _ in range(n % 5 + 1)]
        source.put(messages, partition=n % PARTITIONS)
    return source, target


@pytest.fixture
def pipelines(
    environment: dict[str, str], queues: tuple[hqueue.Queue, hqueue.Queue], session_ms: int
) -> Iterator[Pipelines]:
    started = Pipelines(environment, queues[0].name, queues[1].name, session_ms + 2_000)
    yield started
    started.close()


def values(queue: hqueue.Queue) -> dict[int, list[bytes]]:
    """Of each partition, in its order."""
    found: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
    for message in queue.scan():
        found[message.partition].append(message.value)
    return found


def assert_each_once(source: hqueue.Queue, target: hqueue.Queue) -> None:
    expected = {p: [value.upper() for value in there] for p, there in values(source).items()}
    assert values(target) == expected


@pytest.mark.thorough("killed and started a dozen times, 12 s")
def test_killed_at_every_point_and_started_again_it_puts_each_result_once_and_in_order(
    queues: tuple[hqueue.Queue, hqueue.Queue], pipelines: Pipelines
) -> None:
    cuts = itertools.cycle(CUTS)
    for point in range(1, POINTS + 1):
        code, errors = pipelines.run(signal.SIGKILL, point, next(cuts))
        assert code == -signal.SIGKILL, errors
    code, errors = pipelines.run(signal.SIGKILL, 0, next(cuts))
    assert code == 0, errors
    assert_each_once(*queues)


@pytest.mark.thorough("processes that wait for a session to end")
def test_a_successor_that_cuts_elsewhere_takes_the_cut_that_was_put(
    make_queue: MakeQueue, environment: dict[str, str], session_ms: int
) -> None:
    source, target = make_queue(1), make_queue(1)
    source.put([Message("t", b"message %d" % number) for number in range(10)])
    started = Pipelines(environment, source.name, target.name, session_ms + 2_000)
    try:
        code, errors = started.run(signal.SIGKILL, BEFORE_THE_COMMIT, 5)
        assert code == -signal.SIGKILL, errors
        code, errors = started.run(signal.SIGKILL, 0, 3)
        assert code == 0, errors
        assert "reused" in errors, "its cut had another length"
    finally:
        started.close()
    assert_each_once(source, target)


@pytest.mark.thorough("waits for a session to end")
@pytest.mark.parametrize(
    "point", [2, BEFORE_THE_COMMIT], ids=["before-the-put", "before-the-commit"]
)
def test_one_that_stood_still_while_another_took_over_puts_nothing_twice(
    queues: tuple[hqueue.Queue, hqueue.Queue], pipelines: Pipelines, point: int
) -> None:
    source, target = queues
    count = sum(map(len, values(source).values()))
    stopped = pipelines.start(signal.SIGSTOP, point, 5)
    wait_for(lambda: is_stopped(stopped.pid), "it stands still")
    other = pipelines.start(signal.SIGSTOP, 0, 3)
    wait_for(
        lambda: sum(map(len, values(target).values())) >= count, "all was brought over", pause_s=0.2
    )
    stopped.send_signal(signal.SIGCONT)
    for process in (stopped, other):
        _, errors = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0, errors
    assert_each_once(source, target)


def is_stopped(pid: int) -> bool:
    """Whether a process stands still, by the letter of its state."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
