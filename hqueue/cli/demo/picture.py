"""The picture of what happened in the demo."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hqueue.cli.demo.tally import Tally
from hqueue.cli.progress import count_text
from hqueue.runtime.extras import installing
from hqueue.texts.shown import size_text

if TYPE_CHECKING:
    from hqueue.cli.demo.counting import Counted
    from hqueue.log.offsets import PartitionOffsets
    from hqueue.log.table_ports import PartitionLocation

__all__ = ["Result", "show_picture"]

WIDTH_MIN = 100


@dataclasses.dataclass(frozen=True)
class Result:
    """What happened in the demo."""

    queue: str
    put: Tally
    followed: Tally
    delivered: Tally
    scanned: Tally
    counted: Counted | None
    """None where PySpark is not installed."""
    put_seconds: float
    """How long the first burst took, what was there at the beginning."""
    put_burst: int
    scan_seconds: float
    age_ms: float
    delivered_age_ms: float
    lag_max: int
    locations: Sequence[PartitionLocation]
    offsets: Sequence[PartitionOffsets]

    def lag(self, partition: int) -> int:
        """Messages of a partition that were put and not yet read by the follower."""
        return self.offsets[partition].count - self.followed.counts[partition]


def show_picture(result: Result) -> None:
    """Draw it on stdout."""
    from rich import box  # noqa: PLC0415  (rich is slow to import)
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    table = Table(title=result.queue, box=box.SIMPLE_HEAD, show_footer=True, pad_edge=False)
    lag = sum(result.lag(location.partition) for location in result.locations)
    table.add_column("partition", justify="right", footer="all")
    table.add_column("region host")
    table.add_column("messages", justify="right", footer=f"{result.scanned.total:,}")
    table.add_column("first ID")
    table.add_column("last ID")
    table.add_column("lag", justify="right", footer=f"{lag:,}")
    for location in result.locations:
        number = location.partition
        table.add_row(
            str(number),
            f"{location.host}:{location.port}",
            f"{result.scanned.counts[number]:,}",
            str(result.scanned.first[number] or "-"),
            str(result.scanned.last[number] or "-"),
            f"{result.lag(number):,}",
        )
    console = Console()
    if not sys.stdout.isatty():
        console = Console(width=max(WIDTH_MIN, console.width))
    console.print(table)
    if result.counted is not None:
        result.counted.show()
    topics = sorted(result.put.topics.items(), key=lambda item: -item[1])
    rate_put = result.put_burst / max(result.put_seconds, 1e-6)
    rate_scan = result.scanned.total / max(result.scan_seconds, 1e-6)
    console.print(
        f"topics    {', '.join(f'{name} {count:,}' for name, count in topics[:8])}\n"
        f"put       {count_text(result.put.total, 'message')}, {size_text(result.put.bytes)}; "
        f"the first {result.put_burst:,} at {rate_put:,.0f} messages/s\n"
        f"followed  while they were written, {result.age_ms:,.0f} ms after it (median); "
        f"{result.lag_max:,} behind at most, {lag:,} now\n"
        f"delivered {result.delivered.total:,} to a listener, by a worker; "
        f"{result.delivered_age_ms:,.0f} ms after they were written (median)\n"
        f"scanned   all of them again, at {rate_scan:,.0f} messages/s\n"
        f"counted   {_counted(result.counted)}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


def _counted(counted: Counted | None) -> str:
    if counted is None:
        return f"not in Spark, which is not installed: {installing('spark')}"
    return (
        f"{count_text(counted.messages, 'message')} in a Spark job, by windows of "
        f"{counted.window_ms / 1e3:g} s, in {counted.seconds:.1f} s"
    )
