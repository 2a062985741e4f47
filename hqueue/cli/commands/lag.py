"""``hqueue lag``: the lag of subscribers and groups, live."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from hqueue.cli.commands.spark_checkpoint import positions_of
from hqueue.cli.known import check_group, check_queue, check_subscriber
from hqueue.cli.output import drawn_table, show_table, write_json
from hqueue.cli.registering import commands
from hqueue.cli.session import session_of
from hqueue.errors import GroupNotFoundError
from hqueue.groups.kinds import SHARE
from hqueue.metadata import PartitionKey, SubscriptionKey
from hqueue.runtime.only_reads import OnlyReads

if TYPE_CHECKING:
    from rich.table import Table

    from hqueue import PartitionLag
    from hqueue.client import Client

__all__ = ["register"]

COLUMNS = (
    *("queue", "subscriber", "group", "partition", "served by", "connected"),
    *("lag", "age", "per second"),
)
NUMBERS = ("partition", "lag", "age", "per second")


class _Reader(NamedTuple):
    """A reader of a partition: a subscriber, a group, or a stream with a checkpoint."""

    queue: str
    partition: int
    subscriber: str | None
    group: str | None
    checkpoint: str | None = None


class _Row(NamedTuple):
    """How far a reader is in one partition."""

    reader: _Reader
    holder: str | None
    """The worker that delivers to a subscriber, or the consumer that has a group's partition."""
    connected: bool
    lag: PartitionLag | None
    """None if the queue or the reader's position can't be read now."""


@OnlyReads()
def lag(
    context: typer.Context,
    queue: Annotated[
        str | None, typer.Argument(metavar="[QUEUE]", help="The queue; all if not given.")
    ] = None,
    *,
    subscriber: Annotated[
        str | None, typer.Option("--subscriber", "-s", help="Only this subscriber.")
    ] = None,
    group: Annotated[str | None, typer.Option("--group", "-g", help="Only this group.")] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            "--checkpoint",
            metavar="PATH",
            help="Only the Spark stream with this checkpoint, a path or a URI. An archive of "
            "Parquet files has its checkpoint in its folder: give that.",
        ),
    ] = None,
    every_s: Annotated[
        float, typer.Option("--every", min=0.2, help="Seconds between two measurements.")
    ] = 1,
    once: Annotated[bool, typer.Option("--once", help="Measure once, even on a terminal.")] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Measure once, and print JSON, one document per line.")
    ] = False,
) -> None:
    """Show the lag of subscribers and groups, in messages and as the age of the oldest.

    The lag counts messages of all topics, from a subscriber's stored checkpoint, from a group's
    offset, or from the last finished batch of a Spark stream. On a terminal the command repeats
    until Ctrl-C. Without a terminal: queue, subscriber, group, partition, the worker or consumer
    that serves it, whether the subscriber is connected or a consumer has the partition, lag in
    messages, age in milliseconds. For a share group, the lag counts unfinished messages, no
    consumer serves a partition, and the group counts as connected while it has a consumer of the
    queue.
    """
    if checkpoint is not None and (queue is None or subscriber is not None or group is not None):
        raise typer.BadParameter("--checkpoint needs a QUEUE, and takes no --subscriber or --group")
    client = session_of(context).client

    def look() -> list[_Row]:
        if queue is not None and checkpoint is not None:
            return [*_stream(client, queue, checkpoint)]
        rows = [] if group is not None else [*_subscribers(client, queue, subscriber)]
        return rows if subscriber is not None else [*rows, *_groups(client, queue, group)]

    rows = look()
    if not rows:
        if queue is not None:
            check_queue(client, queue)
        if subscriber is not None:
            check_subscriber(client, queue, subscriber)
        if group is not None:
            check_group(client, queue, group)
    if json:
        for row in rows:
            write_json(_as_json(row))
        return
    if once or not sys.stdout.isatty():
        cells = ((*_cells(row), *_figures(row)) for row in rows)
        show_table(COLUMNS[:-1], cells, numbers=NUMBERS)
        return
    from rich.live import Live  # noqa: PLC0415  (only for terminals)

    with Live(_table(rows, {}, every_s), auto_refresh=False) as live:
        while True:
            before = {row.reader: row.lag.passed for row in rows if row.lag is not None}
            began_s = time.monotonic()
            time.sleep(every_s)
            rows = look()
            live.update(_table(rows, before, time.monotonic() - began_s), refresh=True)


