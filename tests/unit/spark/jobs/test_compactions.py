"""Files of an archive are replaced while others read them, and whatever is killed meanwhile."""

from __future__ import annotations

import contextlib
import itertools
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from pyspark_hqueue.jobs.compactions import finish_compactions, groups_of
from pyspark_hqueue.jobs.failures import JobError
from pyspark_hqueue.jobs.listing import archived_files
from pyspark_hqueue.jobs.manifest import (
    COMPACTING,
    CompactionRecord,
    Contents,
    Group,
    RoundRecord,
    contents_of,
)
from pyspark_hqueue.jobs.replay import archived_pieces
from tests.support.archives import DATE, DiskArchive, DiskFolder, Row

TOPICS = ("a", "b%2Fc")


class Killed(Exception):  # noqa: N818
    """As if the process had ended here."""


class Steps:
    """Lets what changes an archive do a number of steps, and no more."""

    def __init__(self, allowed: int | None = None) -> None:
        self.allowed = allowed
        self.done = 0

    def __call__(self) -> None:
        if self.allowed is not None and self.done >= self.allowed:
            raise Killed
        self.done += 1


def disk(path: Path, before: Callable[[], None] = lambda: None) -> Any:
    return DiskFolder(path, before)


def filled(path: Path, before: Callable[[], None] = lambda: None) -> DiskArchive:
    """An archive of four rounds; the first two were compacted before."""
    archive = DiskArchive(path)
    archive.add_round(*TOPICS)
    archive.add_round(*TOPICS)
    archive.compact()
    archive.add_round("a", "new")
    archive.add_round(*TOPICS, "new")
    return DiskArchive(path, before)


def by_arrow(path: Path) -> list[Row]:
    table = ds.dataset(path, format="parquet", partitioning="hive").to_table(["partition", "id"])
    return sorted(zip(table["partition"].to_pylist(), table["id"].to_pylist(), strict=True))


def by_duckdb(path: Path) -> list[Row]:
    with duckdb.connect() as database:
        files = f"{path}/date=*/topic=*/*.parquet"
        return sorted(
            database.execute("select partition, id from read_parquet(?)", [files]).fetchall()
        )


def pieces(archive: DiskArchive) -> dict[int, list[Row]]:
    return {piece.number: archive.replayed(piece) for piece in archived_pieces(archive.folder)}


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> int:
    """How many changes the compaction makes."""
    count = Steps()
    filled(tmp_path_factory.mktemp("whole") / "archive", count).compact()
    return count.done


def test_a_compaction_keeps_each_message_and_each_round(tmp_path: Path) -> None:
    archive = filled(tmp_path)
    rows, rounds = archive.listed(), pieces(archive)
    assert len(rows) == 54
    archive.compact()
    assert by_arrow(tmp_path) == by_duckdb(tmp_path) == archive.listed() == rows
    assert pieces(archive) == rounds
    folders = (tmp_path / f"date={DATE}").iterdir()
    assert [len(list(folder.iterdir())) for folder in folders] == [1, 1, 1]
    assert archive.folder.names(COMPACTING) == []
    archive.add_round("a")
    assert by_arrow(tmp_path) == archive.listed()
    assert [*pieces(archive)] == [0, 1, 2, 3, 4]


def test_a_compaction_that_is_killed_anywhere_doubles_nothing_and_loses_nothing(
    tmp_path: Path, steps: int
) -> None:
    marked = 0
    for allowed in range(steps):
        path = tmp_path / str(allowed)
        archive = filled(path, Steps(allowed))
        rows, rounds = archive.listed(), pieces(archive)
        with pytest.raises(Killed):
            archive.compact()
        again = DiskArchive(path)
        # By the records nobody notices.
        assert again.listed() == rows
        assert pieces(again) == rounds
        listed = [file.removeprefix(f"{path}/") for file in archived_files(str(path))]
        assert sorted(row for file in listed for row in again.rows(file)) == rows
        # Without them a reader sees what is there, or fails.
        if list(path.rglob("*-wait.parquet")):
            marked += 1
            with pytest.raises(pa.ArrowInvalid):
                by_arrow(path)
            with pytest.raises(duckdb.Error):
                by_duckdb(path)
        else:
            assert by_arrow(path) == by_duckdb(path) == rows
        added = again.add_round(*TOPICS)
        finish_compactions(again.folder)
        assert by_arrow(path) == by_duckdb(path) == sorted(rows + added)
        again.compact()
        assert by_arrow(path) == again.listed() == sorted(rows + added)
        assert again.folder.names(COMPACTING) == []
    assert 0 < marked < steps - 3


