"""``python -m tests.faults``: run, print the verdict, and exit with 1 if a promise was broken."""

from __future__ import annotations

import json
import random
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from hqueue import local

from .nemesis import FAULTS, schedule
from .report import draw, figures, summary
from .run import Options, run

REPORTS = Path(__file__).parents[2] / "reports"


def main(
    seed: Annotated[int | None, typer.Option(help="Of the schedule; random if none.")] = None,
    duration: Annotated[float, typer.Option(help="Seconds of faults.")] = 180,
    faults: Annotated[str, typer.Option(help="Kinds, with commas; all if none.")] = "",
    folder: Annotated[Path, typer.Option(help="For the report.")] = REPORTS,
    *,
    plan: Annotated[bool, typer.Option("--plan", help="Only print the schedule.")] = False,
) -> None:
    """Harm a cluster under load, and check what became of every message."""
    chosen = [name.strip() for name in faults.split(",") if name.strip()] or list(FAULTS)
    for name in chosen:
        if name not in FAULTS:
            raise typer.BadParameter(f"{name}: the faults are {', '.join(FAULTS)}")
    seed = random.randrange(10**6) if seed is None else seed
    if plan:
        for item in schedule(seed, duration, chosen):
            typer.echo(item)
        return
    began = time.monotonic()

    def say(text: str) -> None:
        typer.echo(f"{time.monotonic() - began:7.1f} s  {text}")

    say(f"seed {seed}; starting a cluster")
    options = Options(seed, duration, chosen, folder / f"faults-{seed}")
    with (
        tempfile.TemporaryDirectory(prefix="hqueue-faults-") as home,
        local.start("cluster", home=home) as server,
    ):
        try:
            result = run(options, server, say)
        except BaseException:
            for line in server.last_log_lines(20):
                typer.echo(f"{line.process}: {line.text}")
            raise
    draw(result, options.folder / "timeline.png")
    (options.folder / "figures.json").write_text(json.dumps(figures(result), indent=2))
    typer.echo(summary(result))
    typer.echo(f"report: {options.folder}")
    raise typer.Exit(1 if result.violations else 0)


if __name__ == "__main__":
    typer.run(main)
