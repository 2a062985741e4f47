"""A folder on any file system that Spark writes to, through Hadoop's interface to it."""

from __future__ import annotations

import os
import uuid
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from hqueue import InvalidInputError

__all__ = ["Folder"]


class Folder:
    """A folder; names in it are relative, with slashes. It need not exist.

    Args:
        spark: the session, whose Hadoop configuration counts.
        path: its path or URI.

    Raises:
        InvalidInputError: there is no such file system.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        jvm = spark.sparkContext._jvm
        assert jvm is not None
        self._jvm: Any = jvm
        try:
            given = jvm.org.apache.hadoop.fs.Path(path)
            self._fs = given.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
            self.uri = str(self._fs.makeQualified(given).toString()).rstrip("/")
        except Py4JJavaError as exc:
            reason = exc.java_exception.getMessage()
            raise InvalidInputError("Spark can't use this path", path=path, reason=reason) from exc
        self._fs.setWriteChecksum(False)
        self._local = str(self._fs.getScheme()) == "file"

    def inside(self, name: str) -> str:
        """The URI of what has this name."""
        return f"{self.uri}/{name}"

    def raw_path(self, name: str) -> str:
        """The path in the URI of what has this name, without scheme and host, and escaped."""
        return str(self._path(name).toUri().getRawPath())

    def overlaps(self, other: Folder) -> bool:
        """Whether one of two folders is the other, or lies in it."""
        first, second = (f"{folder._resolved()}/" for folder in (self, other))
        return first.startswith(second) or second.startswith(first)

    def exists(self, name: str = "") -> bool:
        return bool(self._fs.exists(self._path(name)))

    def names(self, name: str = "") -> list[str]:
        """What is directly in a folder; nothing if it does not exist."""
        if not self.exists(name):
            return []
        return sorted(
            str(each.getPath().getName()) for each in self._fs.listStatus(self._path(name))
        )

    def files(self, name: str = "") -> dict[str, int]:
        """All files below a folder, relative to it, and their sizes."""
        found: dict[str, int] = {}
        if not self.exists(name):
            return found
        below = f"{self.inside(name).rstrip('/')}/"
        listed = self._fs.listFiles(self._path(name), True)
        while listed.hasNext():
            status = listed.next()
            found[str(status.getPath().toString()).removeprefix(below)] = int(status.getLen())
        return dict(sorted(found.items()))

    def read(self, name: str) -> str | None:
        """The text of a file; None if there is none."""
        if not self.exists(name):
            return None
        stream = self._fs.open(self._path(name))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def publish(self, name: str, text: str) -> bool:
        """Write a file whole if none has this name: of many callers that try, one succeeds.

        That it is one is up to the file system: HDFS and a local disk keep it; an object store
        may let two that come within its moment of a rename both believe it.
        """
        draft = f"{name}.{uuid.uuid4().hex}.draft"
        stream = self._fs.create(self._path(draft), True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        try:
            if self._local:
                os.link(self._local_path(draft), self._local_path(name))
                return True
            return not self.exists(name) and self.move(draft, name)
        except FileExistsError:
            return False
        finally:
            self.delete(draft)

    def move(self, source: str, target: str) -> bool:
        """Rename a file, into a folder that is made if needed; False if there is no such file."""
        self._fs.mkdirs(self._path(target).getParent())
        try:
            return bool(self._fs.rename(self._path(source), self._path(target)))
        except Py4JJavaError as exc:
            if exc.java_exception.getClass().getSimpleName() == "FileNotFoundException":
                return False
            raise

    def flush(self, name: str) -> None:
        """Let the files of a folder survive a power failure.

        Only a local disk needs it: other file systems keep a file once it is closed.
        """
        if self._local:
            for file in self.files(name):
                with open(self._local_path(f"{name}/{file}"), "rb") as opened:
                    os.fsync(opened.fileno())

    def delete(self, name: str) -> None:
        """Delete a file or a folder with all that is in it, if it is there."""
        self._fs.delete(self._path(name), True)

    def _resolved(self) -> str:
        return os.path.realpath(self._local_path("")) if self._local else self.uri

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.inside(name) if name else self.uri)

    def _local_path(self, name: str) -> str:
        return str(self._path(name).toUri().getPath())
