"""``hqueue pipeline``: archive, replay, copy and count, with Spark. Needs ``hqueue[spark]``."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hqueue.cli.exits import say
from hqueue.cli.output import show_table
from hqueue.cli.progress import count_text, size_text
from hqueue.cli.registering import group
from hqueue.cli.session import session_of
from hqueue.errors import InvalidInputError, SettingsError
from hqueue.message_id import MessageID
from hqueue.position import is_relative, parse_position
from hqueue.runtime.extras import installing
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
from pyspark_hqueue.jobs.command_progress import MessagesDone
from pyspark_hqueue.jobs.command_statistics import show_statistics
from pyspark_hqueue.jobs.parquet_options import (
    ROW_GROUP_SIZE_BYTES,
    TARGET_FILE_SIZE_BYTES,
    ParquetOptions,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyspark_hqueue.jobs.archive_target import Archived
    from pyspark_hqueue.reading.plan import Range

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

    A run goes on where the last one ended, and can be killed anywhere. PATH is a folder on any file
    system that Spark writes to; with --format delta or iceberg it is a table.
    """
    with _spark(f"archive {queue}", master, conf) as spark:
        from pyspark_hqueue.jobs.archive import ROUND_MESSAGES, Archive  # noqa: PLC0415

        job = Archive(
            spark,
            queue,
            path,
            output_format=output_format.value,
            checkpoint=checkpoint,
            topics=topic or (),
            round_messages=round_messages or ROUND_MESSAGES,
            options=_reading(context, allow_data_loss),
            parquet=ParquetOptions(target_file_size, row_group_size),
        )
        pending = job.pending()
        if dry_run:
            _show_ranges(pending, f"would be archived to {job.target.name}")
            return
        rounds: list[Archived] = []
        with MessagesDone(f"archive {queue}", _messages(pending), spark) as bar:

            def done(messages: int, archived: Archived) -> None:
                rounds.append(archived)
                bar.advance(messages)

            _until_interrupted(lambda: job.run(done, follow=follow), follow=follow)
        _summary(
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
        typer.Option("--rewrite-all", help="Rewrite all files, also those that are large enough."),
    ] = False,
    dry_run: DryRun = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Compact an archive: rewrite its small files as fewer, larger ones.

    It may run while the archive is written and read, and can be killed anywhere: the next run
    finishes what is left.
    """
    parquet = ParquetOptions(target_file_size, row_group_size)
    with _spark("compact", master, conf) as spark:
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
        _summary(
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
            help="The replay's ID: a replay with the same ID writes each message once.",
        ),
    ] = None,
    dry_run: DryRun = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Replay an archive, or any Parquet with the columns topic and value, into a queue.

    Each message is written once, however often this is run; what an archive got meanwhile is added.
    The order in which messages lie is kept in each partition. With --format delta or iceberg, PATH
    is a table that is an archive.
    """
    is_table = input_format is not ArchiveFormat.PARQUET
    if is_table and (checkpoint is None or write_id is not None):
        raise InvalidInputError(
            "the replay of a table is identified by its --checkpoint, and has no --write-id"
        )
    if not is_table and checkpoint is not None:
        raise InvalidInputError("only the replay of a table has a --checkpoint: leave it out")
    bounds = [None if moment is None else parse_position(moment) for moment in (start, stop)]
    relative = [moment for moment in (start, stop) if moment is not None and is_relative(moment)]
    if relative and write_id is None:
        # The same command would be another replay each time, and write everything again.
        raise InvalidInputError(
            "a replay is identified by its bounds, and these bounds change with each run: give a "
            f"fixed time{'' if is_table else ', or a --write-id'}",
            position=relative[0],
        )
    with _spark(f"replay into {queue}", master, conf) as spark:
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
        _summary(f"written to {queue}", written, bar.seconds, f"known as {job.write_id}")