class Meddled:
    """Lets another run finish the compaction before a step of this one, and be killed after some
    steps of its own.
    """

    def __init__(self, path: Path, before: int, allowed: int) -> None:
        self._path = path
        self._before = before
        self._other = Steps(allowed)
        self._done = 0

    def __call__(self) -> None:
        if self._done == self._before:
            with contextlib.suppress(Killed):
                finish_compactions(disk(self._path, self._other))
        self._done += 1


def test_two_runs_that_finish_a_compaction_help_each_other(tmp_path: Path, steps: int) -> None:
    template = tmp_path / "template"
    filled(template)
    for first, second in itertools.product(range(4, steps, 2), range(0, steps, 4)):
        path = tmp_path / f"{first}-{second}"
        shutil.copytree(template, path)
        archive = DiskArchive(path, Meddled(path, first, second))
        rows = archive.listed()
        archive.compact()
        finish_compactions(disk(path))
        assert by_arrow(path) == rows, (first, second)
        assert archive.folder.names(COMPACTING) == []


class States:
    """What an archive's folder was after each change of a compaction."""

    def __init__(self, path: Path) -> None:
        self.states: list[dict[str, str]] = []
        self.rows: dict[str, list[Row] | None] = {}

        def keep() -> None:
            found = {}
            for name in DiskFolder(path).files():
                found[name] = "" if name.endswith(".parquet") else (path / name).read_text()
                if name.endswith(".parquet") and name not in self.rows:
                    wait = name.endswith("wait.parquet")
                    self.rows[name] = None if wait else archive.rows(name)
            self.states.append(found)

        archive = filled(path, keep)
        self.whole = archive.listed()
        archive.compact()
        keep()

    def readable(self, names: list[str], since: int) -> list[Row] | None:
        """What one has read who opened each of these files at any time since then; None where one
        of them could not be read at all.
        """
        found: list[Row] = []
        for name in names:
            rows = self.rows[name]
            if rows is None or not any(name in state for state in self.states[since:]):
                return None
            found += rows
        return sorted(found)


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> States:
    return States(tmp_path_factory.mktemp("states") / "archive")


def test_a_reader_that_lists_a_folder_in_parts_has_each_message_once_or_fails(
    states: States,
) -> None:
    """As HDFS and object stores list it: in the order of the names, some at a time."""
    folders = [f"date={DATE}/topic={topic}/" for topic in (*TOPICS, "new")]
    outcomes = {True: 0, False: 0}
    numbers = range(len(states.states))
    for folder in folders:
        names = sorted(name for name in states.rows if name.startswith(folder))
        whole = states.readable([n for n in names if n in states.states[0]], 0)
        for begin, end in itertools.combinations_with_replacement(numbers, 2):
            for cut in range(len(names) + 1):
                listed = [n for n in names[:cut] if n in states.states[begin]]
                listed += [n for n in names[cut:] if n in states.states[end]]
                found = states.readable(listed, end)
                outcomes[found is not None] += 1
                assert found is None or found == whole, (begin, end, cut)
    assert min(outcomes.values()) > 0


class MovingFolder:
    """The folder of an archive that gets on between two looks at it.

    The whole is listed in two looks, as a local disk does with many files: some names are in the
    first part, and others in the second, in no order.

    Args:
        states: what it was.
        at: the number of its state, look by look; it stays in the last one.
        late: which names are in the second part.
    """

    def __init__(self, states: States, at: Iterator[int], late: Callable[[str], object]) -> None:
        self._states = states
        self._at = at
        self._late = late
        self.state = 0

    def _look(self) -> dict[str, str]:
        self.state = next(self._at, self.state)
        return self._states.states[self.state]

    def names(self, name: str = "") -> list[str]:
        return sorted({path.partition("/")[0] for path in self._below(name, self._look())})

    def files(self, name: str = "") -> dict[str, int]:
        if name:
            return dict.fromkeys(self._below(name, self._look()), 1)
        found = [path for path in self._look() if not self._late(path)]
        found += [path for path in self._look() if self._late(path)]
        return dict.fromkeys(sorted(found), 1)

    def read(self, name: str) -> str | None:
        return self._look().get(name)

    @staticmethod
    def _below(name: str, files: dict[str, str]) -> list[str]:
        return [path[len(name) + 1 :] for path in sorted(files) if path.startswith(f"{name}/")]


