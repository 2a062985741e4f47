"""Archives on this machine's disk, written without Spark: what replacing their files rests on."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pyspark_hqueue.jobs.compactions import compact_by_date, groups_of
from pyspark_hqueue.jobs.manifest import (
    COMPACTING,
    RECORD,
    ROUNDS,
    CompactionRecord,
    Contents,
    Group,
    RoundRecord,
    contents_of,
)
from pyspark_hqueue.jobs.replay import Piece

__all__ = ["DATE", "DiskArchive", "DiskFolder", "Row"]

DATE = "2023-11-14"
_FIRST_ID = 1_700_000_000_000 << 15
_SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("sequence", pa.int16()),
        ("id", pa.int64()),
        ("value", pa.binary()),
    ]
)

Row = tuple[int, int]
"""A message by its partition and ID."""


class DiskFolder:
    """A folder as `pyspark_hqueue.jobs.folder.Folder` is one, without a JVM.

    Args:
        path: where it is.
        before: called before each change.
    """

    def __init__(self, path: Path, before: Callable[[], None] = lambda: None) -> None:
        self.path = path
        self._before = before

    def inside(self, name: str) -> str:
        return f"{self.path}/{name}"

    def names(self, name: str = "") -> list[str]:
        folder = self.path / name
        return sorted(os.listdir(folder)) if folder.exists() else []

    def files(self, name: str = "") -> dict[str, int]:
        folder = self.path / name
        found = [path for path in folder.rglob("*") if path.is_file()]
        return {str(path.relative_to(folder)): path.stat().st_size for path in sorted(found)}

    def read(self, name: str) -> str | None:
        path = self.path / name
        return path.read_text() if path.exists() else None

    def flush(self, name: str) -> None:
        assert self.names(name)

    def publish(self, name: str, text: str) -> bool:
        self._before()
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with path.open("x") as opened:
                opened.write(text)
        except FileExistsError:
            return False
        return True

    def move(self, source: str, target: str) -> bool:
        self._before()
        path = self.path / target
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            (self.path / source).rename(path)
        except FileNotFoundError:
            return False
        return True

    def delete(self, name: str) -> None:
        self._before()
        path = self.path / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


class DiskArchive:
    """An archive of a queue with two partitions.

    Args:
        path: its folder.
        before: called before each change of a compaction.
    """

    def __init__(self, path: Path, before: Callable[[], None] = lambda: None) -> None:
        self.path = path
        self.folder: Any = DiskFolder(path, before)
        if not self.folder.names():
            path.mkdir(exist_ok=True)
            DiskFolder(path).publish(RECORD, json.dumps({"queue": "events"}))

    def add_round(self, *topics: str, messages: int = 3, int96: bool = False) -> list[Row]:
        """Add a round with this many messages of each topic in each partition, one a millisecond.

        Its files have no columns ``key`` and ``headers``, and if `int96` the times as Spark writes
        them by default: both as an earlier version wrote them.
        """
        quiet = DiskFolder(self.path)
        number = len(quiet.names(ROUNDS))
        files = []
        rows = []
        for index, topic in enumerate(topics):
            name = f"date={DATE}/topic={topic}/part-0.parquet"
            place = self.path / name.replace("part", f"{number:08d}-part")
            place.parent.mkdir(parents=True, exist_ok=True)
            mine = [
                (partition, _FIRST_ID + ((number * 100_000 + n) << 15) + index)
                for partition in range(2)
                for n in range(messages)
            ]
            pq.write_table(_table(mine), place, use_deprecated_int96_timestamps=int96)
            files.append(name)
            rows += mine
        record = RoundRecord(number, f"{number:08d}-abc", tuple(files), len(rows), len(rows))
        quiet.publish(f"{ROUNDS}/{number:08d}.json", json.dumps(dataclasses.asdict(record)))
        return rows

    def compact(self, target_bytes: int = 1 << 30) -> None:
        """Compact it, as `Compact.run` does with Spark."""
        compact_by_date(
            self.folder, lambda contents: groups_of(contents, target_bytes), self._write
        )

    def _write(self, contents: Contents, number: int, groups: list[Group]) -> CompactionRecord:
        attempt = f"{number:08d}-{os.urandom(6).hex()}"
        ends: dict[int, dict[int, int]] = {}
        messages = 0
        for index, group in enumerate(groups):
            rows = []
            for name in group.replaced:
                path = f"{group.folder}/{name}"
                mine = self.rows(path)
                rows += mine
                if len(contents.rounds_of[path]) == 1:
                    [round_] = contents.rounds_of[path]
                    for partition, id_ in mine:
                        known = ends.setdefault(partition, {})
                        known[round_] = max(id_, known.get(round_, id_))
            messages += len(rows)
            file = self.path / COMPACTING / attempt / f"group={index}" / "part-0.parquet"
            file.parent.mkdir(parents=True)
            pq.write_table(_table(rows), file)
        return CompactionRecord(number, attempt, tuple(groups), ends, messages)

    def rows(self, name: str) -> list[Row]:
        """The messages of one file."""
        table = pq.ParquetFile(self.path / name).read(columns=["partition", "id"])
        return sorted(zip(table["partition"].to_pylist(), table["id"].to_pylist(), strict=True))

    def listed(self) -> list[Row]:
        """The messages of the archive, by its records."""
        return sorted(row for name in contents_of(self.folder).files for row in self.rows(name))

    def replayed(self, piece: Piece) -> list[Row]:
        """The messages of a piece, as a replay reads them."""
        found = [row for name in piece.files for row in self.rows(name)]
        for name in piece.compacted:
            for partition, id_ in self.rows(name):
                behind, last = piece.spans.get(partition, (0, 0))
                if behind < id_ <= last:
                    found.append((partition, id_))
        return sorted(found)


def _table(rows: list[Row]) -> pa.Table:
    times = [dt.datetime.fromtimestamp((id_ >> 15) / 1000, dt.timezone.utc) for _, id_ in rows]
    ids = [id_ for _, id_ in rows]
    columns = [
        [partition for partition, _ in rows],
        times,
        [id_ & 0x7FFF for id_ in ids],
        ids,
        [b"%d" % id_ for id_ in ids],
    ]
    table = pa.table(columns, schema=_SCHEMA)
    return table.take(pc.sort_indices(table, [("id", "ascending"), ("partition", "ascending")]))
