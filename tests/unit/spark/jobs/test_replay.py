"""Which rounds of an archive a replay takes, while the archive grows beside it."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from pyspark_hqueue.jobs.manifest import ROUNDS, RoundRecord
from pyspark_hqueue.jobs.replay import Piece, archived_pieces

FILES = ("date=2026-01-31/topic=a/part-0.parquet", "date=2026-01-31/topic=b/part-1.parquet")
ROUND = RoundRecord(12, "00000012-abc", FILES, 30, 300)
NEXT = RoundRecord(13, "00000013-def", FILES, 20, 200)


class Disk:
    """A folder in memory. Before each look at it the archive may get some steps further."""

    def __init__(self, *records: RoundRecord, steps: Sequence[Sequence[int]] = ()) -> None:
        self.texts = dict.fromkeys([s for record in records for s in record.places], "")
        self.steps: list[Callable[[], None]] = []
        for record in records:
            self.steps.append(lambda record=record: self.publish(record))
            self.steps += [lambda move=move: self.move(*move) for move in record.places.items()]
        self.before = list(steps)
        self.looks = 0

    def publish(self, record: RoundRecord) -> None:
        text = json.dumps(dataclasses.asdict(record))
        self.texts[f"{ROUNDS}/{record.number:08d}.json"] = text

    def move(self, source: str, target: str) -> None:
        self.texts[target] = self.texts.pop(source)

    def look(self) -> None:
        for step in self.before[self.looks] if self.looks < len(self.before) else ():
            self.steps[step]()
        self.looks += 1

    def names(self, name: str) -> list[str]:
        self.look()
        return sorted({path.partition("/")[0] for path in self.below(name)})

    def files(self, name: str = "") -> dict[str, int]:
        self.look()
        return dict.fromkeys(self.below(name), 0)

    def read(self, name: str) -> str | None:
        self.look()
        return self.texts.get(name)

    def below(self, name: str) -> list[str]:
        prefix = f"{name}/" if name else ""
        return sorted(p.removeprefix(prefix) for p in self.texts if p.startswith(prefix))


def pieces_of(disk: Any) -> list[Piece]:
    return archived_pieces(disk)


def test_a_round_that_is_not_in_its_places_yet_ends_what_is_replayed() -> None:
    disk = Disk(ROUND, NEXT)
    disk.publish(ROUND)
    disk.publish(NEXT)
    for move in NEXT.places.items():
        disk.move(*move)
    assert pieces_of(disk) == []
    disk.steps[1]()
    assert pieces_of(disk) == []
    disk.steps[2]()
    assert [(piece.number, piece.messages) for piece in pieces_of(disk)] == [(12, 30), (13, 20)]


@pytest.mark.parametrize("at", [*itertools.combinations_with_replacement(range(5), 3)])
def test_a_round_is_replayed_wholly_or_not_at_all(at: tuple[int, ...]) -> None:
    """The archive publishes it and moves its files between any two looks at the folder."""
    disk = Disk(ROUND, steps=[[s for s, look in enumerate(at) if look == n] for n in range(5)])
    for piece in pieces_of(disk):
        assert piece.files == tuple(ROUND.places.values())
        assert piece.messages == ROUND.messages


def test_files_that_were_deleted_are_left_out_and_pass_nothing_over() -> None:
    disk = Disk(ROUND, NEXT)
    for step in disk.steps:
        step()
    kept, deleted = ROUND.places.values()
    del disk.texts[deleted]
    for place in NEXT.places.values():
        del disk.texts[place]
    assert pieces_of(disk) == [Piece(12, (kept,), 30), Piece(13, (), 0)]
