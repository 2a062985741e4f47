"""What producers and readers write down: the only evidence that the checker sees.

One file a process, JSON lines, flushed line by line: a put is written down before it is tried and
again when its outcome is known, so that a killed process leaves no put unmentioned. Times are
seconds of the machine's boot clock, which all processes share.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, TextIO

__all__ = ["History", "Put", "Read", "Recorder", "load", "now_s"]

Outcome = Literal["ok", "fail", "unknown"]


def now_s() -> float:
    """The clock of all histories."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclasses.dataclass(slots=True)
class Put:
    """One append that a producer tried: one or more messages, in their order."""

    producer: str
    number: int
    tokens: list[str]
    partition: int | None
    invoked_s: float
    completed_s: float | None = None
    outcome: Outcome = "unknown"
    ids: list[int] = dataclasses.field(default_factory=list)
    error: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Read:
    """One message as a reader got it."""

    reader: str
    partition: int
    id: int
    token: str
    at_s: float


@dataclasses.dataclass(slots=True)
class History:
    """Everything that was tried and seen in a run."""

    puts: list[Put]
    reads: dict[str, list[Read]]
    """By reader, in the order in which it read."""
    final: dict[int, list[Read]]
    """By partition: what one last reader read from the first message to the last."""
    starts: dict[str, dict[int, int]] = dataclasses.field(default_factory=dict)
    """By reader and partition: the ID from which it was to read."""
    complete: set[str] = dataclasses.field(default_factory=set)
    """Readers that read on until the drained log's end."""
    counts: dict[int, int] = dataclasses.field(default_factory=dict)
    """By partition: how many messages its newest header counts."""


class Recorder:
    """Writes one process's history."""

    def __init__(self, path: Path) -> None:
        self._file: TextIO = path.open("a", encoding="utf-8")

    def invoke(self, put: Put) -> None:
        """A put is about to be tried."""
        self._write("invoke", put.number, put.tokens, put.partition, now_s())

    def complete(self, number: int, outcome: Outcome, ids: Iterable[int], error: str = "") -> None:
        """The outcome of a put is known."""
        self._write("complete", number, outcome, list(ids), now_s(), error)

    def start(self, partition: int, first: int) -> None:
        """A reader is to read a partition from an ID."""
        self._write("start", partition, first)

    def read(self, messages: Iterable[tuple[int, int, str]]) -> None:
        """Messages were read: partition, ID and token of each."""
        self._write("read", now_s(), list(messages))

    def drained(self) -> None:
        """A reader has come to the end of the drained log."""
        self._write("drained")

    def _write(self, *record: object) -> None:
        self._file.write(json.dumps(record, separators=(",", ":")) + "\n")
        self._file.flush()


def _records(path: Path) -> Iterator[list[object]]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.endswith("\n"):  # A killed process may leave half a line.
                yield json.loads(line)


def load(folder: Path, final: str, counts: dict[int, int]) -> History:
    """Put the files of a run together.

    Args:
        folder: where the files are: ``<name>.producer.jsonl`` and ``<name>.reader.jsonl``.
        final: the name of the reader that read everything at the end.
        counts: what the newest header of each partition counts.
    """
    puts: list[Put] = []
    history = History(puts, {}, collections.defaultdict(list), counts=counts)
    for path in sorted(folder.glob("*.producer.jsonl")):
        producer = path.name.removesuffix(".producer.jsonl")
        by_number: dict[int, Put] = {}
        for record in _records(path):
            if record[0] == "invoke":
                _, number, tokens, partition, at_s = record
                by_number[number] = Put(producer, number, tokens, partition, at_s)  # type: ignore[index,arg-type]
            else:
                _, number, outcome, ids, at_s, error = record
                put = by_number[number]  # type: ignore[index]
                put.outcome, put.ids = outcome, ids  # type: ignore[assignment]
                put.completed_s, put.error = at_s, error  # type: ignore[assignment]
        puts.extend(by_number.values())
    for path in sorted(folder.glob("*.reader.jsonl")):
        reader = path.name.removesuffix(".reader.jsonl")
        reads = history.reads[reader] = []
        history.starts[reader] = {}
        for record in _records(path):
            if record[0] == "start":
                history.starts[reader][int(record[1])] = int(record[2])  # type: ignore[call-overload]
            elif record[0] == "drained":
                history.complete.add(reader)
            else:
                _, at_s, messages = record
                reads.extend(Read(reader, p, i, t, at_s) for p, i, t in messages)  # type: ignore[union-attr,arg-type,misc]
    for read in history.reads.pop(final):
        history.final[read.partition].append(read)
    history.complete.discard(final)
    return history
