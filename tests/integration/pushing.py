"""Workers as processes of their own, and what listeners got."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import hqueue
from hqueue import Message, ReceivedMessage
from hqueue.metadata import SubscriptionKey
from hqueue.typing import ListenerAnswer
from hqueue_workers import Worker, WorkerSettings
from tests.support.waiting import wait_for

__all__ = [
    "SESSION_MS",
    "Received",
    "Stuck",
    "WorkerProcess",
    "WorkerThread",
    "checkpoint",
    "put_numbers",
]

SESSION_MS = 4_000
API_ADDRESS = re.compile(r"the Thrift API is served at (\S+):(\d+)\n")


class WorkerProcess:
    """``hqueue worker`` in a process of its own. It is killed with the block it was started for.

    Args:
        environment: its environment.
        client: a client of the same server, to see the worker with.
        settings: the worker's settings by name.
    """

    def __init__(
        self, environment: Mapping[str, str], client: hqueue.Client, **settings: object
    ) -> None:
        self.name = f"worker-{uuid.uuid4().hex[:8]}"
        self._client = client
        self._pushes = bool(settings.get("push", True))
        given = {"name": self.name, "host": "127.0.0.1", "metrics_port": 0, **settings}
        own = {f"HQUEUE_WORKER_{name.upper()}": str(value) for name, value in given.items()}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "hqueue.cli", "-v", "worker"],
            env={**environment, **own},
            stderr=subprocess.PIPE,
            text=True,
        )
        self._log: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> WorkerProcess:
        wait_for(self._is_there, "the worker is there")
        return self

    def __exit__(self, *exc: object) -> None:
        self.resume()
        self.kill()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log(self) -> str:
        """What it said."""
        return "".join(self._log)

    def api_address(self) -> tuple[str, int]:
        """Where it serves the Thrift API."""
        found = wait_for(lambda: API_ADDRESS.search(self.log), "the Thrift API is served")
        return found[1], int(found[2])

    def owns(self, queue: hqueue.Queue) -> set[int]:
        """The partitions of a queue that it has claimed."""
        return owned_by(self._client, queue, self.name)

    def kill(self) -> None:
        """What a crash is."""
        self._process.kill()
        self._process.wait()
        self._reader.join()

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        if self._process.poll() is None:
            os.kill(self.pid, signal.SIGCONT)

    def terminate(self, timeout_s: float = 60) -> int:
        """Ask it to end, and wait for that; its exit code."""
        self._process.terminate()
        code = self._process.wait(timeout_s)
        self._reader.join()
        return code

    def _is_there(self) -> bool:
        assert self._process.poll() is None, self.log
        if not self._pushes:
            return API_ADDRESS.search(self.log) is not None
        return self.name in self._client.coordination.workers.list()

    def _read(self) -> None:
        assert self._process.stderr is not None
        self._log.extend(self._process.stderr)


class WorkerThread:
    """A worker in a thread of this process, so that a test can reach its session.

    Args:
        client: its client; not shared with anything else.
        settings: the worker's settings by name.
    """

    def __init__(self, client: hqueue.Client, **settings: object) -> None:
        self.name = f"worker-{uuid.uuid4().hex[:8]}"
        given: dict[str, Any] = {"host": "127.0.0.1", "metrics_port": 0, **settings}
        self._settings = WorkerSettings(name=self.name, **given)
        self.client = client
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def __enter__(self) -> WorkerThread:
        self._thread.start()
        assert self._started.wait(60)
        return self

    def __exit__(self, *exc: object) -> None:
        self.terminate()

    def api_address(self) -> tuple[str, int]:
        """Where it serves the Thrift API."""
        address = wait_for(lambda: self._worker.api_address, "the Thrift API is served")
        return address.host, address.port

    def owns(self, queue: hqueue.Queue) -> set[int]:
        """The partitions of a queue that it has claimed."""
        return owned_by(self.client, queue, self.name)

    def terminate(self) -> int:
        """Ask it to end, and wait for that; 0 as the exit code of a process."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join()
        return 0

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._worker = Worker(self.client, self._settings)
        self._started.set()
        await self._worker.run(self._stopping)


def owned_by(client: hqueue.Client, queue: hqueue.Queue, worker: str) -> set[int]:
    """The partitions of a queue that a worker has claimed."""
    owners = client.coordination.owners.list()
    return {
        key.partition for key, name in owners.items() if (key.queue, name) == (queue.name, worker)
    }


class Received:
    """A listener that keeps what it gets; by default all of it is done.

    Args:
        pause_s: how long it takes for each call.
    """

    def __init__(self, pause_s: float = 0) -> None:
        self.calls: list[tuple[ReceivedMessage, ...]] = []
        self.at_s: list[float] = []
        self._pause_s = pause_s

    def __call__(self, messages: Sequence[ReceivedMessage]) -> ListenerAnswer:
        self.calls.append(tuple(messages))
        self.at_s.append(time.monotonic())
        if self._pause_s:
            time.sleep(self._pause_s)
        return self.answer(messages)

    def answer(self, messages: Sequence[ReceivedMessage]) -> ListenerAnswer:
        """The status of a call."""
        return None

    @property
    def messages(self) -> list[ReceivedMessage]:
        """Everything, in the order in which it came."""
        return [message for call in list(self.calls) for message in call]

    @property
    def values(self) -> list[bytes]:
        return [message.value for message in self.messages]

    def await_values(self, values: Sequence[bytes], timeout_s: float = 60) -> None:
        """Wait until all of these came."""
        wanted = set(values)
        wait_for(lambda: wanted <= set(self.values), "all messages came", timeout_s=timeout_s)

    def check_order(self) -> int:
        """Each partition came in its order, but for repetitions; how many those were.

        Raises:
            AssertionError: a message came for the first time after a later one.
        """
        seen: dict[int, list[int]] = defaultdict(list)
        repeated = 0
        for message in self.messages:
            ids = seen[message.partition]
            if ids and message.id <= ids[-1]:
                assert message.id in ids, "a message came after a later one"
                repeated += 1
            else:
                ids.append(message.id)
        return repeated


class Stuck(Received):
    """A listener that doesn't return before it is `released`."""

    def __init__(self) -> None:
        super().__init__()
        self.released = threading.Event()

    def answer(self, messages: Sequence[ReceivedMessage]) -> ListenerAnswer:
        assert self.released.wait(300)
        return None


def put_numbers(queue: hqueue.Queue, numbers: Sequence[int], topic: str = "t") -> list[bytes]:
    """Put a message for each number, each alone, round the partitions."""
    values = [b"%d" % number for number in numbers]
    for number, value in zip(numbers, values, strict=True):
        queue.put(Message(topic, value), partition=number % queue.partitions)
    return values


def checkpoint(client: hqueue.Client, queue: hqueue.Queue, partition: int, name: str) -> int:
    found = client.coordination.checkpoints.read(SubscriptionKey(queue.name, partition, name))
    assert found is not None
    return int(found.next)
