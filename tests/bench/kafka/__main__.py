"""``python -m tests.bench.kafka``: measure beside Kafka, and write down the results."""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import psutil
import typer
from rich.console import Console

import hqueue

from ..cases import Bench
from ..measure import Comparison, await_calm
from ..report import line, versions, write_part
from ..server import fresh_server
from .broker import running_broker
from .cases import CASES, Arena, warm
from .confluent import Confluent
from .growth import AXES, Point
from .kafka_python import KafkaPython
from .ours import HQueue
from .page import CASES_PICTURE, GROWTH_PICTURE, LOOP_COMMAND, Section, loop_part, part
from .pictures import draw_cases, draw_growth

GROWTH = "growth"
IN_LOOP = "asyncio"
"""The case with a part of its own on the page, which can be measured and written alone."""
LIBRARIES = ("aiokafka", "confluent-kafka", "kafka-python", "pyarrow")
DOCS = Path(__file__).parents[3] / "docs"
IDLE_S = 5
ADMINISTRATION_MS = 300_000
"""Disabling a table of many regions writes all that they have in memory out."""
CONSOLE = Console(soft_wrap=True)


def main(
    cases: Annotated[list[str] | None, typer.Argument(help="Which; all if none.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Measured rounds of each.")] = 5,
    scale: Annotated[
        float, typer.Option(min=0.0001, max=1, help="Less than 1 for a quick look.")
    ] = 1.0,
    folder: Annotated[
        Path | None,
        typer.Option(help="For the page; docs/ if all cases, or asyncio, run at full scale."),
    ] = None,
) -> None:
    """Measure, on servers of its own. All cases at full scale go into docs/benchmarks.md, and so
    does the case asyncio alone.
    """
    known = [*CASES, GROWTH]
    chosen = cases or known
    for name in chosen:
        if name not in known:
            raise typer.BadParameter(f"{name}: the cases are {', '.join(known)}")
    is_page = chosen in (known, [IN_LOOP])
    if folder is not None and not is_page:
        raise typer.BadParameter(f"a page has all cases, or {IN_LOOP} alone", param_hint="--folder")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # So that both servers are ended.
    if folder is None and is_page and scale == 1.0:
        folder = DOCS
    with (
        fresh_server(gateways=False) as server,
        tempfile.TemporaryDirectory(prefix="hqueue-bench-kafka-") as data,
        running_broker(Path(data), CONSOLE.print) as broker,
        hqueue.connect(server.settings(operation_timeout_ms=ADMINISTRATION_MS)) as client,
    ):
        bench = Bench(client, None, rounds, scale)
        arena = Arena(
            bench,
            HQueue(bench),
            Confluent(broker.address),
            Confluent(broker.address, "lz4"),
            KafkaPython(broker.address),
        )
        warm(arena)
        results = {name: _measure(arena, name) for name in chosen if name in CASES}
        points = _grow(arena) if GROWTH in chosen else {}
        idle = (_idle(p.pid for p in server.processes), _idle([broker.process.pid]))
    CONSOLE.print(f"idle: HBase {idle[0]:.1f} % of a core, Kafka {idle[1]:.1f} %")
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder, results, points, broker.version, idle)


def _measure(arena: Arena, name: str) -> list[Comparison]:
    found = []
    await_calm()
    for result in CASES[name].measure(arena):
        found.append(result)
        CONSOLE.print(f"{name} | {line(result)}")
    return found


def _grow(arena: Arena) -> dict[str, list[Point]]:
    found: dict[str, list[Point]] = {}
    for axis, points in AXES.items():
        found[axis] = []
        for point in points(arena):
            found[axis].append(point)
            CONSOLE.print(f"{axis} | {point.size:,} | {point.figures}")
    return found


def _idle(pids: Iterable[int]) -> float:
    """What processes take of a core while nothing is asked of them, in percent."""

    def used_s() -> float:
        times = [process.cpu_times() for process in processes]
        return sum(each.user + each.system for each in times)

    processes = [psutil.Process(pid) for pid in pids]
    before_s = used_s()
    time.sleep(IDLE_S)
    return 100 * (used_s() - before_s) / IDLE_S


def _write(
    folder: Path,
    results: dict[str, list[Comparison]],
    points: dict[str, list[Point]],
    kafka: str,
    idle: tuple[float, float],
) -> None:
    sections = {
        name: Section(CASES[name].title, CASES[name].doc, found) for name, found in results.items()
    }
    in_loop, libraries = sections.pop(IN_LOOP, None), versions(LIBRARIES)
    if sections:
        drawn = {section.title: section.results for section in sections.values()}
        draw_cases(drawn, folder / CASES_PICTURE)
        draw_growth(points, folder / GROWTH_PICTURE)
        text = part([*sections.values()], points, kafka=kafka, libraries=libraries, idle=idle)
        CONSOLE.print(f"written: {write_part(folder, 'make bench-kafka', text)}")
    if in_loop is not None:
        text = loop_part(in_loop, kafka=kafka, libraries=libraries)
        CONSOLE.print(f"written: {write_part(folder, LOOP_COMMAND, text)}")


if __name__ == "__main__":
    typer.run(main)
