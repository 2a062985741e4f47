"""``python -m tests.bench.kafka.megabyte``: what a megabyte takes that is written, or read."""

from __future__ import annotations

import collections
import contextlib
import signal
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Annotated

import typer
from rich.console import Console

import hqueue

from ..cases import Bench
from ..measure import await_calm
from ..report import number, origin, stolen, table, write_part
from ..server import fresh_server
from .broker import running_broker
from .confluent import Confluent
from .library import Library, Log
from .ours import HQueue
from .payloads import PAYLOADS
from .thread_times import ThreadTimes

DOCS = Path(__file__).parents[3] / "docs"
CONSOLE = Console(soft_wrap=True)
COMMAND = "make bench-megabyte"
CHOSEN = tuple(payload for payload in PAYLOADS if payload.size >= 1_000)
WARM_BYTES, ROUND_BYTES = 1_000_000_000, 300_000_000
MEGABYTE = 1_000_000
CLIENT = "the client"
MODES = ("user", "system")

Times = Mapping[tuple[str, str], float]
"""By kind of thread, and ``user`` or ``system``."""
Move = Callable[[Log, Sequence[bytes], float], Iterator[int]]
"""Moves so many bytes of these values, in steps; gives how many bytes each step moved."""
Key = tuple[str, str, str]
"""What was done with a megabyte, with its payload and its server."""


def main(
    rounds: Annotated[int, typer.Option(min=1, help="Measured rounds of each.")] = 3,
    scale: Annotated[
        float, typer.Option(min=0.0001, max=1, help="Less than 1 for a quick look.")
    ] = 1.0,
) -> None:
    """Measure, on servers of its own. At full scale it goes into docs/benchmarks.md."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # So that both servers are ended.
    with (
        fresh_server(gateways=False) as server,
        tempfile.TemporaryDirectory(prefix="hqueue-bench-megabyte-") as data,
        running_broker(Path(data), CONSOLE.print) as broker,
        hqueue.connect(server.settings()) as client,
    ):
        (region_server,) = (each.pid for each in server.processes if each.name == "master")
        libraries: Mapping[str, tuple[Library, ThreadTimes]] = {
            "HBase": (HQueue(Bench(client, None, rounds, scale)), ThreadTimes(region_server)),
            "Kafka": (Confluent(broker.address), ThreadTimes(broker.process.pid)),
        }
        found = dict(_measure(libraries, rounds, scale))
    if scale == 1.0:
        CONSOLE.print(f"written: {write_part(DOCS, COMMAND, _part(found))}")


def _measure(
    libraries: Mapping[str, tuple[Library, ThreadTimes]], rounds: int, scale: float
) -> Iterator[tuple[Key, list[Times]]]:
    """Of each move, payload and server what a megabyte took, in each round."""
    with contextlib.ExitStack() as opened:
        # All are there to the end: to delete one takes its server a while, and would be counted.
        for payload in CHOSEN:
            values = payload.values(min(payload.messages, int(WARM_BYTES * scale / payload.size)))
            logs = {name: library.fresh() for name, (library, _) in libraries.items()}
            for log in logs.values():
                opened.callback(log.close)
                collections.deque(_write(log, values, WARM_BYTES * scale), maxlen=0)
            for what, move in MOVES.items():
                took: dict[str, list[Times]] = {name: [] for name in logs}
                for name in list(logs) * rounds:
                    await_calm()
                    times = libraries[name][1]
                    took[name].append(_spent(move, logs[name], values, times, ROUND_BYTES * scale))
                for name, each in took.items():
                    CONSOLE.print(f"{what} | {payload.name} | {name} | {_medians(each)}")
                    yield (what, payload.name, name), each


def _spent(move: Move, log: Log, values: Sequence[bytes], times: ThreadTimes, size: float) -> Times:
    """What a megabyte takes, until the server has done what came of it."""
    before, moved, used_s = times.spent_ms(), 0, dict.fromkeys(MODES, 0.0)
    began = getrusage(RUSAGE_SELF)
    for step in move(log, values, size):
        now = getrusage(RUSAGE_SELF)
        moved += step
        used_s["user"] += now.ru_utime - began.ru_utime
        used_s["system"] += now.ru_stime - began.ru_stime
        times.look()
        began = getrusage(RUSAGE_SELF)  # To look takes this process some time, too.
    await_calm()
    spent = {what: used - before.get(what, 0.0) for what, used in times.spent_ms().items()}
    spent |= {(CLIENT, mode): used * 1e3 for mode, used in used_s.items()}
    return {what: used / moved * MEGABYTE for what, used in spent.items()}


def _write(log: Log, values: Sequence[bytes], size: float) -> Iterator[int]:
    written = 0
    while written < size:
        step = log.put_batches(values) * len(values[0])
        written += step
        yield step


def _read(log: Log, values: Sequence[bytes], size: float) -> Iterator[int]:
    yield log.read(int(size / len(values[0]))) * len(values[0])


MOVES: Mapping[str, Move] = {"written": _write, "read": _read}


def _medians(rounds: Sequence[Times]) -> dict[tuple[str, str], float]:
    every = sorted({what for times in rounds for what in times})
    return {what: statistics.median(times.get(what, 0.0) for times in rounds) for what in every}


def _part(found: Mapping[Key, Sequence[Times]]) -> str:
    return f"""## What a megabyte takes

{origin(COMMAND)}. {stolen()}

Processor time in ms of the client, and of the server by kinds of threads: of the region server's
process, which is the master too, or of the broker's process. The measurement runs from the first
byte until the server is idle again, so it includes the flushes, compactions and garbage collections
that follow. Figures are medians of the rounds, after a gigabyte that is not counted.

Writing, in batches of 2 MB or 10,000 messages, user + system:

{_table(found, "written")}

Reading as messages, from the oldest on, user + system:

{_table(found, "read")}"""


def _table(found: Mapping[Key, Sequence[Times]], what: str) -> str:
    chosen = {
        (payload, name): _medians(rounds)
        for (done, payload, name), rounds in found.items()
        if done == what
    }
    kinds = sorted({kind for times in chosen.values() for kind, _ in times} - {CLIENT})
    rows = [(kind, *(_both(times, kind) for times in chosen.values())) for kind in (*kinds, CLIENT)]
    whole = (
        "**the server, all**",
        *(
            f"**{number(sum(ms for (kind, _), ms in times.items() if kind != CLIENT))}**"
            for times in chosen.values()
        ),
    )
    rows.insert(-1, whole)
    return table(("", *(f"{name}, {payload}" for payload, name in chosen)), rows)


def _both(times: Times, kind: str) -> str:
    return " + ".join(f"{max(0.0, times.get((kind, mode), 0.0)):.2f}" for mode in MODES)


if __name__ == "__main__":
    typer.run(main)
