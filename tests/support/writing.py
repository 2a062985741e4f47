"""Writers that go on through faults, and the server made whole afterwards."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import hqueue
from hqueue import Message, local
from tests.support.history import Seen
from tests.support.waiting import wait_for

__all__ = ["Writing", "whole_again"]


@contextlib.contextmanager
def whole_again(server: local.LocalServer) -> Iterator[None]:
    """Resume and restart afterwards what the test paused and killed."""
    try:
        yield
    finally:
        for process in server.processes:
            if process.paused:
                server.resume(process.name)
            if not process.alive:
                server.restart(process.name)


class Writing:
    """Threads that put to their partitions without a pause until the block ends."""

    def __init__(self, queue: hqueue.Queue, writers: int) -> None:
        self._queue = queue
        self._writers = writers
        self._done = threading.Event()
        self._pool = ThreadPoolExecutor(writers)
        self.counts = [0] * writers
        self.acknowledged: list[Seen] = []
        self.stalls_s: list[float] = [0.0] * writers

    def __enter__(self) -> Writing:
        self._futures = [self._pool.submit(self._write, w) for w in range(self._writers)]
        return self

    def __exit__(self, *exc: object) -> None:
        self._done.set()
        self._pool.shutdown()
        for future in self._futures:
            self.acknowledged += future.result()

    def await_more(self, number: int = 20) -> None:
        """Wait until each writer has put this many more messages."""
        wanted = [count + number for count in self.counts]
        wait_for(
            lambda: all(c >= w for c, w in zip(self.counts, wanted, strict=True)),
            "writers go on",
            timeout_s=120,
        )

    def _write(self, writer: int) -> list[Seen]:
        told = []
        while not self._done.is_set():
            n = self.counts[writer]
            partition = (writer + n) % self._queue.partitions
            began = time.monotonic()
            i = self._queue.put(Message("t", b"%d:%d" % (writer, n)), partition=partition)
            self.stalls_s[writer] = max(self.stalls_s[writer], time.monotonic() - began)
            told.append(Seen(partition, int(i), f"{writer}:{n}"))
            self.counts[writer] += 1
        return told
