"""``hqueue pipeline``: archives, replays, copies and counts with Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from hqueue.cli.exits import say
from hqueue.cli.output import show_table
from hqueue.cli.progress import count_text
from hqueue.cli.registering import group
from hqueue.cli.session import session_of
from hqueue.errors import InvalidInputError
from hqueue.position import is_relative, parse_position
from hqueue.settings.attributes import check_queue_name
from hqueue.texts.shown import size_text
from pyspark_hqueue.jobs.arguments import check_archive, check_table
from pyspark_hqueue.jobs.command_options import (
    ArchiveFormat,
    By,
    Conf,
    DryRun,
    Follow,
    Loss,
    Master,
    OutputFormat,
    QueueName,
    RoundMessages,
    RowGroupSize,
    Start,
    Stop,
    TableCheckpoint,
    TargetFileSize,
    Topics,
)
from pyspark_hqueue.jobs.command_progress import (
    MessagesDone,
    messages_in,
    show_ranges,
    show_summary,
)
from pyspark_hqueue.jobs.command_session import (
    command_session,
    reading_options,
    until_interrupted,
)
from pyspark_hqueue.jobs.command_statistics import statistics
from pyspark_hqueue.jobs.parquet_options import (
    ROW_GROUP_SIZE_BYTES,
    TARGET_FILE_SIZE_BYTES,
    ParquetOptions,
)

if TYPE_CHECKING:
    from pyspark_hqueue.jobs.archive_target import Archived

__all__ = ["register"]


def archive(
    context: typer.Context,
    queue: QueueName,
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="The archive's folder, or the table's name.")
    ],
    *,
    output_format: OutputFormat = ArchiveFormat.PARQUET,
    checkpoint: TableCheckpoint = None,
    topic: Topics = None,
    round_messages: RoundMessages = None,
    target_file_size: TargetFileSize = TARGET_FILE_SIZE_BYTES,
    row_group_size: RowGroupSize = ROW_GROUP_SIZE_BYTES,
    follow: Follow = False,
    allow_data_loss: Loss = False,
    dry_run: DryRun = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Archive a queue as Parquet, or in a table of Delta Lake or Iceberg, each message once.

    A run continues where the last one ended, and can be killed at any point. PATH is a folder on
    any file system that Spark can write to; with --format delta or iceberg it is a table.
    """
    check_queue_name(queue)
    parquet = ParquetOptions(target_file_size, row_group_size)
    check_archive(path, output_format.value, checkpoint, parquet)
    with command_session(f"archive {queue}", master, conf) as spark:
        from pyspark_hqueue.jobs.archive import ROUND_MESSAGES, Archive  # noqa: PLC0415

        job = Archive(
            spark,
            queue,
            path,
            output_format=output_format.value,
            checkpoint=checkpoint,
            topics=topic or (),
            round_messages=round_messages or ROUND_MESSAGES,
            options=reading_options(context, allow_data_loss),
            parquet=parquet,
        )
        pending = job.pending()
        if dry_run:
            show_ranges(pending, f"would be archived to {job.target.name}")
            return
        rounds: list[Archived] = []
        with MessagesDone(f"archive {queue}", messages_in(pending), spark) as bar:

            def done(messages: int, archived: Archived) -> None:
                rounds.append(archived)
                bar.advance(messages)

            until_interrupted(lambda: job.run(done, follow=follow), follow=follow)
        show_summary(
            f"archived to {job.target.name}",
            sum(archived.messages for archived in rounds),
            bar.seconds,
            f"{size_text(sum(archived.bytes for archived in rounds))}, "
            f"{count_text(sum(archived.file_count for archived in rounds), 'file')}",
        )


