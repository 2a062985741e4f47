"""Rows in memory whose scans are held at a gate."""

from __future__ import annotations

import dataclasses
import threading
from collections import Counter
from typing import Any, cast

from hqueue import QueueDescription, Settings
from hqueue.consume.queue_reader import QueueReader
from hqueue.consume.skipped_batches import SkipCounts
from hqueue.log.context import QueueContext
from hqueue.log.in_threads import LogInThreads
from hqueue.log.table_ports import LogPort
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock
from hqueue.runtime.loop import blocking, in_thread
from tests.support.doubles import Rows, Stream

__all__ = ["BOUND_S", "Gate", "GatedRows", "filled", "reader_of", "reading_context"]

BOUND_S = 20


class Gate:
    """Where threads are held until so many may pass."""

    def __init__(self, passes: int) -> None:
        self._changed = threading.Condition()
        self._passes = passes
        self.arrived = 0

    def pass_through(self) -> None:
        with self._changed:
            self.arrived += 1
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self._passes > 0, BOUND_S)
            self._passes -= 1

    def let(self, passes: int) -> None:
        with self._changed:
            self._passes += passes
            self._changed.notify_all()

    def wait_for(self, arrived: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.arrived >= arrived, BOUND_S)


class GatedRows(Rows):
    """A store whose scans are held at a gate, and which knows what is open and who reads."""

    def __init__(self, passes: int = 1_000_000) -> None:
        super().__init__()
        self.gate = Gate(passes)
        self.opened: Counter[int] = Counter()
        self.closed: Counter[int] = Counter()
        self.reading: Counter[int] = Counter()
        self.reading_most = 0
        self.freed = threading.Condition()

    def open(self, partition: int, start: int, stop: int, topics: object) -> Any:
        self.opened[partition] += 1
        return GatedStream(self, partition, super().open(partition, start, stop, topics))

    def wait_for_freed(self) -> None:
        with self.freed:
            assert self.freed.wait_for(lambda: self.opened == self.closed, BOUND_S)


class GatedStream:
    def __init__(self, rows: GatedRows, partition: int, stream: Stream) -> None:
        self._rows, self._partition, self._stream = rows, partition, stream

    def read(self, rows: int) -> Any:
        reading = self._rows.reading
        reading[self._partition] += 1
        assert reading[self._partition] == 1, "a partition is asked for twice at a time"
        self._rows.reading_most = max(self._rows.reading_most, reading.total())
        try:
            self._rows.gate.pass_through()
            error = self._rows.failure("read")
            if error is not None:
                raise error
            return self._stream.read(rows)
        finally:
            reading[self._partition] -= 1

    def close(self) -> None:
        with self._rows.freed:
            self._rows.closed[self._partition] += 1
            self._rows.freed.notify_all()


def filled(rows: GatedRows, batches: list[int]) -> dict[int, list[bytes]]:
    for partition, count in enumerate(batches):
        rows.rows[partition] = []
        for number in range(count):
            rows.append(partition, b"%d-%d" % (partition, number))
    return {p: [b"%d-%d" % (p, n) for n in range(c)] for p, c in enumerate(batches) if c}


def reading_context(
    description: QueueDescription, settings: Settings, clock: Clock = SYSTEM_CLOCK
) -> QueueContext:
    """An open queue that stays as it is, for readers."""
    return QueueContext(description, lambda: blocking(lambda: description), settings, clock)


def reader_of(rows: Rows, **settings: int) -> QueueReader:
    """A reader of a queue that has these rows, from threads and from loops."""
    description = QueueDescription("q", len(rows.rows), None, {}, True)
    bounded = {"operation_timeout_ms": BOUND_S * 1_000, **settings}
    made = dataclasses.replace(Settings(), **bounded)  # type: ignore[arg-type]
    context = reading_context(description, made)
    port = cast("LogPort", rows)
    return QueueReader(context, port, LogInThreads(port, in_thread), SkipCounts())
