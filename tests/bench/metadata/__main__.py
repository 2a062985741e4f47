"""``python -m tests.bench.metadata``: measure how topics' metadata scales."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import happybase
import typer
from rich.console import Console

import hqueue
from hqueue.settings.connection import NATIVE

from ..measure import Comparison, await_calm
from ..report import line, write_part
from ..server import fresh_server
from .cases import UPDATES, Latency, Work, flatness, latencies
from .page import PICTURE, draw, part
from .population import RECORDS_A_TOPIC
from .stores import Point, growth_on_zookeeper, hbase_population, hbase_updates

STORES = ("hbase", "zookeeper")
MANY, FEW = 1_000_000, 10_000
DOCS = Path(__file__).parents[3] / "docs"
CONSOLE = Console(soft_wrap=True)

OnHBase = Mapping[int, Mapping[str, Sequence[Latency]]]


def main(
    stores: Annotated[list[str] | None, typer.Argument(help="hbase, zookeeper; or both.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Measured rounds of each.")] = 7,
    scale: Annotated[
        float, typer.Option(min=0.001, max=1, help="Less than 1 for a quick look.")
    ] = 1.0,
    folder: Annotated[
        Path | None, typer.Option(help="For the page; docs/ if both run at full scale.")
    ] = None,
) -> None:
    """Measure, on servers of its own. Both stores at full scale go into docs/benchmarks.md."""
    chosen = stores or STORES
    for store in chosen:
        if store not in STORES:
            raise typer.BadParameter(f"{store}: the stores are {', '.join(STORES)}")
    if folder is not None and set(chosen) != set(STORES):
        raise typer.BadParameter("the page has both, or there is none", param_hint="--folder")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # So that the servers are ended.
    if folder is None and set(chosen) == set(STORES) and scale == 1.0:
        folder = DOCS
    amount = Work(rounds, scale)
    results: list[Comparison] = []
    points: list[Point] = []
    on_hbase: OnHBase = {}
    if "hbase" in chosen:
        of_hbase, on_hbase = _hbase(amount)
        results += of_hbase
    if "zookeeper" in chosen:
        for found in growth_on_zookeeper(amount):
            if isinstance(found, Point):
                points.append(found)
                CONSOLE.print(f"ZooKeeper: {found}")
            else:
                results.append(found)
                CONSOLE.print(line(found))
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        draw(points, on_hbase, folder / PICTURE)
        page = write_part(folder, "make bench-metadata", part(results, points, UPDATES))
        CONSOLE.print(f"written: {page.name}")


def _hbase(amount: Work) -> tuple[list[Comparison], OnHBase]:
    """What is measured on HBase; and the latencies by the number of records."""
    results: list[Comparison] = []
    sizes = [amount.many(FEW), amount.many(MANY)]
    names = [f"{topics:,} topics" for topics in sizes]
    with fresh_server() as server:
        clients = [
            hqueue.connect(server.settings(hbase=NATIVE, metadata_table=f"bench_metadata_{topics}"))
            for topics in sizes
        ]
        populations = []
        gateway = server.gateways[0]
        connection = happybase.Connection(gateway.host, gateway.thrift1_port)
        for client, topics in zip(clients, sizes, strict=True):
            began_s = time.perf_counter()
            populations.append(hbase_population(client, connection, topics))
            took_s = time.perf_counter() - began_s
            CONSOLE.print(f"HBase: {topics * RECORDS_A_TOPIC:,} records written in {took_s:.0f} s")
        await_calm()
        found = latencies(dict(zip(names, populations, strict=True)), amount)
        results += flatness(found, many=names[1], few=names[0])
        results.append(hbase_updates(amount, clients[1], populations[1]))
        for client in clients:
            client.close()
    for result in results:
        CONSOLE.print(line(result))
    return results, {
        topics * RECORDS_A_TOPIC: {operation: each[name] for operation, each in found.items()}
        for topics, name in zip(sizes, names, strict=True)
    }


if __name__ == "__main__":
    typer.run(main)
