"""``python -m tests.faults.planted [BUG…]``: plant bugs, one after the other, and see whether the
faults find them.

Exit codes: 0 it was with each as it should be; 1 a bug was not found, or found by what should not;
2 wrong usage; 3 a run proves nothing.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from tests.mutants.tree import Tree

from .planted_bugs import BUGS
from .versions import ENVIRONMENT

RUN_S_MAX = 1_800.0
ENDS_WITHIN_S = 120.0
REPORTS = Path(__file__).parents[2] / "reports" / "planted"


def main(
    bugs: Annotated[
        list[str] | None, typer.Argument(help="Names of bugs or kinds of faults; all if none.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the schedule.")] = 1,
    duration: Annotated[float, typer.Option(help="Seconds of faults.")] = 60,
    folder: Annotated[Path, typer.Option(help="For the reports.")] = REPORTS,
    *,
    others: Annotated[
        bool, typer.Option("--others", help="Run the kinds that must not find the bug.")
    ] = False,
    without: Annotated[
        bool, typer.Option("--without", help="Plant nothing: nothing must be found.")
    ] = False,
) -> None:
    """Plant bugs in a copy of the code, and run the faults that must find them."""
    for name in bugs or ():
        if not any(name in (bug.name, *bug.kinds) for bug in BUGS):
            known = ", ".join(bug.name for bug in BUGS)
            raise typer.BadParameter(f"{name}: the bugs are {known}; or name a kind of fault")
    chosen = [bug for bug in BUGS if not bugs or {bug.name, *bug.kinds}.intersection(bugs)]
    wanted = not others and not without
    wrong = 0
    for bug in chosen:
        kinds = bug.others if others else bug.faults
        with tempfile.TemporaryDirectory(prefix="hqueue-planted-") as place:
            tree = Tree(Path(place), 0)
            if not without:
                source = (tree.root / bug.path).read_text()
                tree.write(bug.path, bug.plant(source).encode())
            # Upgrades begin there; the copy is of what git knows alone.
            (tree.root / ENVIRONMENT.name).symlink_to(ENVIRONMENT)
            options = ("--seed", str(seed), "--duration", str(duration))
            report = folder / bug.name / ("others" if others else "without" if without else "bug")
            figures = _figures(tree, report, seed, (*options, "--faults", ",".join(kinds)))
        found = bug.is_found(figures)
        wrong += found is not wanted
        typer.echo(
            f"{bug.name}, {'not planted, ' if without else ''}with {', '.join(kinds)}: "
            f"{'found' if found else 'not found'}: {bug.shows}: {bug.amount(figures):g}"
        )
    raise typer.Exit(1 if wrong else 0)


def _figures(tree: Tree, report: Path, seed: int, options: tuple[str, ...]) -> dict[str, Any]:
    """Run faults in a tree; the figures of the run."""
    path = report / f"faults-{seed}" / "figures.json"
    path.unlink(missing_ok=True)
    command = [sys.executable, "-m", "tests.faults", *options, "--folder", str(report.absolute())]
    process = subprocess.Popen(
        command, cwd=tree.root, env=tree.environment(), start_new_session=True
    )
    try:
        process.wait(RUN_S_MAX)
    except subprocess.TimeoutExpired:
        typer.echo(f"the run took longer than {RUN_S_MAX:.0f} s")
    finally:
        _end(process)
    if not path.exists():
        typer.echo("the run has no report: it proves nothing")
        raise typer.Exit(3)
    figures: dict[str, Any] = json.loads(path.read_text())
    return figures


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a run that is under way, so that it ends its servers."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # So that the run is ended.
    typer.run(main)
