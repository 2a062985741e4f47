"""``hqueue lag``: how far the subscribers are behind, live."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from hqueue.cli.output import show_table, write_json
from hqueue.cli.registering import add_command
from hqueue.cli.session import session_of
from hqueue.metadata import PartitionKey, SubscriptionKey

if TYPE_CHECKING:
    from rich.table import Table

    from hqueue import PartitionLag
    from hqueue.client import Client

__all__ = ["register"]

COLUMNS = ("queue", "subscriber", "partition", "worker", "connected", "lag", "age", "per second")
NUMBERS = ("partition", "lag", "age", "per second")


class _Row(NamedTuple):
    """How far one subscriber is in one partition."""

    key: SubscriptionKey
    worker: str | None
    connected: bool
    lag: PartitionLag


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    add_command(app, "lag", lag, "Subscribers")


def lag(
    context: typer.Context,
    queue: Annotated[str | None, typer.Argument(metavar="[QUEUE]", help="All if none.")] = None,
    *,
    subscriber: Annotated[
        str | None, typer.Option("--subscriber", "-s", help="Only this subscriber.")
    ] = None,
    every_s: Annotated[float, typer.Option("--every", min=0.2, help="Seconds between looks.")] = 1,
    once: Annotated[bool, typer.Option("--once", help="Look once, also on a terminal.")] = False,
    json: Annotated[bool, typer.Option("--json", help="JSON, a document a line; once.")] = False,
) -> None:
    """Show how far subscribers are behind: in messages, and in the age of the oldest of them.

    Both are counted from the checkpoint, which a worker writes every second or so, and count the
    messages of all topics. On a terminal it goes on until Ctrl-C. Without one: queue, subscriber,
    partition, worker, whether it is connected, lag in messages, age in milliseconds.
    """
    client = session_of(context).client
    rows = _look(client, queue, subscriber)
    if json:
        for row in rows:
            write_json(_as_json(row))
        return
    if once or not sys.stdout.isatty():
        cells = ((*_cells(row), row.lag.messages, row.lag.age_ms) for row in rows)
        show_table(COLUMNS[:-1], cells, numbers=NUMBERS)
        return
    from rich.live import Live  # noqa: PLC0415  (only for terminals)

    with Live(_table(rows, {}, every_s), auto_refresh=False) as live:
        while True:
            before = {row.key: row.lag.passed for row in rows}
            began_s = time.monotonic()
            time.sleep(every_s)
            rows = _look(client, queue, subscriber)
            live.update(_table(rows, before, time.monotonic() - began_s), refresh=True)


def _look(client: Client, queue: str | None, subscriber: str | None) -> list[_Row]:
    coordination = client.coordination
    present = coordination.subscriptions.list(queue)
    wanted = [key for key in present if subscriber in (None, key.subscriber)]
    checkpoints = coordination.checkpoints.read_many(wanted)
    owners = coordination.owners.list()
    by_queue: dict[str, list[SubscriptionKey]] = defaultdict(list)
    for key in sorted(checkpoints):
        by_queue[key.queue].append(key)
    rows = []
    for name, keys in by_queue.items():
        with client.queue(name) as opened:
            for key in keys:
                if key.partition >= opened.partitions:
                    continue  # The queue was made again with fewer.
                at = checkpoints[key].next
                found = opened.lag({key.partition: at})[key.partition]
                worker = owners.get(PartitionKey(name, key.partition))
                there = present[key] is not None
                rows.append(_Row(key, worker, there, found))
    return rows


def _cells(row: _Row) -> tuple[object, ...]:
    connected = "yes" if row.connected else "no"
    return row.key.queue, row.key.subscriber, row.key.partition, row.worker, connected


def _as_json(row: _Row) -> dict[str, object]:
    return {
        **row.key._asdict(),
        "worker": row.worker,
        "connected": row.connected,
        "lag": row.lag.messages,
        "age_ms": row.lag.age_ms,
    }


def _table(rows: Iterable[_Row], before: dict[SubscriptionKey, int], seconds: float) -> Table:
    from rich import box  # noqa: PLC0415  (only for terminals)
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in COLUMNS:
        table.add_column(column, justify="right" if column in NUMBERS else "left")
    for row in rows:
        speed = (row.lag.passed - before[row.key]) / seconds if row.key in before else None
        figures: Sequence[str] = (
            f"{row.lag.messages:,}",
            _age_text(row.lag.age_ms),
            "-" if speed is None else f"{max(0, speed):,.0f}",
        )
        table.add_row(*("-" if c is None else str(c) for c in _cells(row)), *figures)
    return table


def _age_text(age_ms: int) -> str:
    if age_ms < 10_000:
        return f"{age_ms} ms"
    seconds = age_ms // 1_000
    return f"{seconds} s" if seconds < 600 else f"{seconds // 60:,} min"
