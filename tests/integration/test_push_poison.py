"""Messages that end their subscriber's process are found, while processes and workers die."""

from __future__ import annotations

import socket
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

import hqueue
from hqueue import Message
from hqueue.metadata import SubscriptionKey
from tests.support.waiting import wait_for

from .pushing import WorkerProcess
from .running import Program

NAME = "s"
FATAL = {0: b"exit", 1: b"hang", 2: b"memory"}
HANGS_S = 3.0
"""After this long a process that hangs is killed, as a watchdog would do. Its call has no answer in
time."""
HANGS_AGAIN_S = 0.3
"""The same, of a message that has hung before: the end of the process ends its call."""


class Supervised:
    """A subscriber's process that is started again whenever it has ended."""

    def __init__(self, environment: Mapping[str, str], *arguments: object) -> None:
        self.began: list[str] = []
        """The fatal messages that it began to process, one for each life that they ended."""
        self._environment = environment
        self._arguments = arguments
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._supervise)

    @contextmanager
    def running(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            self._thread.join(120)

    def _supervise(self) -> None:
        while not self._stopping.is_set():
            with Program(
                "fatal_messages", *self._arguments, environment=self._environment
            ) as program:
                watching = threading.Thread(target=self._watch, args=(program,))
                watching.start()
                while watching.is_alive() and not self._stopping.wait(0.05):
                    pass
            watching.join(60)  # The process was killed with its block.

    def _watch(self, program: Program) -> None:
        for line in program.lines():
            if line != "ready":
                self.began.append(line)
            if line == "hang":
                is_first = self.began.count(line) == 1
                self._stopping.wait(HANGS_S if is_first else HANGS_AGAIN_S)
                return


def processed(file: Path) -> dict[int, list[str]]:
    """What was processed of each partition, in order, without repetitions."""
    found: dict[int, list[str]] = defaultdict(list)
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    for line in text.splitlines():
        partition, value = line.split()
        if value not in found[int(partition)]:
            found[int(partition)].append(value)
    return found


@pytest.mark.usefixtures("server")
@pytest.mark.thorough("half a minute; the models explore it, and units show it in memory")
def test_messages_that_exit_hang_and_take_all_memory_are_dead_letters_and_no_others(
    make: Callable[..., hqueue.Queue],
    start: Callable[..., WorkerProcess],
    server_environment: dict[str, str],
    pushing: hqueue.Client,
    tmp_path: Path,
) -> None:
    queue = make(len(FATAL))
    wanted: dict[int, list[str]] = {}
    for partition, fatal in FATAL.items():
        values = [b"%d-%d" % (partition, number) for number in range(3)]
        values.insert(partition % 2 + 1, fatal)
        queue.put([Message("t", value) for value in values], partition=partition)
        wanted[partition] = [value.decode() for value in values if value != fatal]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    file = tmp_path / "processed"
    environment = {
        **server_environment,
        "HQUEUE_ZOOKEEPER_ROOT": pushing.settings.zookeeper_root,
        "HQUEUE_ZOOKEEPER_SESSION_TIMEOUT_MS": str(pushing.settings.zookeeper_session_timeout_ms),
    }
    subscriber = Supervised(environment, queue.name, NAME, port, file)
    first = start(checkpoint_ms=100)
    with subscriber.running():
        wait_for(lambda: len(subscriber.began) >= 2, "some calls are lost")
        first.kill()
        keys = [SubscriptionKey(queue.name, partition, NAME) for partition in FATAL]
        kept = pushing.coordination.checkpoints.read_many(keys)
        assert any(each.unanswered for each in kept.values()), "the count outlives the worker"
        start(checkpoint_ms=100)
        wait_for(lambda: processed(file) == wanted, "all others are processed", timeout_s=150)
        wait_for(lambda: len(list(queue.dead_letters.waiting(NAME))) == 3, "they are found")
        lives = len(subscriber.began)
    letters = list(queue.dead_letters.waiting(NAME))
    assert {each.message.partition: each.message.value for each in letters} == FATAL
    assert {each.reason for each in letters} == {
        "the subscriber did not answer 2 calls with this message alone"
    }
    # Two calls of each batch, one of each half, and two of the message alone; and where a worker
    # or another message ended a call, some more.
    assert lives <= 3 * 8, subscriber.began