def copy(
    context: typer.Context,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The queue to read.")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The queue to write.")],
    checkpoint: Annotated[
        str, typer.Option("--checkpoint", "-c", help="A folder, one for each copy.")
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
    """Copy a queue into another, which may have another number of partitions, each message once.

    Messages keep their partitions; in another number of partitions those with a key lie where it
    says. A run goes on where the last one with this checkpoint ended, and can be killed anywhere.
    """
    begin = None if start is None else parse_position(start)
    with _spark(f"copy {source} to {target}", master, conf) as spark:
        from pyspark_hqueue.jobs.queue_copy import ROUND_MESSAGES, Copy  # noqa: PLC0415

        options = _reading(context, allow_data_loss)
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
            _show_ranges(pending, f"would be copied from {source} to {target}")
            return
        with MessagesDone(f"copy {source}", _messages(pending), spark) as bar:
            copied = 0

            def done(messages: int, written: int) -> None:
                nonlocal copied
                copied += written
                bar.advance(messages)

            _until_interrupted(lambda: job.run(done, follow=follow), follow=follow)
        _summary(f"of {source} copied to {target}", copied, bar.seconds, "")


def statistics(
    context: typer.Context,
    queue: QueueName,
    *,
    window: Annotated[
        str | None,
        typer.Option(
            "--window",
            "-w",
            help="The windows' length: 500ms, 30s, 15m, "
            "24h. If not given, there are about 20 "
            "windows.",
        ),
    ] = None,
    topic: Topics = None,
    start: Start = None,
    stop: Stop = None,
    where: Annotated[
        str | None, typer.Option(help="Count only messages that match this condition in Spark SQL.")
    ] = None,
    by: Annotated[
        str | None, typer.Option(help="Group by this Spark SQL expression instead of the topic.")
    ] = None,
    spark: Annotated[
        bool,
        typer.Option("--spark", help="Read the messages in Spark instead of the log's headers."),
    ] = False,
    top: Annotated[int, typer.Option("--top", "-n", min=1, help="Show this many topics.")] = 10,
    plot: Annotated[
        str | None, typer.Option(help="Draw the result into this .png, .svg or .pdf file, too.")
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON, one document per line.")
    ] = False,
    dry_run: DryRun = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Count messages and bytes by windows of time and topic.

    The log's headers tell it, without messages being read. With --where, --by or --spark it is
    counted in Spark, over the messages.
    """
    options = session_of(context).spark_options
    if topic:
        options["subscribe"] = ",".join(topic)
    for name, moment in (("startingTimestamp", start), ("endingTimestamp", stop)):
        if moment is not None:
            options[name] = str(parse_position(moment).timestamp)
    with _installed():
        from pyspark_hqueue.jobs.plot import check_plot  # noqa: PLC0415
        from pyspark_hqueue.jobs.plot import plot as draw  # noqa: PLC0415
        from pyspark_hqueue.jobs.queue_statistics import Counting  # noqa: PLC0415
        from pyspark_hqueue.reading.read_options import duration_ms  # noqa: PLC0415
    if plot is not None:
        check_plot(plot)
    window_ms = None if window is None else duration_ms(window)
    job = Counting(queue, window_ms=window_ms, where=where, by=by, options=options)
    if dry_run:
        how = "in Spark" if spark or job.needs_spark else "by their headers"
        _show_ranges(job.pending(), f"would be counted, {how}")
        return
    begun_s = time.monotonic()
    if spark or job.needs_spark:
        with (
            _spark(f"statistics of {queue}", master, conf) as session,
            MessagesDone(f"count {queue}", _messages(job.pending()), session),
        ):
            found = job.by_messages(session)
    else:
        found = job.by_headers()
    show_statistics(found, top=top, json=json)
    if plot is not None:
        draw(found, plot)
    seconds = time.monotonic() - begun_s
    _summary(f"in {queue}", found.messages, seconds, size_text(found.bytes))


@contextlib.contextmanager
def _installed() -> Iterator[None]:
    """Say what is missing if PySpark is."""
    try:
        yield
    except ImportError as exc:
        raise SettingsError(
            f"a package that pipelines need is not installed: {installing('spark')}"
        ) from exc


@contextlib.contextmanager
def _spark(name: str, master: str | None, conf: list[str] | None) -> Iterator[SparkSession]:
    with _installed():
        from pyspark_hqueue.jobs.sessions import spark_session  # noqa: PLC0415
    settings = {}
    for text in conf or ():
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise InvalidInputError("a Spark setting must be written as NAME=VALUE", conf=text)
        settings[key] = value
    with spark_session(name, master, settings) as session:
        yield session


def _reading(context: typer.Context, allow_data_loss: bool) -> dict[str, str]:
    return {**session_of(context).spark_options, "failOnDataLoss": str(not allow_data_loss).lower()}


def _until_interrupted(run: Callable[[], object], *, follow: bool) -> None:
    """Ctrl-C is how following ends, and no failure."""
    try:
        run()
    except KeyboardInterrupt:
        if not follow:
            raise


def _messages(ranges: Sequence[Range]) -> int:
    return sum(range_.messages for range_ in ranges)


def _show_ranges(ranges: Sequence[Range], what: str) -> None:
    show_table(
        ("partition", "from", "to", "messages"),
        [
            (
                range_.partition,
                MessageID.from_int(range_.start),
                MessageID.from_int(range_.stop),
                range_.messages,
            )
            for range_ in ranges
        ],
        numbers=("partition", "messages"),
    )
    count = count_text(_messages(ranges), "message")
    say(f"{count} of all topics in {count_text(len(ranges), 'partition')} {what}.")


def _summary(what: str, messages: int, seconds: float, more: str) -> None:
    rate = f", {messages / seconds:,.0f} messages/s" if messages and seconds > 0 else ""
    more = f" ({more})" if more else ""
    say(f"{count_text(messages, 'message')}{more} {what} in {seconds:.2f} s{rate}.")


register = group(
    "Messages",
    "pipeline",
    "Archive, replay, copy and count queues, with Spark.",
    *(archive, compact, replay, copy, statistics),
)
