"""How small files of an archive are replaced by fewer, while others read them.

    PATH/date=2026-01-31/topic=clicks/00000012.00000003-00000-part-….parquet
    PATH/_hqueue/compactions/00000003.json     which files compaction 3 replaces, and by which
    PATH/_hqueue/compacting/00000003-…/        what a try of it has written

A compaction takes one date. It writes the new files aside, names them in its record, and then
replaces the old files, one group of a folder after the other. The record is written once, under
the next number: so of two runs that would replace the same files one succeeds. Files are replaced
by the record alone, so the next run after a crash finishes that.

No file system can replace several files at once. So a group is replaced behind a marker: a file
that is named like the others, and is not a Parquet file.

1. The marker is put into the folder.
2. The new files are.
3. The old files are deleted.
4. The marker is.

A reader that lists the folder before finds the old files, afterwards the new ones, and meanwhile
the marker, which it can't read. One that has listed the old files and opens them later finds them,
or fails. It never has a message twice or misses one. That holds for file systems that list a folder
in several parts, too, if they list it in the order of the names: old files, new ones, marker.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

from hqueue import HQueueError
from hqueue.settings.numbers import whole_number
from pyspark_hqueue.jobs.failures import JobError
from pyspark_hqueue.jobs.manifest import (
    COMPACTING,
    COMPACTIONS,
    CompactionRecord,
    Contents,
    Group,
    Swap,
    contents_of,
    recorded_compactions,
)

if TYPE_CHECKING:
    from pyspark_hqueue.jobs.folder import Folder

__all__ = ["compact_by_date", "finish_compactions", "groups_of"]

MARKER = (
    "A compaction is replacing files of this folder, and this file goes when it is done: read the "
    "folder again then. If the compaction was killed, `hqueue pipeline compact` finishes it.\n"
)
_ANOTHER_RUN = "another run compacts this archive: wait until it ends"
_SMALL = 3 / 4


def groups_of(contents: Contents, target_bytes: int, *, rewrite_all: bool = False) -> list[Group]:
    """Which files of an archive should become one.

    Files of a folder that follow each other in time come together until they have the target's
    size; files of three quarters of it or more are left alone.

    Args:
        contents: the archive's files.
        target_bytes: the size that files should have.
        rewrite_all: also write files again that are large enough or alone in their folder.
    """
    found = []
    for folder, paths in itertools.groupby(contents.files, lambda path: path.rpartition("/")[0]):
        chosen: list[str] = []
        size = 0
        groups = []
        for path in paths:
            bytes_ = contents.files[path]
            if bytes_ >= target_bytes * _SMALL and not rewrite_all:
                continue
            if chosen and size + bytes_ > target_bytes:
                groups.append(chosen)
                chosen, size = [], 0
            chosen.append(path)
            size += bytes_
        groups.append(chosen)
        for each in groups:
            if len(each) > 1 or (each and rewrite_all):
                rounds = {number for path in each for number in contents.rounds_of[path]}
                names = tuple(path.rpartition("/")[2] for path in each)
                found.append(Group(folder, tuple(sorted(rounds)), names))
    return found


def compact_by_date(
    folder: Folder,
    choose: Callable[[Contents], list[Group]],
    write: Callable[[Contents, int, list[Group]], CompactionRecord],
    on_compaction: Callable[[CompactionRecord], None] | None = None,
) -> None:
    """Replace files, date by date, after what a run that was killed has left.

    Args:
        folder: the archive's.
        choose: says which files are replaced.
        write: writes what replaces the groups of a date into the folder of its attempt, as
            ``group=0/….parquet`` and so on. The record that it returns names no files yet, and only
            the ends of rounds that have files of their own.
        on_compaction: called after each date.

    Raises:
        JobError: another run compacts the archive.
        HQueueError: what `write` raised.
    """
    finish_compactions(folder)
    contents = contents_of(folder)
    dates = itertools.groupby(choose(contents), lambda group: group.folder.partition("/")[0])
    for number, (_, groups) in enumerate(dates, contents.next_compaction):
        name = f"{COMPACTIONS}/{number:08d}.json"
        try:
            record = _prepared(folder, contents, write(contents, number, list(groups)))
            folder.flush(f"{COMPACTING}/{record.attempt}")
            published = folder.publish(name, record.text())
        except (HQueueError, Py4JError, OSError) as exc:
            if folder.read(name) is None:
                raise
            # A faster run has deleted what this one was writing.
            raise JobError(_ANOTHER_RUN) from exc
        if not published:
            folder.delete(f"{COMPACTING}/{record.attempt}")
            raise JobError(_ANOTHER_RUN)
        _replace(folder, record)
        if on_compaction is not None:
            on_compaction(record)
    finish_compactions(folder)  # Nothing but what runs have written that were killed before.


def _prepared(folder: Folder, contents: Contents, draft: CompactionRecord) -> CompactionRecord:
    """A record with the files that were written, and with the ends of rounds that were compacted
    before. The markers are written beside the files.
    """
    written: dict[int, list[str]] = {}
    for name in folder.files(f"{COMPACTING}/{draft.attempt}"):
        if name.endswith(".parquet"):
            index = int(name.partition("/")[0].removeprefix("group="))
            written.setdefault(index, []).append(name)
    if len(written) < len(draft.groups):
        raise JobError("files that a compaction has written are gone: run it again")
    groups = tuple(
        dataclasses.replace(group, files=tuple(written[index]))
        for index, group in enumerate(draft.groups)
    )
    known = contents.ends(number for group in groups for number in group.rounds)
    ends = {
        partition: _later(draft.ends.get(partition, {}), known.get(partition, {}))
        for partition in {*draft.ends, *known}
    }
    record = dataclasses.replace(draft, groups=groups, ends=ends)
    for swap in record.swaps:
        folder.publish(swap.marker[0], MARKER)
    return record


def _later(mine: Mapping[int, int], other: Mapping[int, int]) -> dict[int, int]:
    return {n: max(mine.get(n, -1), other.get(n, -1)) for n in sorted({*mine, *other})}


def finish_compactions(folder: Folder) -> None:
    """Replace what a compaction that was killed has not replaced.

    A compaction that is under way is left alone, or helped: it does no harm if several do this.

    Raises:
        JobError: files of the compaction are gone.
    """
    attempts = folder.names(COMPACTING)
    if not attempts:
        return
    records = recorded_compactions(folder)
    for record in records:
        if record.attempt in attempts:
            _replace(folder, record)
    for attempt in attempts:
        number = whole_number(attempt.partition("-")[0])
        if number is not None and records and number <= records[-1].number:
            folder.delete(f"{COMPACTING}/{attempt}")


def _replace(folder: Folder, record: CompactionRecord) -> None:
    """Make a record true; what was done before is passed over."""
    for swap in record.swaps:
        for source, target in (swap.marker, *swap.files.items()):
            folder.move(source, target)
        _delete_replaced(folder, swap)
    folder.delete(f"{COMPACTING}/{record.attempt}")


def _delete_replaced(folder: Folder, swap: Swap) -> None:
    there = {f"{swap.folder}/{name}" for name in folder.names(swap.folder)}
    _, marker = swap.marker
    if marker not in there:
        return  # The group was replaced before.
    if not there.issuperset(swap.files.values()):
        raise JobError(
            "new files of a compaction are missing: look for them before you delete this marker",
            marker=folder.inside(marker),
        )
    for name in swap.replaced:
        if name in there:
            folder.delete(name)
    folder.delete(marker)
