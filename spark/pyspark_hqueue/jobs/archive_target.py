"""Where an archive's messages go: a folder of Parquet files, or a table."""

from __future__ import annotations

from typing import Protocol

from pyspark.sql import SparkSession

from pyspark_hqueue.jobs.folder import Folder
from pyspark_hqueue.jobs.rounds import Round

__all__ = ["ArchiveTarget", "Archived"]


class Archived(Protocol):
    """What the target has of a round."""

    @property
    def messages(self) -> int: ...

    @property
    def bytes(self) -> int: ...

    @property
    def file_count(self) -> int: ...


class ArchiveTarget(Protocol):
    """The target of one archive.

    The archive calls `check` when it is made, `prepare` at the beginning of each run, and then
    `write` with one round after the other.
    """

    @property
    def name(self) -> str:
        """The target's name for users: the folder's URI, or the table's name."""

    @property
    def spark(self) -> SparkSession:
        """The session that reads the rounds, and writes them."""

    @property
    def checkpoint(self) -> Folder:
        """The checkpoint that fixes the rounds."""

    def check(self) -> None:
        """Refuse a target that this archive must not write to. Nothing is changed.

        Raises:
            InvalidInputError: it has something else in it, or belongs to another archive.
        """

    def prepare(self) -> None:
        """Create what is missing, and mark the target as this archive's. Raises as `check`."""

    def write(self, round_: Round) -> Archived:
        """Write a round, so that the target has each of its messages once, whether or not an
        earlier run has written the round, wholly or in part, or another one does so meanwhile.
        """