@pytest.mark.parametrize("late", ["wait", r"/\d{8}-part", r"/\d{8}[.]\d{8}-"])
def test_a_reader_with_the_records_has_each_message_once_or_fails(
    states: States, late: str
) -> None:
    last = len(states.states) - 1
    looks = 13
    outcomes = {True: 0, False: 0}
    for first, second in itertools.combinations_with_replacement(range(looks), 2):
        for middle, end in itertools.combinations_with_replacement(range(0, last + 1, 2), 2):
            begin = middle if first == second else 0
            at = [begin] * first + [middle] * (second - first) + [end]
            folder: Any = MovingFolder(states, iter(at), re.compile(late).search)
            files = [*contents_of(folder).files]
            found = states.readable(files, folder.state)
            outcomes[found is not None] += 1
            assert found is None or found == states.whole, at
    assert min(outcomes.values()) > 0


@pytest.mark.parametrize("killed", [False, True])
def test_of_two_compactions_of_the_same_files_one_succeeds(tmp_path: Path, killed: bool) -> None:
    """The other one ends in between, or is killed when its record is written."""
    faster = filled(tmp_path, Steps(4 if killed else None))
    archive = DiskArchive(tmp_path)
    rows = archive.listed()
    slow = DiskArchive(tmp_path)
    write = slow._write

    def overtaken(*arguments: Any) -> Any:
        draft = write(*arguments)
        with contextlib.suppress(Killed):
            faster.compact()
        return draft

    slow._write = overtaken  # type: ignore[method-assign]
    with pytest.raises(JobError, match="another run"):
        slow.compact()
    archive.compact()
    assert by_arrow(tmp_path) == archive.listed() == rows
    assert archive.folder.names(COMPACTING) == []


def test_dates_that_are_deleted_stay_away(tmp_path: Path, steps: int) -> None:
    archive = filled(tmp_path, Steps(steps - 1))
    with pytest.raises(Killed):
        archive.compact()
    DiskFolder(tmp_path).delete(f"date={DATE}/topic=a")
    rows = by_arrow(tmp_path)
    assert archive.listed() == rows
    archive = DiskArchive(tmp_path)
    added = archive.add_round(*TOPICS)
    archive.compact()
    assert by_arrow(tmp_path) == archive.listed() == sorted(rows + added)


def contents(*compactions: CompactionRecord, there: Iterable[str]) -> Contents:
    return Contents([], list(compactions), dict.fromkeys(there, 1))


def test_files_of_a_compaction_that_were_deleted_are_left_out() -> None:
    group = Group("f", (0, 1), ("00000000-part", "00000001-part"), ("group=0/a", "group=0/b"))
    record = CompactionRecord(0, "x", (group,), {}, 2)
    first, second = record.swaps[0].files.values()
    assert [*contents(record, there=[first, second]).files] == [first, second]
    assert [*contents(record, there=[second]).files] == [second]
    assert [*contents(record, there=["f/00000000-part", first]).files] == []


def test_the_end_of_a_round_is_its_last_in_all_compactions() -> None:
    """Compactions may have had different folders of a round."""
    records = [
        CompactionRecord(0, "x", (), {0: {3: 50, 4: 99}, 1: {3: 7}}, 2),
        CompactionRecord(1, "y", (), {0: {3: 70, 4: 80}}, 2),
    ]
    for order in itertools.permutations(records):
        found = contents(*order, there=[])
        assert found.spans(3) == {0: (-1, 70), 1: (-1, 7)}
        assert found.spans(4) == {0: (70, 99)}
        assert found.spans(5) == {}


def sized(*sizes: int) -> Contents:
    """The contents of an archive whose rounds have one file each, of these sizes."""
    name = f"date={DATE}/topic=a/part.parquet"
    records = [RoundRecord(number, "x", (name,), 1, 1) for number in range(len(sizes))]
    places = [place for record in records for place in record.places.values()]
    return Contents(records, [], dict(zip(places, sizes, strict=True)))


@pytest.mark.parametrize(
    ("sizes", "together"),
    [
        ((10, 10, 10), [[0, 1, 2]]),
        ((40, 40, 40, 40), [[0, 1], [2, 3]]),
        ((10, 80, 10), [[0, 2]]),
        ((80, 75, 200), []),
        ((10,), []),
        ((60, 60, 10), [[1, 2]]),
    ],
)
def test_small_files_come_together_in_their_order(
    sizes: tuple[int, ...], together: list[list[int]]
) -> None:
    assert [[*group.rounds] for group in groups_of(sized(*sizes), 100)] == together


def test_all_files_are_written_again_if_that_is_wanted() -> None:
    found = groups_of(sized(10, 80, 200), 100, rewrite_all=True)
    assert [[*group.rounds] for group in found] == [[0, 1], [2]]
