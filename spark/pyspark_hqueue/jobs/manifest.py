"""What an archive consists of, by the records that its runs have written."""

from __future__ import annotations

import dataclasses
import itertools
import json
from typing import Any

from pyspark_hqueue.jobs.folder import Folder

__all__ = [
    "HIDDEN",
    "RECORD",
    "ROUNDS",
    "STAGING",
    "RoundRecord",
    "archived_queue",
    "placed_rounds",
]

HIDDEN = "_hqueue"
RECORD = f"{HIDDEN}/archive.json"
ROUNDS = f"{HIDDEN}/rounds"
STAGING = f"{HIDDEN}/staging"


@dataclasses.dataclass(frozen=True)
class RoundRecord:
    """What a round has written: files as they were named aside, messages, and their bytes."""

    number: int
    attempt: str
    files: tuple[str, ...]
    messages: int
    bytes: int

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
        return cls(**{**fields, "files": tuple(fields["files"])})


def archived_queue(folder: Folder) -> dict[str, Any] | None:
    """What a folder is the archive of; None if it is not an archive."""
    text = folder.read(RECORD)
    return None if text is None else dict(json.loads(text))


def placed_rounds(folder: Folder) -> list[RoundRecord]:
    """The rounds of an archive in their order, up to the first that has files aside still.

    A file of a round that is recorded lies aside or in its place. So one that is not aside, looked
    for after its record was read, is found in its place from then on.
    """
    records = [
        RoundRecord.parse(folder.read(f"{ROUNDS}/{name}") or "")
        for name in folder.names(ROUNDS)
        if name.endswith(".json")
    ]
    aside = {f"{STAGING}/{name}" for name in folder.files(STAGING)}
    return list(itertools.takewhile(lambda record: aside.isdisjoint(record.places), records))
