"""How far a stream of Spark is in a queue, by its checkpoint: read as files, without Spark.

A checkpoint has two folders. ``offsets/N`` says where batch N ends, and ``commits/N`` is there once
it is finished:

    v1
    {"batchWatermarkMs":0,…}
    {"partitions": {"0": [57909149007872000, 1200]}, "queue": "events"}

The lines from the third on are the offsets of the query's sources, in the second version of this
file with the source's name before them. Those of a queue have for each partition the next ID, and
how many messages came before it: `pyspark_hqueue.reading.stream_offsets`.
"""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from hqueue.errors import InvalidInputError
from hqueue.message_id import MessageID

__all__ = ["positions_of"]

Positions = dict[int, MessageID]

_OF_ARCHIVE = "_hqueue/checkpoint/"
"""The checkpoint in the folder of an archive: `pyspark_hqueue.jobs.archive`."""


def positions_of(path: str, queue: str) -> Positions:
    """For each partition of a queue the first ID that a stream has not finished. If it reads the
    queue several times, that of the read which is furthest behind.

    Args:
        path: the checkpoint's path, or its URI, which pyarrow reads; or the folder of an archive of
            Parquet files, which has its checkpoint in it.
        queue: the queue.

    Raises:
        InvalidInputError: there is no checkpoint, its stream has begun no batch or does not read
            the queue, or it can't be read.
    """
    folder = _folder(path)
    try:
        within = _OF_ARCHIVE if folder.names(_OF_ARCHIVE) else ""
        finished = _newest(folder, f"{within}commits")
        batch = _newest(folder, f"{within}offsets") if finished is None else finished
        text = None if batch is None else folder.text(f"{within}offsets/{batch}")
    except OSError as exc:
        raise _refused("the checkpoint can't be read", path, reason=str(exc)) from exc
    if text is None:
        raise _refused(
            "there is no checkpoint of a stream here, or it has begun no batch yet: give the "
            "query's checkpointLocation, or the folder of an archive of Parquet files",
            path,
        )
    # Of a first batch that is not finished, what counts is where the query began.
    which = "partitions" if finished is not None else "start"
    found: Positions = {}
    others = set()
    for offset in _offsets(text):
        if offset.get("queue", queue) != queue:
            others.add(offset["queue"])
            continue
        for partition, at in _positions(offset.get(which, {})).items():
            found[partition] = min(at, found.get(partition, at))
    if not found:
        raise _refused(
            "the stream of this checkpoint does not read the queue",
            path,
            queue=queue,
            queues=sorted(others),
        )
    return found


def _offsets(text: str) -> Iterator[dict[str, Any]]:
    """The offsets that sources of queues wrote, in a file of ``offsets``."""
    for line in text.splitlines()[2:]:
        try:
            offset = json.loads(line[line.find("{") :])
            if isinstance(offset, dict) and _positions(offset["partitions"]):
                yield offset
        except (ValueError, TypeError, KeyError, AttributeError):
            continue  # Another source's.


def _positions(listed: dict[str, Any]) -> Positions:
    return {int(p): MessageID.from_int(at) for p, (at, _) in listed.items()}


class _Folder(Protocol):
    """A folder, wherever it is. All calls may raise `OSError`."""

    def names(self, name: str) -> list[str]:
        """What is in a folder of it; nothing if there is none."""

    def text(self, name: str) -> str | None:
        """What is in a file; None if there is none."""


def _folder(path: str) -> _Folder:
    uri = urllib.parse.urlsplit(path)
    if len(uri.scheme) < 2:  # Windows' drives have a letter.
        return _Local(Path(path))
    if uri.scheme == "file":
        return _Local(Path(urllib.parse.unquote(uri.path)))
    try:
        import pyarrow.fs  # noqa: PLC0415  (only for what is elsewhere)
    except ImportError as exc:
        raise _refused(
            "only pyarrow reads a checkpoint that is not on this machine: install "
            "'hqueue-hbase[arrow]', or copy its folders offsets and commits to this machine",
            path,
        ) from exc
    try:
        return _Remote(*pyarrow.fs.FileSystem.from_uri(path))
    except (ValueError, OSError) as exc:
        raise _refused(
            "pyarrow can't read this place: copy the folders offsets and commits of the checkpoint "
            "to this machine",
            path,
            reason=str(exc),
        ) from exc


class _Local:
    def __init__(self, path: Path) -> None:
        self._path = path

    def names(self, name: str) -> list[str]:
        there = self._path / name
        return [each.name for each in there.iterdir()] if there.is_dir() else []

    def text(self, name: str) -> str | None:
        there = self._path / name
        return there.read_text("utf-8") if there.is_file() else None


class _Remote:
    def __init__(self, filesystem: Any, path: str) -> None:
        self._files = filesystem
        self._path = path

    def names(self, name: str) -> list[str]:
        from pyarrow.fs import FileSelector  # noqa: PLC0415

        selected = FileSelector(f"{self._path}/{name}", allow_not_found=True)
        return [each.base_name for each in self._files.get_file_info(selected)]

    def text(self, name: str) -> str | None:
        try:
            with self._files.open_input_stream(f"{self._path}/{name}") as stream:
                return bytes(stream.read()).decode()
        except FileNotFoundError:
            return None


def _newest(folder: _Folder, name: str) -> int | None:
    """The newest batch in a folder; None if there is none."""
    return max((int(each) for each in folder.names(name) if each.isdecimal()), default=None)


def _refused(text: str, path: str, **facts: Any) -> InvalidInputError:
    return InvalidInputError(text, checkpoint=path, **facts)
