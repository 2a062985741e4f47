"""``hqueue pipeline statistics``: counts a queue's messages and shows the counts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from hqueue.cli.output import show_table, write_json
from hqueue.cli.session import session_of
from hqueue.position import parse_position
from hqueue.texts.shown import iso_timestamp, printable, size_text
from pyspark_hqueue.jobs.command_options import (
    Conf,
    DryRun,
    Master,
    QueueName,
    Start,
    Stop,
    Topics,
)
from pyspark_hqueue.jobs.command_progress import (
    MessagesDone,
    messages_in,
    show_ranges,
    show_summary,
)
from pyspark_hqueue.jobs.command_session import command_session, pyspark_installed

if TYPE_CHECKING:
    from pyspark_hqueue.jobs.queue_statistics import Count, Statistics

__all__ = ["show_statistics", "statistics"]

SHOWN_IN_WINDOW = 3


def statistics(
    context: typer.Context,
    queue: QueueName,
    *,
    window: Annotated[
        str | None,
        typer.Option(
            "--window",
            "-w",
            help="The length of a window, such as 500ms, 30s, 15m or 24h. By default there are "
            "about 20 windows.",
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
        typer.Option(
            "--spark", help="Count the messages with Spark instead of from the log's headers."
        ),
    ] = False,
    top: Annotated[int, typer.Option("--top", "-n", min=1, help="Show this many topics.")] = 10,
    plot: Annotated[
        str | None, typer.Option(help="Also plot the result to this .png, .svg or .pdf file.")
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON, one document per line.")
    ] = False,
    dry_run: DryRun = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Count messages and bytes by time window and topic.

    By default the counts come from the log's headers, and no message is read. With --where, --by or
    --spark, Spark reads and counts the messages.
    """
    options = session_of(context).spark_options
    if topic:
        options["subscribe"] = ",".join(topic)
    for name, moment in (("startingTimestamp", start), ("endingTimestamp", stop)):
        if moment is not None:
            options[name] = str(parse_position(moment).timestamp)
    with pyspark_installed():
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
        show_ranges(job.pending(), f"would be counted, {how}")
        return
    begun_s = time.monotonic()
    if spark or job.needs_spark:
        with (
            command_session(f"statistics of {queue}", master, conf) as session,
            MessagesDone(f"count {queue}", messages_in(job.pending()), session),
        ):
            found = job.by_messages(session)
    else:
        found = job.by_headers()
    show_statistics(found, top=top, json=json)
    if plot is not None:
        draw(found, plot)
    seconds = time.monotonic() - begun_s
    show_summary(f"in {queue}", found.messages, seconds, size_text(found.bytes))


def show_statistics(found: Statistics, *, top: int, json: bool) -> None:
    """Write counts to stdout.

    Args:
        found: the counts.
        top: how many groups to list over all windows.
        json: whether to write a JSON document for each window and group instead of tables.
    """
    if json:
        for counts in found.windows().values():
            for count in counts:
                write_json(_as_json(found, count))
        return
    seconds = found.window_ms / 1e3
    show_table(
        ("window", "messages", "bytes", "messages/s", "top"),
        [
            (
                iso_timestamp(window_ms),
                f"{sum(c.messages for c in counts):,}",
                size_text(sum(c.bytes for c in counts)),
                f"{sum(c.messages for c in counts) / seconds:,.1f}",
                _top(counts),
            )
            for window_ms, counts in found.windows().items()
        ],
        title=found.queue,
        numbers=("messages", "bytes", "messages/s"),
    )
    groups = found.groups()
    show_table(
        ("topic", "messages", "bytes", "share"),
        [
            (
                count.group,
                f"{count.messages:,}",
                size_text(count.bytes),
                f"{count.messages / found.messages:.1%}",
            )
            for count in groups[:top]
        ],
        title=f"the first {top} of {len(groups)}" if len(groups) > top else None,
        numbers=("messages", "bytes", "share"),
    )


def _top(counts: list[Count]) -> str:
    shown = [f"{printable(c.group)} {c.messages:,}" for c in counts[:SHOWN_IN_WINDOW]]
    more = len(counts) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _as_json(found: Statistics, count: Count) -> dict[str, object]:
    return {
        "window": iso_timestamp(count.window_ms),
        "seconds": found.window_ms / 1e3,
        "topic": count.group,
        "messages": count.messages,
        "bytes": count.bytes,
    }