def _subscribers(client: Client, queue: str | None, subscriber: str | None) -> Iterator[_Row]:
    coordination = client.coordination
    present = coordination.subscriptions.list(queue)
    wanted = [key for key in present if subscriber in (None, key.subscriber)]
    checkpoints, unreadable = coordination.checkpoints.inspect(wanted)
    owners = coordination.owners.list()
    by_queue: dict[str, list[SubscriptionKey]] = defaultdict(list)
    for key in sorted(checkpoints.keys() | unreadable.keys()):
        by_queue[key.queue].append(key)
    for name, keys in by_queue.items():
        with client.queue(name) as opened:
            for key in keys:
                if key.partition >= opened.partitions:
                    continue  # The queue was made again with fewer.
                found = None
                if key in checkpoints:
                    at = checkpoints[key].next
                    found = opened.lag({key.partition: at})[key.partition]
                worker = owners.get(PartitionKey(name, key.partition))
                reader = _Reader(name, key.partition, key.subscriber, None)
                yield _Row(reader, worker, present[key] is not None, found)


def _groups(client: Client, queue: str | None, group: str | None) -> Iterator[_Row]:
    for listing in client.list_groups():
        if group not in (None, listing.group) or queue not in (None, *listing.queues):
            continue
        try:
            described = client.describe_group(listing.group, queue=queue)
        except GroupNotFoundError:
            continue  # It was deleted meanwhile.
        for each in described.partitions:
            reader = _Reader(each.queue, each.partition, None, listing.group)
            connected = each.owner is not None
            if described.kind == SHARE:
                connected = any(each.queue in queues for queues in described.members.values())
            yield _Row(reader, each.owner, connected, each.lag)


def _stream(client: Client, queue: str, checkpoint: str) -> Iterator[_Row]:
    positions = positions_of(checkpoint, queue)
    with client.queue(queue) as opened:
        # The queue may have been made again with fewer.
        there = {p: positions[p] for p in sorted(positions) if p < opened.partitions}
        for partition, found in opened.lag(there).items():
            yield _Row(_Reader(queue, partition, None, None, checkpoint), None, False, found)


def _cells(row: _Row) -> tuple[object, ...]:
    reader, connected = row.reader, "yes" if row.connected else "no"
    return reader.queue, reader.subscriber, reader.group, reader.partition, row.holder, connected


def _figures(row: _Row) -> tuple[object, object]:
    return (None, None) if row.lag is None else (row.lag.messages, row.lag.age_ms)


def _as_json(row: _Row) -> dict[str, object]:
    messages, age_ms = _figures(row)
    return {
        **row.reader._asdict(),
        "worker": row.holder if row.reader.group is None else None,
        "consumer": None if row.reader.group is None else row.holder,
        "connected": row.connected,
        "lag": messages,
        "age_ms": age_ms,
    }


def _table(rows: Sequence[_Row], before: dict[_Reader, int], seconds: float) -> Table:
    """Without the columns that all rows leave empty."""
    cells = []
    for row in rows:
        figures: tuple[object, ...] = (None, None, None)
        if row.lag is not None:
            speed = None
            if row.reader in before:
                speed = f"{max(0, (row.lag.passed - before[row.reader]) / seconds):,.0f}"
            figures = (f"{row.lag.messages:,}", _age_text(row.lag.age_ms), speed)
        cells.append(dict(zip(COLUMNS, (*_cells(row), *figures), strict=True)))
    unused = {name for name in ("subscriber", "group") if not any(row[name] for row in cells)}
    columns = [name for name in COLUMNS if name not in unused]
    return drawn_table(columns, [[row[name] for name in columns] for row in cells], numbers=NUMBERS)


def _age_text(age_ms: int) -> str:
    if age_ms < 10_000:
        return f"{age_ms} ms"
    seconds = age_ms // 1_000
    return f"{seconds} s" if seconds < 600 else f"{seconds // 60:,} min"


register = commands("Subscribers", lag)
