"""``python -m tests.fuzz``: run the targets in turns, and exit with 1 if one found something.

Each turn has a seed of its own, counted up from the run's. The seed of the turn is printed with a
finding: a run with that seed and target begins with it.
"""

from __future__ import annotations

import faulthandler
import itertools
import logging
import random
import time
import traceback
from typing import Annotated

import typer

from .target import fuzz
from .targets import TARGETS

EXECUTIONS = 400
SLOW = {"log": 200, "check": 100, "wire": 150, "command-line": 100}
"""The executions of a turn: some seconds for each target."""

HANG_S = 120.0
"""After so long a turn is ended from outside, with the stacks of all threads."""


def main(
    seed: Annotated[int | None, typer.Option(help="Of all inputs; random if none.")] = None,
    duration: Annotated[float, typer.Option(help="Seconds.")] = 60,
    targets: Annotated[str, typer.Option(help="With commas; all if none.")] = "",
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
    executions = dict.fromkeys(chosen, 0)
    seconds = dict.fromkeys(chosen, 0.0)
    findings = dict.fromkeys(chosen, 0)
    turns = itertools.count(seed)
    while time.monotonic() < ends_s:
        turn_seed = next(turns)
        for name in chosen:
            began_s = time.monotonic()
            faulthandler.dump_traceback_later(HANG_S, exit=True)
            try:
                executions[name] += fuzz(TARGETS[name], turn_seed, SLOW.get(name, EXECUTIONS))
            except Exception:
                findings[name] += 1
                typer.echo(f"{name}, seed {turn_seed}:\n{traceback.format_exc(limit=-8)}")
            finally:
                faulthandler.cancel_dump_traceback_later()
                seconds[name] += time.monotonic() - began_s
    for name in chosen:
        typer.echo(
            f"{name:<14}{executions[name]:>10,} executions{seconds[name]:>6.0f} s"
            f"{findings[name]:>5} findings"
        )
    raise typer.Exit(1 if any(findings.values()) else 0)


if __name__ == "__main__":
    typer.run(main)
