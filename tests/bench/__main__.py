"""``python -m tests.bench``: run benchmarks, and write the page with their results."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import hqueue
from hqueue.settings.connection import NATIVE

from .cases import CASES, Bench
from .groups import GROUP_CASES
from .hubs import HUB_CASES
from .measure import Comparison, await_calm
from .native import NATIVE_CASES
from .native_roles import NATIVE_ROLE_CASES
from .push import PUSH_CASES
from .report import comparisons, line, origin, stolen, write_part
from .security import SECURITY_CASES
from .server import fresh_server
from .shares import SHARE_CASES, share_part
from .spark import SPARK_CASES

ALL_CASES = (
    CASES
    | GROUP_CASES
    | HUB_CASES
    | NATIVE_CASES
    | NATIVE_ROLE_CASES
    | PUSH_CASES
    | SECURITY_CASES
    | SHARE_CASES
    | SPARK_CASES
)
DOCS = Path(__file__).parents[2] / "docs"
SHARES = "make bench BENCH=shares"
CONSOLE = Console()


def main(
    cases: Annotated[list[str] | None, typer.Argument(help="Which; all if none.")] = None,
    rounds: Annotated[int, typer.Option(help="Measured rounds of each.")] = 7,
    scale: Annotated[float, typer.Option(help="Less than 1 for a quick look.")] = 1.0,
) -> None:
    """Measure, on a server of its own. All cases at full scale go into docs/benchmarks.md, and
    share groups' into docs/work-queue-costs.md.
    """
    chosen = cases or list(ALL_CASES)
    for name in chosen:
        if name not in ALL_CASES:
            raise typer.BadParameter(f"{name}: the cases are {', '.join(ALL_CASES)}")
    results: list[Comparison] = []
    of_shares: list[Comparison] = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # So that the servers are ended.
    with (
        fresh_server() as server,
        hqueue.connect(server.settings(hbase=NATIVE)) as client,
    ):
        bench = Bench(client, server.gateways[0], rounds, scale)
        for name in chosen:
            await_calm()
            for result in ALL_CASES[name](bench):
                (of_shares if name in SHARE_CASES else results).append(result)
                CONSOLE.print(line(result))
    if not cases and scale == 1.0:
        written = write_part(DOCS, "make bench", _part(results))
        CONSOLE.print(f"written: {written.name}")
    if of_shares and scale == 1.0:
        part = share_part(SHARES, of_shares)
        written = write_part(DOCS, SHARES, part, page="work-queue-costs.md")
        CONSOLE.print(f"written: {written.name}")


def _part(results: list[Comparison]) -> str:
    return f"""## Beside what the servers can do

{origin("make bench")}, the standalone local
server (HBase and the client share the cores), natively unless gateways are named.

Messages have 100 bytes. The compared programs take turns: appends alternate put by put in a random
order, everything else round by round. A ratio is the median over the rounds, with the lowest and
the highest. Absolute figures are medians on this machine. {stolen()}

{comparisons(results)}

The bare puts are conditional puts that were built before the measurement, and are sent in a loop.
They have the same rows, columns and bytes that `Queue.put` sends, so no client that waits for each
put can be faster. In addition, `Queue.put` checks its messages and copies their bytes into one
cell: a list of `Message` has thousands of Python objects, `Messages` only their values, and a
record batch none.
`Producer.send_batch` encodes a batch while other batches are under way, in several partitions. The
bytes are random, so that nothing is compressed. "A row a message" is happybase's `table.batch` and
`scan`, with as many rows in a call as the batch has messages. Memory is the peak of a whole
process, including Python and the libraries. Where native is compared with gateways, both use the
same server, and processor time is that of the worker's or the hub's process alone.
"""


if __name__ == "__main__":
    typer.run(main)
