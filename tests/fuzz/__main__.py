"""``python -m tests.fuzz``: run the targets in turns, and exit with 1 if one found something.

Each turn has a seed of its own, counted up from the run's. The seed of the turn is printed with a
finding: a run with that seed and target begins with it. The figures go to
``reports/fuzz-SEED.json``.
"""

from __future__ import annotations

import itertools
import json
import logging
import random
import time
import traceback
from pathlib import Path
from typing import Annotated

import typer

from .target import fuzz
from .targets import TARGETS

EXECUTIONS = 400
SLOW = {
    "log": 200,
    "verify": 100,
    "wire": 150,
    "native": 150,
    "native-loop": 30,
    "command-line": 100,
}
"""The executions of a turn: some seconds for each target."""

REPORTS = Path(__file__).parents[2] / "reports"


def main(
    seed: Annotated[int | None, typer.Option(help="Of all inputs; random if none.")] = None,
    duration: Annotated[float, typer.Option(help="Seconds.")] = 60,
    targets: Annotated[str, typer.Option(help="With commas; all if none.")] = "",
    folder: Annotated[Path, typer.Option(help="For the figures.")] = REPORTS,
) -> None:
    """Give bad input to everything that takes input, and see that it says so."""
    chosen = [name.strip() for name in targets.split(",") if name.strip()] or list(TARGETS)
    for name in chosen:
        if name not in TARGETS:
            raise typer.BadParameter(f"{name}: the targets are {', '.join(TARGETS)}")
    seed = random.randrange(10**6) if seed is None else seed
    logging.getLogger("hqueue").setLevel(logging.CRITICAL)
    typer.echo(f"seed {seed}")
    ends_s = time.monotonic() + duration
    figures = {name: {"executions": 0, "seconds": 0.0, "findings": 0} for name in chosen}
    turns = itertools.count(seed)
    while time.monotonic() < ends_s:
        turn_seed = next(turns)
        for name in chosen:
            began_s = time.monotonic()
            try:
                number = fuzz(TARGETS[name], turn_seed, SLOW.get(name, EXECUTIONS))
                figures[name]["executions"] += number
            except Exception:
                figures[name]["findings"] += 1
                typer.echo(f"{name}, seed {turn_seed}:\n{traceback.format_exc(limit=-8)}")
            finally:
                figures[name]["seconds"] += time.monotonic() - began_s
    for name, of in figures.items():
        typer.echo(
            f"{name:<14}{of['executions']:>10,} executions{of['seconds']:>6.0f} s"
            f"{of['findings']:>5} findings"
        )
    folder.mkdir(parents=True, exist_ok=True)
    report = {"seed": seed, "targets": figures}
    (folder / f"fuzz-{seed}.json").write_text(json.dumps(report, indent=2) + "\n")
    raise typer.Exit(1 if any(of["findings"] for of in figures.values()) else 0)


if __name__ == "__main__":
    typer.run(main)
