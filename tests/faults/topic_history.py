"""What publishers and listeners of hubs write down, and how it is read again. As `history`."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from .record_files import Outcome, RecordFile, now_s, records

__all__ = [
    "TOPICS",
    "Attached",
    "Cursor",
    "Given",
    "Publish",
    "TopicHistory",
    "TopicRecorder",
    "load_topics",
    "token_of",
]

TOPICS = tuple(f"t{number}" for number in range(6))


def token_of(value: bytes) -> str:
    """What tells a message from all others: its value begins with it."""
    return value.partition(b" ")[0].decode(errors="replace")


@dataclasses.dataclass(slots=True)
class Publish:
    """Messages of a topic that a publisher tried to publish together.

    Args:
        process: the publisher's.
        number: of the process's publishes, in the order in which it made them.
        topic: the topic.
        tokens: of the messages.
        first: the first message's number, if its publisher numbers them.
        outcome: ``unknown`` also for what was under way when the process was killed.
        ids: the IDs that it got, of the last messages.
        began_s: before it was tried.
        ended_s: when it was known what became of it; None if it never was.
    """

    process: str
    number: int
    topic: str
    tokens: list[str]
    first: int | None = None
    outcome: Outcome = "unknown"
    ids: list[int] = dataclasses.field(default_factory=list)
    began_s: float = 0.0
    ended_s: float | None = None


class Attached(NamedTuple):
    """A hub said where a subscription is: its cursor."""

    process: str
    subscriber: str
    topic: str
    consumed: int
    began_s: float
    """Before the hub was asked."""
    ended_s: float


class Given(NamedTuple):
    """Messages that a listener was given in one call."""

    process: str
    subscriber: str
    topic: str
    messages: list[tuple[int, str]]
    done: bool
    """Whether it was done with them; else it wanted them again."""
    at_s: float


class Cursor(NamedTuple):
    """A stored cursor, as it was seen."""

    subscriber: str
    topic: str
    consumed: int
    at_s: float


@dataclasses.dataclass(slots=True)
class TopicHistory:
    """Everything that was tried with topics, and seen of them."""

    publishes: list[Publish] = dataclasses.field(default_factory=list)
    attached: list[Attached] = dataclasses.field(default_factory=list)
    given: list[Given] = dataclasses.field(default_factory=list)
    cursors: list[Cursor] = dataclasses.field(default_factory=list)
    final: dict[str, list[tuple[int, str]]] = dataclasses.field(default_factory=dict)
    """By topic: the ID and the token of each message, as they lie in its ranges."""
    findings: list[str] = dataclasses.field(default_factory=list)
    """What `Queue.verify` found to be wrong, with the topics' ranges."""


class TopicRecorder:
    """Writes down what one process does. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self._file = RecordFile(path)

    def invoke(
        self, number: int, topic: str, tokens: Sequence[str], first: int | None = None
    ) -> None:
        """Messages are about to be published."""
        self._file.write("invoke", number, topic, list(tokens), first, now_s())

    def complete(self, number: int, outcome: Outcome, ids: Iterable[int] = ()) -> None:
        """It is known what became of them."""
        self._file.write("complete", number, outcome, list(ids), now_s())

    def attached(self, subscriber: str, topic: str, consumed: int, began_s: float) -> None:
        """A hub, asked at that time, said where a subscription is."""
        self._file.write("attached", subscriber, topic, consumed, began_s, now_s())

    def given(
        self, subscriber: str, topic: str, messages: Iterable[tuple[int, str]], done: bool
    ) -> None:
        """A listener was given messages, and is about to answer."""
        self._file.write("given", subscriber, topic, list(messages), done, now_s())

    def cursor(self, subscriber: str, topic: str, consumed: int) -> None:
        """A stored cursor was seen."""
        self._file.write("cursor", subscriber, topic, consumed, now_s())


def load_topics(
    folder: Path, final: Mapping[str, list[tuple[int, str]]], findings: Iterable[str]
) -> TopicHistory:
    """Put the files of a run together: ``<name>.publisher.jsonl``, and so on."""
    history = TopicHistory(final=dict(final), findings=list(findings))
    for path in sorted(folder.glob("*.publisher.jsonl")):
        history.publishes += _publishes(path.name.removesuffix(".publisher.jsonl"), path)
    for path in sorted((*folder.glob("*.listener.jsonl"), *folder.glob("*.cursors.jsonl"))):
        process = path.name.removesuffix(".listener.jsonl")
        for kind, *record in records(path):
            if kind == "attached":
                history.attached.append(Attached(process, *record))
            elif kind == "given":
                subscriber, topic, messages, done, at_s = record
                pairs = [(id_, token) for id_, token in messages]
                history.given.append(Given(process, subscriber, topic, pairs, done, at_s))
            else:
                history.cursors.append(Cursor(*record))
    history.given.sort(key=lambda given: given.at_s)
    history.attached.sort(key=lambda attached: attached.ended_s)
    history.cursors.sort(key=lambda cursor: cursor.at_s)
    return history


def _publishes(process: str, path: Path) -> Iterable[Publish]:
    by_number: dict[int, Publish] = collections.OrderedDict()
    for kind, number, *record in records(path):
        if kind == "invoke":
            topic, tokens, first, began_s = record
            by_number[number] = Publish(process, number, topic, tokens, first, began_s=began_s)
        else:
            known = by_number[number]
            known.outcome, known.ids, known.ended_s = record
    return by_number.values()
