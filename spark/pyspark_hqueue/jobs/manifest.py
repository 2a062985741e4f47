"""What an archive consists of, by the records that its runs have written.

    PATH/_hqueue/rounds/00000012.json          which files round 12 has written
    PATH/_hqueue/compactions/00000003.json     which files compaction 3 replaces, and by which
    PATH/_hqueue/staging/, compacting/         what both have written and not moved into its place

Each record is written once, before the first of its files is moved, and stays.
"""

from __future__ import annotations

import bisect
import collections
import dataclasses
import itertools
import json
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from hqueue import InvalidInputError

__all__ = [
    "COMPACTING",
    "COMPACTIONS",
    "HIDDEN",
    "RECORD",
    "ROUNDS",
    "STAGING",
    "ArchivedFolder",
    "CompactionRecord",
    "Contents",
    "Group",
    "RoundRecord",
    "Swap",
    "archived_queue",
    "contents_of",
    "placed_rounds",
    "recorded_compactions",
]

HIDDEN = "_hqueue"
RECORD = f"{HIDDEN}/archive.json"
ROUNDS = f"{HIDDEN}/rounds"
STAGING = f"{HIDDEN}/staging"
COMPACTIONS = f"{HIDDEN}/compactions"
COMPACTING = f"{HIDDEN}/compacting"


class ArchivedFolder(Protocol):
    """What reading the records needs of a folder; `pyspark_hqueue.jobs.folder.Folder` has it."""

    def names(self, name: str = "") -> list[str]:
        """What is directly in a folder; nothing if it does not exist."""

    def files(self, name: str = "") -> dict[str, int]:
        """All files below a folder, relative to it, and their sizes."""

    def read(self, name: str) -> str | None:
        """The text of a file; None if there is none."""


@dataclasses.dataclass(frozen=True)
class RoundRecord:
    """What a round has written: files as they were named aside, messages, and their bytes; and the
    first ID after the round in each of its partitions. An earlier version did not record the last.
    """

    number: int
    attempt: str
    files: tuple[str, ...]
    messages: int
    bytes: int
    stops: Mapping[int, int] | None = None

    @property
    def file_count(self) -> int:
        return len(self.files)

    @property
    def places(self) -> dict[str, str]:
        """Where each file lies that was written aside, and where it belongs."""
        found = {}
        for name in self.files:
            folder, _, file = name.rpartition("/")
            found[f"{STAGING}/{self.attempt}/{name}"] = f"{folder}/{self.number:08d}-{file}"
        return found

    @classmethod
    def parse(cls, text: str) -> RoundRecord:
        fields = json.loads(text)
        stops = fields.get("stops")
        if stops is not None:
            stops = {int(partition): stop for partition, stop in stops.items()}
        return cls(**{**fields, "files": tuple(fields["files"]), "stops": stops})


