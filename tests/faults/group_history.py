"""What the consumers of a group write down, and how it is read again. As `history`."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from .record_files import Outcome, RecordFile, now_s, records

__all__ = ["GroupHistory", "GroupRecorder", "Handed", "Write", "load_group", "owners"]

CLAIM, COMMIT = "claim", "commit"


@dataclasses.dataclass(slots=True)
class Write:
    """A change of the group's offset in a partition, as it was tried.

    Args:
        process: the process of the consumer.
        consumer: its ID.
        kind: `CLAIM` when it takes the partition over, `COMMIT` when it commits.
        partition: the partition.
        next: the offset.
        began_s: before it was sent.
        claim: for a commit: the version of the consumer's last take-over of the partition.
        version: what the offset's record has had since; None if it did not count, or nobody knows.
            They count up from one write to the next, of any writer.
        outcome: ``fail`` if it was refused.
        ended_s: when the outcome was known.
    """

    process: str
    consumer: str
    kind: str
    partition: int
    next: int
    began_s: float
    claim: int | None = None
    version: int | None = None
    outcome: Outcome = "unknown"
    ended_s: float | None = None


class Handed(NamedTuple):
    """Messages of a partition that a consumer was handed, in their order."""

    process: str
    consumer: str
    partition: int
    claim: int
    """The version of the take-over by which it has the partition."""
    messages: list[tuple[int, str]]
    """The ID and the token of each."""
    began_s: float
    """When it asked for them."""
    at_s: float


@dataclasses.dataclass(slots=True)
class GroupHistory:
    """Everything that the consumers of a group did, and were handed."""

    writes: list[Write] = dataclasses.field(default_factory=list)
    handed: list[Handed] = dataclasses.field(default_factory=list)


class GroupRecorder:
    """Writes down what the consumers of one process do. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self._file = RecordFile(path)

    def trying(
        self,
        number: int,
        consumer: str,
        kind: str,
        moves: Mapping[int, tuple[int, int | None]],
    ) -> None:
        """Offsets are about to be written: by partition the next ID, and the version of the
        consumer's last take-over.
        """
        self._file.write("trying", number, consumer, kind, list(moves.items()), now_s())

    def written(self, number: int, versions: Mapping[int, int]) -> None:
        """These were written, and have these versions; the others were refused."""
        self._file.write("written", number, list(versions.items()), now_s())

    def handed(
        self,
        consumer: str,
        claim: int,
        began_s: float,
        messages: Iterable[tuple[int, int, str]],
    ) -> None:
        """Messages of one partition were handed out, which had been asked for at that time."""
        self._file.write("handed", consumer, claim, began_s, list(messages), now_s())


def load_group(folder: Path) -> GroupHistory:
    """Put the files of a run's consumers together: ``<name>.consumer.jsonl``."""
    history = GroupHistory()
    for path in sorted(folder.glob("*.consumer.jsonl")):
        for found in _read(path):
            if isinstance(found, Handed):
                history.handed.append(found)
            else:
                history.writes.append(found)
    return history


def owners(folder: Path) -> dict[int, str]:
    """The process of the consumer that took each partition over last, as far as it is known."""
    writes = load_group(folder).writes
    claims = [write for write in writes if write.kind == CLAIM and write.version is not None]
    in_order = sorted(claims, key=lambda claim: claim.version or 0)
    return {claim.partition: claim.process for claim in in_order}


def _read(path: Path) -> Iterator[Write | Handed]:
    process = path.name.removesuffix(".consumer.jsonl")
    tried: dict[int, dict[int, Write]] = {}
    for kind, *record in records(path):
        if kind == "handed":
            consumer, claim, began_s, messages, at_s = record
            given = [(id_, sys.intern(token)) for _, id_, token in messages]
            yield Handed(process, consumer, messages[0][0], claim, given, began_s, at_s)
        elif kind == "trying":
            number, consumer, what, moves, began_s = record
            tried[number] = {
                partition: Write(process, consumer, what, partition, next_id, began_s, claim)
                for partition, (next_id, claim) in moves
            }
            yield from tried[number].values()
        else:
            number, versions, at_s = record
            found = dict(versions)
            for partition, write in tried[number].items():
                write.version, write.ended_s = found.get(partition), at_s
                write.outcome = "fail" if write.version is None else "ok"
