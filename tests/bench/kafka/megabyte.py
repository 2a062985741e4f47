"""``python -m tests.bench.kafka.megabyte``: what the two servers do with a megabyte written."""

from __future__ import annotations

import signal
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
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
from .payloads import PAYLOADS, Payload
from .thread_times import thread_times_ms

DOCS = Path(__file__).parents[3] / "docs"
CONSOLE = Console(soft_wrap=True)
COMMAND = "make bench-megabyte"
CHOSEN = tuple(payload for payload in PAYLOADS if payload.size >= 1_000)
WARM_BYTES, ROUND_BYTES = 1_000_000_000, 300_000_000
MEGABYTE = 1_000_000

Times = Mapping[tuple[str, str], float]


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
        libraries: Mapping[str, tuple[Library, int]] = {
            "HBase": (HQueue(Bench(client, None, rounds, scale)), region_server),
            "Kafka": (Confluent(broker.address), broker.process.pid),
        }
        found = dict(_measure(libraries, rounds, scale))
    if scale == 1.0:
        CONSOLE.print(f"written: {write_part(DOCS, COMMAND, _part(found))}")


def _measure(
    libraries: Mapping[str, tuple[Library, int]], rounds: int, scale: float
) -> Iterator[tuple[tuple[str, str], list[Times]]]:
    """Of each payload and server what a megabyte took, in each round."""
    for payload in CHOSEN:
        logs = {name: library.fresh() for name, (library, _) in libraries.items()}
        for log in logs.values():
            _write(log, payload, WARM_BYTES * scale)
        took: dict[str, list[Times]] = {name: [] for name in logs}
        for _ in range(rounds):
            for name, log in logs.items():
                await_calm()
                took[name].append(_spent(log, payload, libraries[name][1], ROUND_BYTES * scale))
        for name, log in logs.items():
            log.close()
            CONSOLE.print(f"{payload.name} | {name} | {_medians(took[name])}")
            yield (payload.name, name), took[name]


def _spent(log: Log, payload: Payload, pid: int, size: float) -> Times:
    """What a megabyte takes of a server, until it has done what came of it."""
    before = thread_times_ms(pid)
    written = _write(log, payload, size)
    await_calm()
    after = thread_times_ms(pid)
    return {
        what: (spent - before.get(what, 0.0)) / written * MEGABYTE for what, spent in after.items()
    }


def _write(log: Log, payload: Payload, size: float) -> int:
    """Write so many bytes at least; how many it were."""
    values = payload.values(min(payload.messages, max(1, int(size / payload.size))))
    written = 0
    while written < size:
        written += log.put_batches(values) * payload.size
    return written


def _medians(rounds: Sequence[Times]) -> dict[tuple[str, str], float]:
    every = sorted({what for times in rounds for what in times})
    return {what: statistics.median(times.get(what, 0.0) for times in rounds) for what in every}


def _part(found: Mapping[tuple[str, str], Sequence[Times]]) -> str:
    medians = {of: _medians(rounds) for of, rounds in found.items()}
    kinds = sorted({kind for times in medians.values() for kind, _ in times})
    rows = [
        (
            kind,
            *(
                " + ".join(number(times.get((kind, mode), 0.0)) for mode in ("user", "system"))
                for times in medians.values()
            ),
        )
        for kind in kinds
    ]
    whole = (
        "**all**",
        *(f"**{number(sum(times.values()))}**" for times in medians.values()),
    )
    head = ("ms a megabyte, user + system", *(f"{name}, {payload}" for payload, name in medians))
    return f"""## What the servers do with a megabyte

{origin(COMMAND)}. {stolen()}

Processor time of the region server's process (which is the master too) and of the broker's, by
kinds of threads, for a megabyte that a client writes: in batches of 2 MB or 10,000 messages, from
the first byte until the server is idle again, so flushes, compactions and collections that come of
it are in it. Medians of the rounds, after a gigabyte that isn't counted.

{table(head, [*rows, whole])}"""


if __name__ == "__main__":
    typer.run(main)
