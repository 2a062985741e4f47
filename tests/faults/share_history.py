"""What the consumers of share groups write down, and how it is read again. As `history`."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from .history import Put, puts_of
from .record_files import RecordFile, now_s, records

__all__ = [
    "ACKNOWLEDGE",
    "DELIVERIES_MAX",
    "FINAL",
    "GROUPS",
    "KEYED",
    "LATER",
    "LOCK_S",
    "LOOSE",
    "REASON",
    "REJECT",
    "RELEASE",
    "RENEW",
    "Answer",
    "Handed",
    "Letter",
    "Logged",
    "ShareHistory",
    "ShareRecorder",
    "load_shares",
]

LOOSE, KEYED = "loose", "keyed"
GROUPS = (LOOSE, KEYED)
"""The share groups of a run: a ``keyed`` one keeps the order of each key."""

DELIVERIES_MAX = 5
LOCK_S = 4.0
"""Of both groups, as their options are."""

REASON = "refused by chance"
"""Why programs reject messages."""

ACKNOWLEDGE, RELEASE, LATER = "acknowledge", "release", "later"
REJECT, RENEW = "reject", "renew"
FINAL = (ACKNOWLEDGE, REJECT)
"""The answers after which a group is done with a message."""

Place = tuple[int, int]
"""The partition and the ID of a message."""


@dataclasses.dataclass(slots=True)
class Answer:
    """What a program said of a message.

    Args:
        kind: what.
        at_s: before it said so.
        written_s: from when to when a commit took by which the answer was written at the latest;
            None if no commit is known that succeeded.
    """

    kind: str
    at_s: float
    written_s: tuple[float, float] | None = None


@dataclasses.dataclass(slots=True)
class Handed:
    """A message as a program was handed it.

    Args:
        process: the process of the consumer.
        consumer: its ID.
        group: the group's name.
        place: the partition and the ID of the message.
        token: what tells the message from all others.
        deliveries: how often it was delivered, as the message says.
        asked_s: when the program asked for messages.
        at_s: when it had this one.
        holds_s: for so long from `asked_s` on nobody else may have the message, unless it is
            answered.
        wall_ms: the clock on the wall when it had it, in milliseconds since the epoch.
        answers: what it said of the message, in order.
        left_s: when it began to close the consumer, if it had not said anything final before.
    """

    process: str
    consumer: str
    group: str
    place: Place
    token: str
    deliveries: int
    asked_s: float
    at_s: float
    holds_s: float
    wall_ms: int
    answers: list[Answer] = dataclasses.field(default_factory=list)
    left_s: float | None = None


class Logged(NamedTuple):
    """A message as it lies in the log."""

    token: str
    key: str | None
    """In hexadecimal digits."""
    due_ms: int | None
    """When share groups deliver it at the earliest, in milliseconds since the epoch."""


class Letter(NamedTuple):
    """A dead letter of a group."""

    reason: str
    attempts: int


@dataclasses.dataclass(slots=True)
class ShareHistory:
    """Everything that was put for the share groups of a run, and what they did with it."""

    puts: list[Put] = dataclasses.field(default_factory=list)
    handed: list[Handed] = dataclasses.field(default_factory=list)
    final: dict[Place, Logged] = dataclasses.field(default_factory=dict)
    """What lies in the log at the end."""
    letters: dict[str, dict[Place, Letter]] = dataclasses.field(default_factory=dict)
    """By group: the dead letters at the end, by where their originals lie."""


class ShareRecorder:
    """Writes down what the programs of one process do, or what there is at the end. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self._file = RecordFile(path)

    def handed(
        self,
        consumer: str,
        group: str,
        *,
        asked_s: float,
        holds_s: float,
        wall_ms: int,
        messages: Iterable[tuple[int, int, str, int]],
    ) -> None:
        """A program has got messages: partition, ID, token and deliveries of each."""
        self._file.write(
            "handed", consumer, group, asked_s, holds_s, wall_ms, list(messages), now_s()
        )

    def answering(self, consumer: str, kind: str, places: Iterable[Place]) -> None:
        """A program is about to say something of messages that it has."""
        self._file.write("answering", consumer, kind, list(places), now_s())

    def committed(self, consumer: str, began_s: float) -> None:
        """A commit that began at this time has written all that was said before."""
        self._file.write("committed", consumer, began_s, now_s())

    def leaving(self, consumer: str) -> None:
        """A program is about to close a consumer."""
        self._file.write("leaving", consumer, now_s())

    def logged(self, place: Place, message: Logged) -> None:
        """A message lies in the log at the end."""
        self._file.write("logged", *place, *message)

    def letter(self, group: str, place: Place, letter: Letter) -> None:
        """A message is a dead letter of a group at the end."""
        self._file.write("letter", group, *place, *letter)


def load_shares(folder: Path) -> ShareHistory:
    """Put the files of a run together: ``<name>.supplier.jsonl``, ``<name>.sharer.jsonl``, and what
    there was at the end, ``<name>.shares.jsonl``.
    """
    history = ShareHistory(letters={group: {} for group in GROUPS})
    for path in sorted(folder.glob("*.shares.jsonl")):
        for kind, *record in records(path):
            if kind == "logged":
                partition, id_, token, *rest = record
                history.final[partition, id_] = Logged(sys.intern(token), *rest)
            else:
                group, partition, id_, *rest = record
                history.letters[group][partition, id_] = Letter(*rest)
    for path in sorted(folder.glob("*.supplier.jsonl")):
        history.puts += puts_of(path.name.removesuffix(".supplier.jsonl"), path)
    for path in sorted(folder.glob("*.sharer.jsonl")):
        history.handed += _handed(path)
    return history


def _handed(path: Path) -> Iterator[Handed]:
    process = path.name.removesuffix(".sharer.jsonl")
    has: dict[tuple[str, int, int], Handed] = {}
    """What each consumer was handed last of each message."""
    said: dict[str, list[Answer]] = {}
    """By consumer: its answers that no commit is known to have written."""
    for kind, consumer, *record in records(path):
        if kind == "handed":
            group, asked_s, holds_s, wall_ms, messages, at_s = record
            for partition, id_, token, deliveries in messages:
                handed = has[consumer, partition, id_] = Handed(
                    process,
                    consumer,
                    group,
                    (partition, id_),
                    sys.intern(token),
                    deliveries,
                    asked_s,
                    at_s,
                    holds_s,
                    wall_ms,
                )
                yield handed
        elif kind == "answering":
            what, places, at_s = record
            for partition, id_ in places:
                answer = Answer(what, at_s)
                has[consumer, partition, id_].answers.append(answer)
                said.setdefault(consumer, []).append(answer)
        elif kind == "committed":
            began_s, ended_s = record
            for answer in said.pop(consumer, ()):
                answer.written_s = began_s, ended_s
        else:
            (left_s,) = record
            for (of, *_), handed in has.items():
                if of == consumer:
                    handed.left_s = left_s
