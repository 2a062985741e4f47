"""What the processes of a run write down: the only evidence that the checker sees.

One file a process, JSON lines, flushed line by line: a put is written down before it is tried and
again when its outcome is known, so that a killed process leaves no put unmentioned. Times are
seconds of the machine's boot clock, which all processes share.
"""

from __future__ import annotations

import collections
import dataclasses
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from .group_history import GroupHistory, load_group
from .record_files import Outcome, RecordFile, now_s, records

__all__ = [
    "Checkpoint",
    "Delivery",
    "History",
    "Pass",
    "Put",
    "Read",
    "Recorder",
    "View",
    "load",
    "now_s",
    "puts_of",
]


@dataclasses.dataclass(slots=True)
class Put:
    """One append that a producer tried: one or more messages, in their order.

    Args:
        producer: its name.
        number: the puts of a producer are numbered in the order in which it made them.
        tokens: what tells the messages apart: `messages.token_of` them.
        partition: where they should go; None if the queue should choose.
        invoked_s: when it began.
        completed_s: when its outcome was known; None if it never was.
        outcome: `unknown` also for what was under way when the producer was killed.
        ids: the IDs that the producer got.
        error: the error that it got instead.
    """

    producer: str
    number: int
    tokens: list[str]
    partition: int | None
    invoked_s: float
    completed_s: float | None = None
    outcome: Outcome = "unknown"
    ids: list[int] = dataclasses.field(default_factory=list)
    error: str = ""


class Read(NamedTuple):
    """One message as a reader got it."""

    partition: int
    id: int
    token: str
    at_s: float


@dataclasses.dataclass(slots=True)
class Pass:
    """One scan that met the end of the log: when it began and ended, and how many messages its
    view had read by then.
    """

    began_s: float
    ended_s: float
    reads: int


@dataclasses.dataclass(slots=True)
class View:
    """What one reader saw from certain IDs on, in one scan or in several that went on from one
    another.
    """

    reader: str
    starts: dict[int, int]
    """By partition: the ID from which it should read."""
    reads: list[Read] = dataclasses.field(default_factory=list)
    passes: list[Pass] = dataclasses.field(default_factory=list)


class Delivery(NamedTuple):
    """Some messages of a partition as a subscriber was given them."""

    subscriber: str
    partition: int
    messages: list[tuple[int, str]]
    """The ID and the token of each."""
    done: bool
    """Whether it was done with them; else it wanted them again."""
    at_s: float
    """Right before it answered."""


class Checkpoint(NamedTuple):
    """A change of a subscriber's checkpoint, as it was seen."""

    subscriber: str
    partition: int
    next: int
    at_s: float


@dataclasses.dataclass(slots=True)
class History:
    """Everything that was tried and seen in a run."""

    puts: list[Put]
    views: list[View]
    final: dict[int, list[Read]]
    """By partition: what one last reader read from the first message to the last."""
    counts: dict[int, int]
    """By partition: how many messages its newest header counts."""
    findings: list[str]
    """What in the log's bytes was found to be broken."""
    deposed: list[tuple[float, float]] = dataclasses.field(default_factory=list)
    """When a region server may have answered that had lost its regions and not noticed."""
    deliveries: list[Delivery] = dataclasses.field(default_factory=list)
    checkpoints: list[Checkpoint] = dataclasses.field(default_factory=list)
    group: GroupHistory = dataclasses.field(default_factory=GroupHistory)


class Recorder:
    """Writes one process's history."""

    def __init__(self, path: Path) -> None:
        self._file = RecordFile(path)

    def invoke(self, put: Put) -> None:
        """A put is about to be tried."""
        self._file.write("invoke", put.number, put.tokens, put.partition, now_s())

    def complete(self, number: int, outcome: Outcome, ids: Iterable[int], error: str = "") -> None:
        """The outcome of a put is known."""
        self._file.write("complete", number, outcome, list(ids), now_s(), error)

    def view(self, starts: Mapping[int, int]) -> None:
        """From now on messages are read from these IDs on, by partition."""
        self._file.write("view", list(starts.items()))

    def read(self, messages: Iterable[tuple[int, int, str]]) -> None:
        """Messages were read: partition, ID and token of each."""
        self._file.write("read", now_s(), list(messages))

    def ended(self, began_s: float) -> None:
        """A scan that had begun at this time has met the end of the log."""
        self._file.write("ended", began_s, now_s())

    def delivered(
        self, subscriber: str, done: bool, messages: Iterable[tuple[int, int, str]]
    ) -> None:
        """A subscriber was given messages of a partition, and is about to answer."""
        self._file.write("delivered", subscriber, list(messages), done, now_s())

    def checkpoint(self, subscriber: str, partition: int, next_id: int) -> None:
        """A subscriber's checkpoint has changed."""
        self._file.write("checkpoint", subscriber, partition, next_id, now_s())

    def broken(self, text: str) -> None:
        """The log was found to be broken."""
        self._file.write("broken", text)


def load(folder: Path, final: str, counts: dict[int, int], findings: Iterable[str] = ()) -> History:
    """Put the files of a run together.

    Args:
        folder: where the files are: ``<name>.producer.jsonl``, and so on.
        final: the name of the reader that read everything at the end.
        counts: what the newest header of each partition counts.
        findings: what was found to be broken.
    """
    history = History([], [], collections.defaultdict(list), counts, list(findings))
    for path in sorted(folder.glob("*.producer.jsonl")):
        history.puts.extend(puts_of(path.name.removesuffix(".producer.jsonl"), path))
    for path in sorted(folder.glob("*.reader.jsonl")):
        reader = path.name.removesuffix(".reader.jsonl")
        views = list(_views(reader, path, history.findings))
        if reader == final:
            for read in (read for view in views for read in view.reads):
                history.final[read.partition].append(read)
        else:
            history.views.extend(views)
    for path in sorted((*folder.glob("*.subscriber.jsonl"), *folder.glob("*.checkpoints.jsonl"))):
        _load_deliveries(path, history)
    history.group = load_group(folder)
    return history


def puts_of(producer: str, path: Path) -> Iterable[Put]:
    """The puts in a producer's file, in their order."""
    by_number: dict[int, Put] = {}
    for kind, number, *record in records(path):
        if kind == "invoke":
            tokens, partition, at_s = record
            by_number[number] = Put(
                producer, number, [sys.intern(token) for token in tokens], partition, at_s
            )
        else:
            put = by_number[number]
            put.outcome, put.ids, put.completed_s, put.error = record
    return by_number.values()


def _load_deliveries(path: Path, history: History) -> None:
    for kind, *record in records(path):
        if kind == "delivered":
            subscriber, messages, done, at_s = record
            given = [(id_, sys.intern(token)) for _, id_, token in messages]
            history.deliveries.append(Delivery(subscriber, messages[0][0], given, done, at_s))
        elif kind == "checkpoint":
            history.checkpoints.append(Checkpoint(*record))
        else:
            history.findings.append(f"{path.name}: {record[0]}")


def _views(reader: str, path: Path, findings: list[str]) -> Iterator[View]:
    view: View | None = None
    for kind, *record in records(path):
        if kind == "view":
            if view is not None:
                yield view
            view = View(reader, dict(record[0]))
        elif kind == "broken":
            findings.append(f"{reader}: {record[0]}")
        elif view is not None:
            if kind == "ended":
                view.passes.append(Pass(record[0], record[1], len(view.reads)))
            else:
                at_s, messages = record
                view.reads.extend(Read(p, i, sys.intern(t), at_s) for p, i, t in messages)
    if view is not None:
        yield view