@dataclasses.dataclass(frozen=True)
class Group:
    """Files of one folder that are replaced together.

    Args:
        folder: its name in the archive.
        rounds: whose messages the files have.
        replaced: the files' names in the folder.
        files: what replaces them, as it was named aside; nothing before it is written.
    """

    folder: str
    rounds: tuple[int, ...]
    replaced: tuple[str, ...]
    files: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Swap:
    """How the files of a group are replaced: the marker and the new files with where they lie and
    where they belong, and the names of the old ones.

    In the order of names the old files come first, then the new ones, then the marker.
    """

    folder: str
    marker: tuple[str, str]
    files: dict[str, str]
    replaced: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class CompactionRecord:
    """What a compaction has written.

    Args:
        number: compactions are counted from 0 on.
        attempt: the folder in which the files lie before they are moved.
        groups: what is replaced by what.
        ends: the last ID of each round in the files of the groups, by partition and round. A round
            has what lies after the end of the one before it.
        messages: how many there are in the files.
    """

    number: int
    attempt: str
    groups: tuple[Group, ...]
    ends: Mapping[int, Mapping[int, int]]
    messages: int

    @property
    def swaps(self) -> list[Swap]:
        """How to make it true, group by group."""
        found = []
        for index, group in enumerate(self.groups):
            last = max(name[:8] for name in group.replaced)
            prefix = f"{group.folder}/{last}.{self.number:08d}-{index:05d}-"
            aside = f"{COMPACTING}/{self.attempt}"
            files = {
                f"{aside}/{name}": f"{prefix}{name.rpartition('/')[2]}" for name in group.files
            }
            marker = (f"{aside}/wait-{index:05d}", f"{prefix}wait.parquet")
            replaced = tuple(f"{group.folder}/{name}" for name in sorted(group.replaced))
            found.append(Swap(group.folder, marker, files, replaced))
        return found

    def text(self) -> str:
        """It as `parse` takes it."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def parse(cls, text: str) -> CompactionRecord:
        fields = json.loads(text)
        groups = tuple(
            Group(each["folder"], *(tuple(each[name]) for name in ("rounds", "replaced", "files")))
            for each in fields["groups"]
        )
        ends = {
            int(partition): {int(number): last for number, last in rounds.items()}
            for partition, rounds in fields["ends"].items()
        }
        return cls(**{**fields, "groups": groups, "ends": ends})


def archived_queue(folder: ArchivedFolder) -> dict[str, Any] | None:
    """What a folder is the archive of; None if it is not an archive.

    Raises:
        InvalidInputError: its record is damaged.
    """
    text = folder.read(RECORD)
    try:
        return None if text is None else dict(json.loads(text))
    except (TypeError, ValueError) as exc:
        raise InvalidInputError(
            "the record of the archive can't be read: put back the file, or give another folder",
            file=RECORD,
            reason=str(exc)[:200],
        ) from exc


def placed_rounds(folder: ArchivedFolder) -> list[RoundRecord]:
    """The rounds of an archive in their order, up to the first that has files aside still.

    A file of a round that is recorded lies aside or in its place. So one that is not aside, looked
    for after its record was read, is found in its place from then on, or in what has replaced it.
    """
    records = [RoundRecord.parse(text) for text in _records(folder, ROUNDS)]
    aside = {f"{STAGING}/{name}" for name in folder.files(STAGING)}
    return list(itertools.takewhile(lambda record: aside.isdisjoint(record.places), records))


def recorded_compactions(folder: ArchivedFolder) -> list[CompactionRecord]:
    """The compactions of an archive in their order, whether or not their files are in place."""
    return [CompactionRecord.parse(text) for text in _records(folder, COMPACTIONS)]


def _records(folder: ArchivedFolder, of: str) -> Iterable[str]:
    for name in folder.names(of):
        if name.endswith(".json"):
            yield folder.read(f"{of}/{name}") or ""


class Contents:
    """The files that have an archive's messages, each message once, at one moment.

    Files that were deleted since are left out.

    Args:
        rounds: the rounds whose files are in place.
        compactions: all that are recorded.
        there: the files of the archive, with their sizes.
    """

    def __init__(
        self,
        rounds: list[RoundRecord],
        compactions: list[CompactionRecord],
        there: Mapping[str, int],
    ) -> None:
        self.rounds = rounds
        self.next_compaction = compactions[-1].number + 1 if compactions else 0
        numbers: dict[str, tuple[int, ...]] = {}
        for each in rounds:
            numbers.update(dict.fromkeys(each.places.values(), (each.number,)))
        for record in compactions:
            for group, swap in zip(record.groups, record.swaps, strict=True):
                files = swap.files.values()
                # Old files are deleted when all new ones are there.
                if there.keys() >= {*files} or there.keys().isdisjoint(swap.replaced):
                    for name in swap.replaced:
                        numbers.pop(name, None)
                    numbers.update(dict.fromkeys(files, group.rounds))
        self.rounds_of = {name: numbers[name] for name in sorted(numbers.keys() & there.keys())}
        self.files = {name: there[name] for name in self.rounds_of}
        self._of_round: dict[int, list[str]] = collections.defaultdict(list)
        for name, of in self.rounds_of.items():
            for number in of:
                self._of_round[number].append(name)
        self._ends: dict[int, dict[int, int]] = collections.defaultdict(dict)
        for record in compactions:
            for partition, ends in record.ends.items():
                mine = self._ends[partition]
                for number, last in ends.items():
                    mine[number] = max(last, mine.get(number, last))
        self._in_order = {partition: sorted(ends) for partition, ends in self._ends.items()}

    def of_round(self, record: RoundRecord) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The files that have a round's messages: those with nothing else, and compacted ones."""
        own = {*record.places.values()}
        files = self._of_round[record.number]
        return tuple(f for f in files if f in own), tuple(f for f in files if f not in own)

    def ends(self, numbers: Iterable[int]) -> dict[int, dict[int, int]]:
        """The last IDs of these rounds in compacted files, by partition."""
        wanted = {*numbers}
        return {
            partition: {number: ends[number] for number in wanted & ends.keys()}
            for partition, ends in self._ends.items()
        }

    def spans(self, number: int) -> dict[int, tuple[int, int]]:
        """Where the messages of a round lie in compacted files: by partition, the ID after which
        they lie, and their last one. A partition without messages of the round is left out.
        """
        found = {}
        for partition, numbers in self._in_order.items():
            index = bisect.bisect_left(numbers, number)
            if index < len(numbers) and numbers[index] == number:
                ends = self._ends[partition]
                before = ends[numbers[index - 1]] if index else -1
                found[partition] = (before, ends[number])
        return found


def contents_of(folder: ArchivedFolder) -> Contents:
    """Look at an archive, which runs may be writing to and compacting meanwhile.

    It has all messages of the rounds that were in their places before, and perhaps some of later
    ones. A compaction that begins afterwards removes files: reading them fails then, and this can
    be asked again.
    """
    rounds = placed_rounds(folder)
    there = folder.files()  # After the rounds: a file that was aside before is here now.
    compactions = recorded_compactions(folder)  # After the files: they explain what is not there.
    missing = {
        swap.folder
        for record in compactions
        for swap in record.swaps
        if not there.keys() >= {*swap.files.values()}
    }
    for name in missing:  # A local disk may have listed a folder's new files before they came.
        there.update({f"{name}/{file}": size for file, size in folder.files(name).items()})
    return Contents(rounds, compactions, there)
