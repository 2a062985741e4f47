"""Options that several commands of ``hqueue pipeline`` have."""

from __future__ import annotations

import enum
from typing import Annotated

import typer

from hqueue.position import POSITION_HELP

__all__ = [
    "ArchiveFormat",
    "By",
    "Conf",
    "DryRun",
    "Follow",
    "Loss",
    "Master",
    "OutputFormat",
    "QueueName",
    "RoundMessages",
    "RowGroupSize",
    "Start",
    "Stop",
    "TableCheckpoint",
    "TargetFileSize",
    "Topics",
]


class ArchiveFormat(str, enum.Enum):
    """The format of an archive."""

    PARQUET = "parquet"
    DELTA = "delta"
    ICEBERG = "iceberg"


QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name.")]
Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", "-t", help="Only this topic. May be given several times."),
]
By = Annotated[
    str | None,
    typer.Option(
        help="How to choose the partition: 'partition' (the source's, modulo the number of "
        "partitions), 'topic', 'key', or a Spark SQL expression over the columns."
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be read and written; write nothing.")
]
Follow = Annotated[
    bool, typer.Option("--follow", "-f", help="Continue with new messages, until Ctrl-C.")
]
Loss = Annotated[
    bool,
    typer.Option("--allow-data-loss", help="Continue if messages expired before they were read."),
]
RoundMessages = Annotated[
    int | None, typer.Option(min=1, help="Messages per round; a crash repeats at most one round.")
]
Start = Annotated[str | None, typer.Option("--start", help=f"Where to begin: {POSITION_HELP}.")]
Stop = Annotated[
    str | None, typer.Option("--stop", help="Where to end, given in the same ways as --start.")
]
Master = Annotated[
    str | None,
    typer.Option(help="Spark's master. By default that of spark-submit, or else this machine."),
]
Conf = Annotated[
    list[str] | None,
    typer.Option(
        "--conf", metavar="NAME=VALUE", help="A Spark setting. May be given several times."
    ),
]
TargetFileSize = Annotated[
    int,
    typer.Option("--target-file-size-bytes", min=1, help="The size that files should have."),
]
RowGroupSize = Annotated[
    int,
    typer.Option(
        "--row-group-size-bytes",
        min=1,
        help="The size that row groups should have.",
    ),
]
OutputFormat = Annotated[
    ArchiveFormat, typer.Option("--format", help="Parquet files, or a table of this format.")
]
TableCheckpoint = Annotated[
    str | None,
    typer.Option(
        "--checkpoint",
        "-c",
        help="The folder of the checkpoint. Tables need one, a different one for each table.",
    ),
]