def compact(
    path: Annotated[str, typer.Argument(metavar="PATH", help="The archive's folder.")],
    *,
    target_file_size: TargetFileSize = TARGET_FILE_SIZE_BYTES,
    row_group_size: RowGroupSize = ROW_GROUP_SIZE_BYTES,
    rewrite_all: Annotated[
        bool,
        typer.Option("--rewrite-all", help="Rewrite all files, even those that are large enough."),
    ] = False,
    dry_run: DryRun = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Compact an archive: rewrite its small files as fewer, larger ones.

    The archive may be written and read meanwhile. A run can be killed at any point: the next run
    finishes its work.
    """
    parquet = ParquetOptions(target_file_size, row_group_size)
    with command_session("compact", master, conf) as spark:
        from pyspark_hqueue.jobs.compact import Compact  # noqa: PLC0415
        from pyspark_hqueue.jobs.manifest import CompactionRecord  # noqa: PLC0415

        job = Compact(spark, path, parquet=parquet, rewrite_all=rewrite_all)
        if dry_run:
            groups = job.pending()
            show_table(
                ("folder", "files", "rounds"),
                [(group.folder, len(group.replaced), len(group.rounds)) for group in groups],
                numbers=("files", "rounds"),
            )
            files = count_text(sum(len(group.replaced) for group in groups), "file")
            say(f"{files} would become {count_text(len(groups), 'file')} in {job.folder.uri}.")
            return
        records: list[CompactionRecord] = []
        with MessagesDone("compact", 0, spark) as bar:

            def done(record: CompactionRecord) -> None:
                records.append(record)
                bar.advance(record.messages)

            job.run(done)
        groups = [group for record in records for group in record.groups]
        replaced = count_text(sum(len(group.replaced) for group in groups), "file")
        show_summary(
            f"compacted in {job.folder.uri}",
            sum(record.messages for record in records),
            bar.seconds,
            f"{replaced} became {count_text(sum(len(group.files) for group in groups), 'file')}",
        )


def replay(
    context: typer.Context,
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="An archive, Parquet files, or a table's name.")
    ],
    queue: QueueName,
    *,
    input_format: OutputFormat = ArchiveFormat.PARQUET,
    checkpoint: TableCheckpoint = None,
    by: By = None,
    topic: Topics = None,
    as_topic: Annotated[
        str | None, typer.Option("--as-topic", help="Write all messages to this topic.")
    ] = None,
    start: Start = None,
    stop: Stop = None,
    write_id: Annotated[
        str | None,
        typer.Option(
            "--write-id",
            help="An ID for the replay: runs with the same ID write each message only once.",
        ),
    ] = None,
    dry_run: DryRun = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Replay an archive, or any Parquet with the columns topic and value, into a queue.

    Each message is written once, however often this command is run. A later run adds the messages
    that the archive got meanwhile. Each partition keeps the order of its messages. With --format
    delta or iceberg, PATH is the table of an archive.
    """
    is_table = input_format is not ArchiveFormat.PARQUET
    if is_table and (checkpoint is None or write_id is not None):
        raise InvalidInputError(
            "the replay of a table is identified by its checkpoint: give --checkpoint, and no "
            "--write-id"
        )
    if is_table:
        check_table(path, input_format.value, checkpoint)
    elif checkpoint is not None:
        raise InvalidInputError("only the replay of a table has a --checkpoint: leave it out")
    bounds = [None if moment is None else parse_position(moment) for moment in (start, stop)]
    relative = [moment for moment in (start, stop) if moment is not None and is_relative(moment)]
    if relative and write_id is None:
        # The same command would be a new replay each time, and would write everything again.
        raise InvalidInputError(
            "a replay is identified by its bounds, and these bounds change with each run: give a "
            f"fixed time{'' if is_table else ', or a --write-id'}",
            position=relative[0],
        )
    with command_session(f"replay into {queue}", master, conf) as spark:
        from pyspark_hqueue.jobs.replay import Replay  # noqa: PLC0415
        from pyspark_hqueue.jobs.table_replay import TableReplay  # noqa: PLC0415

        chosen: dict[str, Any] = {
            "by": by,
            "topics": topic or (),
            "topic": as_topic,
            "start": bounds[0],
            "stop": bounds[1],
            "options": session_of(context).spark_options,
        }
        job: Replay | TableReplay
        if checkpoint is None:
            job = Replay(spark, path, queue, write_id=write_id, **chosen)
        else:
            job = TableReplay(spark, path, input_format.value, queue, checkpoint, **chosen)
        pieces = job.pending()
        total = sum(piece.messages for piece in pieces)
        if dry_run:
            show_table(
                ("round", "files", "messages"),
                [(piece.number, len(piece.files) or None, piece.messages) for piece in pieces],
                numbers=("round", "files", "messages"),
            )
            count = count_text(total, "message")
            say(
                f"{count} at most would be written to {queue}, as {job.write_id or 'a new replay'}."
            )
            return
        with MessagesDone(f"replay into {queue}", total, spark) as bar:
            written = job.run(lambda piece: bar.advance(piece.messages))
        show_summary(f"written to {queue}", written, bar.seconds, f"known as {job.write_id}")


def copy(
    context: typer.Context,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The queue to read.")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The queue to write.")],
    checkpoint: Annotated[
        str,
        typer.Option(
            "--checkpoint", "-c", help="The folder of the copy's checkpoint, one for each copy."
        ),
    ],
    *,
    by: By = None,
    topic: Topics = None,
    start: Start = None,
    round_messages: RoundMessages = None,
    follow: Follow = False,
    allow_data_loss: Loss = False,
    dry_run: DryRun = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Copy a queue into another, each message once. The queues may differ in partitions.

    Messages keep their partitions if the queues have the same number of them; otherwise a message
    with a key goes to the partition of its key. A run continues where the last one with this
    checkpoint ended, and can be killed at any point.
    """
    begin = None if start is None else parse_position(start)
    if source == target:
        raise InvalidInputError("a queue can't be copied into itself", queue=source)
    with command_session(f"copy {source} to {target}", master, conf) as spark:
        from pyspark_hqueue.jobs.queue_copy import ROUND_MESSAGES, Copy  # noqa: PLC0415

        options = reading_options(context, allow_data_loss)
        if begin is not None:
            options["startingTimestamp"] = str(begin.timestamp)
        job = Copy(
            spark,
            source,
            target,
            checkpoint,
            by=by,
            topics=topic or (),
            round_messages=round_messages or ROUND_MESSAGES,
            options=options,
        )
        pending = job.pending()
        if dry_run:
            show_ranges(pending, f"would be copied from {source} to {target}")
            return
        with MessagesDone(f"copy {source}", messages_in(pending), spark) as bar:
            copied = 0

            def done(messages: int, written: int) -> None:
                nonlocal copied
                copied += written
                bar.advance(messages)

            until_interrupted(lambda: job.run(done, follow=follow), follow=follow)
        show_summary(f"of {source} copied to {target}", copied, bar.seconds, "")


register = group(
    "Messages",
    "pipeline",
    "Archive, replay, copy and count queues with Spark.",
    *(archive, compact, replay, copy, statistics),
)
