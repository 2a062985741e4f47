"""The files of an archive, for readers that are not Spark's, and without a session of Spark."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from pyarrow import fs

from hqueue import InvalidInputError
from pyspark_hqueue.jobs.manifest import archived_queue, contents_of

__all__ = ["archived_files"]


def archived_files(path: str) -> list[str]:
    """The Parquet files that have an archive's messages, by the archive's own records.

    They have each message of the finished rounds once, also where a compaction was killed and has
    left a marker in a folder. If a compaction begins later, it deletes files: reading them fails
    then, and this can be called again.

    Args:
        path: the archive's folder: a path, or a URI of a file system that pyarrow knows.

    Returns:
        Paths below the given one, in the order of their names.

    Raises:
        InvalidInputError: there is no archive at this path.
        OSError: the folder can't be read.
    """
    folder = _ArrowFolder(path)
    if archived_queue(folder) is None:
        raise InvalidInputError(
            "this folder is not an archive: give an archive's folder", path=path
        )
    return [f"{path.rstrip('/')}/{name}" for name in contents_of(folder).files]


class _ArrowFolder:
    """A folder on a file system of pyarrow's."""

    def __init__(self, path: str) -> None:
        if urlsplit(path).scheme:
            self._fs, root = fs.FileSystem.from_uri(path)
        else:
            self._fs, root = fs.LocalFileSystem(), os.path.abspath(path)
        self._root = root.rstrip("/")

    def names(self, name: str = "") -> list[str]:
        return sorted(info.base_name for info in self._infos(name, recursive=False))

    def files(self, name: str = "") -> dict[str, int]:
        below = f"{self._inside(name)}/"
        return {
            info.path.removeprefix(below): info.size
            for info in self._infos(name, recursive=True)
            if info.is_file
        }

    def read(self, name: str) -> str | None:
        try:
            with self._fs.open_input_stream(self._inside(name)) as stream:
                return bytes(stream.read()).decode()
        except FileNotFoundError:
            return None

    def _infos(self, name: str, *, recursive: bool) -> list[fs.FileInfo]:
        chosen = fs.FileSelector(self._inside(name), allow_not_found=True, recursive=recursive)
        return list(self._fs.get_file_info(chosen))

    def _inside(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root
