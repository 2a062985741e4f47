"""What the archive of a queue and the replay of a table refuse by their arguments alone, without
Spark.
"""

from __future__ import annotations

import posixpath
import re

from hqueue.errors import InvalidInputError
from pyspark_hqueue.jobs.parquet_options import ParquetOptions

__all__ = ["DELTA", "ICEBERG", "PARQUET", "check_archive", "check_table", "overlapping", "path_of"]

PARQUET = "parquet"
DELTA = "delta"
ICEBERG = "iceberg"

_BY_PATH = re.compile(r"delta\.`(.*)`", re.IGNORECASE)


def check_archive(
    path: str, output_format: str, checkpoint: str | None, parquet: ParquetOptions | None
) -> None:
    """Refuse arguments of an archive that do not go together.

    Args:
        path: the folder, or the table.
        output_format: the format.
        checkpoint: the folder of the checkpoint, if one was given.
        parquet: how files are written, if that was given.

    Raises:
        InvalidInputError: they do not go together.
    """
    if output_format == PARQUET:
        if checkpoint is not None:
            raise InvalidInputError(
                "an archive of files keeps its own checkpoint: leave out checkpoint",
                checkpoint=checkpoint,
            )
        return
    if parquet not in (None, ParquetOptions()):
        raise InvalidInputError(
            "a table's own properties set the sizes of its files and row groups: leave both "
            "sizes out, and set the table's properties",
            table=path,
        )
    check_table(path, output_format, checkpoint)
    if checkpoint is None:
        raise InvalidInputError(
            "an archive in a table needs a checkpoint: give a folder, a different one for each "
            "table",
            table=path,
        )


def check_table(table: str, table_format: str, checkpoint: str | None = None) -> None:
    """Refuse the name of a table, or its checkpoint.

    Args:
        table: the table's name, or the path of a Delta table.
        table_format: its format.
        checkpoint: the folder of a checkpoint of the table; None if it has none.

    Raises:
        InvalidInputError: there is no such format, or its tables have no paths, or the table and
            the checkpoint lie in each other.
    """
    if table_format not in (DELTA, ICEBERG):
        raise InvalidInputError(
            "an archive's format must be parquet, delta or iceberg", format=table_format
        )
    path = path_of(table)
    if path is not None and table_format == ICEBERG:
        raise InvalidInputError(
            "an Iceberg table is given by its name in a catalog, not by a path", table=table
        )
    if path is not None and checkpoint is not None and _lie_in_each_other(path, checkpoint):
        raise overlapping(table, checkpoint)


def path_of(table: str) -> str | None:
    """The path by which a table is given; None if it is given by its name."""
    if (found := _BY_PATH.fullmatch(table)) is not None:
        return found[1]
    return table if "/" in table and "`" not in table else None


def overlapping(table: str, checkpoint: str) -> InvalidInputError:
    """The error of a checkpoint that lies in its table's folder, or has the table in it."""
    return InvalidInputError(
        "the checkpoint and the table lie in each other, and the table's maintenance would delete "
        "files of the checkpoint: give a folder outside the table's",
        table=table,
        checkpoint=checkpoint,
    )


def _lie_in_each_other(one: str, other: str) -> bool:
    first, second = (
        posixpath.normpath(re.sub("^file:/*", "/", path)).rstrip("/") + "/" for path in (one, other)
    )
    return first.startswith(second) or second.startswith(first)
