"""``python -m tests.faults.page FOLDER… --fuzz FILE``: record the figures of runs, and write
docs/reliability.md from all that are on record.
"""

from __future__ import annotations

import json
import shutil
import string
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from .parts import PartsError, whole_runs
from .planted_bugs import BUGS, rows
from .report import ALL_KINDS
from .schedule import FAULTS, SERVERS
from .together import AT_ONCE

__all__ = ["RECORD", "Record", "page"]

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs"
TEMPLATE = HERE / "reliability.template.md"
RECORD = HERE / "record"
PICTURE = "reliability.png"

Figures = dict[str, Any]

_KEPT = (
    *("seed", "parts", "duration_s", "puts", "messages", "reads", "deliveries", "consumed"),
    *("published", "listened", "shared", "faults", "violations", "longest_stall_s"),
)
"""What stays on record of a run's figures."""


class Record:
    """The figures of the runs, and of the fuzzer's newest run, that are on record.

    Args:
        folder: the files ``runs.jsonl``, with a line for each run, and ``fuzzed.json``.
    """

    def __init__(self, folder: Path = RECORD) -> None:
        self._runs = folder / "runs.jsonl"
        self._fuzzed = folder / "fuzzed.json"

    @property
    def runs(self) -> list[Figures]:
        """The runs, the oldest first."""
        return [json.loads(line) for line in self._runs.read_text().splitlines()]

    @property
    def fuzzed(self) -> Figures:
        """The fuzzer's run."""
        figures: Figures = json.loads(self._fuzzed.read_text())
        return figures

    def add(self, runs: Iterable[Figures]) -> None:
        """Add runs; one of a seed that is on record takes its place."""
        new = {
            run["seed"]: {key: _shortened(run[key]) for key in _KEPT if key in run} for run in runs
        }
        kept = [run for run in self.runs if run["seed"] not in new]
        lines = [json.dumps(run) + "\n" for run in (*kept, *new.values())]
        self._runs.write_text("".join(lines))

    def take_fuzzed(self, figures: Figures) -> None:
        """Take a run of the fuzzer in place of the one before."""
        targets = {
            name: {key: of[key] for key in ("executions", "findings", "seconds")}
            for name, of in figures["targets"].items()
        }
        self._fuzzed.write_text(
            json.dumps({"seed": figures["seed"], "targets": targets}, indent=1) + "\n"
        )


def _shortened(value: Any) -> Any:
    """A figure; of durations one decimal place is kept."""
    if isinstance(value, dict):
        return {key: _shortened(each) for key, each in value.items()}
    return round(value, 1) if isinstance(value, float) else value


def page(runs: Sequence[Figures], fuzzed: Figures) -> str:
    """The page.

    Args:
        runs: the figures of runs with faults.
        fuzzed: the figures of a run of the fuzzer.
    """
    wrong = sum(map(_broken, runs))
    puts = sum(sum(run["puts"].values()) for run in runs)
    faults = sum(sum(run["faults"].values()) for run in runs)
    minutes = sum(run["duration_s"] for run in runs) / 60
    fuzz_minutes = sum(of["seconds"] for of in fuzzed["targets"].values()) / 60
    return string.Template(TEMPLATE.read_text()).substitute(
        verdict=f"**Found:** in {minutes:.0f} minutes of {len(runs)} runs, with {faults:,} faults "
        f"and {puts:,} puts, promises were broken {wrong} times.",
        runs=_run_table(runs),
        violations=_table(["kind", "what", "found"], _violation_rows(runs)),
        faults=_table(
            ["fault", "harms", "what it does", "times", "longest stall", "alone"],
            _fault_rows(runs),
        ),
        fuzz_minutes=f"{fuzz_minutes:.0f}",
        fuzz_seed=fuzzed["seed"],
        fuzzed=_table(["input", "executions", "findings"], _fuzz_rows(fuzzed)),
        planted=_table(["faults", "planted bug", "what finds it", "reported"], rows(BUGS)),
    )


def _broken(run: Figures) -> int:
    return sum(run["violations"].values())


_COLUMNS = {
    "in the log": "messages",
    "read": "reads",
    "delivered": "deliveries",
    "consumed": "consumed",
    "published": "published",
    "subscribed": "listened",
    "shared": "shared",
}
"""What processes did, and the figure that counts its messages."""


def _run_table(runs: Sequence[Figures]) -> str:
    """A row for each run; "–" means that nobody looked for it."""
    outcomes = ("ok", "fail", "unknown")
    puts = [f"puts: {outcome}" for outcome in outcomes]
    head = ["seed", "clusters", "seconds", *puts, *_COLUMNS, "faults", "broken promises"]
    return _table(
        head,
        (
            [
                str(run["seed"]),
                str(run.get("parts", 1)),
                f"{run['duration_s']:,}",
                *(f"{run['puts'][outcome]:,}" for outcome in outcomes),
                *(f"{run[key]:,}" if key in run else "–" for key in _COLUMNS.values()),
                f"{sum(run['faults'].values()):,}",
                f"**{_broken(run)}**",
            ]
            for run in runs
        ),
    )


def _violation_rows(runs: Sequence[Figures]) -> Iterable[list[str]]:
    for kind, text in ALL_KINDS.items():
        found = [run["violations"][kind] for run in runs if kind in run["violations"]]
        yield [f"`{kind}`", text, f"{sum(found)} in {len(found)} runs"]


def _fault_rows(runs: Sequence[Figures]) -> Iterable[list[str]]:
    """A row for each kind: how often it took place, and its longest stalls, in all runs and in
    those that had no other fault at the same time.
    """
    one_by_one = [run for run in runs if not any(map(run["faults"].get, _BESIDE))]
    for fault in FAULTS.values():
        times = sum(run["faults"].get(fault.name, 0) for run in runs)
        stalls = [_longest(fault.name, of) for of in (runs, one_by_one)]
        yield [f"`{fault.name}`", fault.track, fault.doc, f"{times:,}", *stalls]


_BESIDE = [
    name
    for name, fault in FAULTS.items()
    if fault.track != SERVERS or fault.upgrades or name in AT_ONCE
]
"""Faults that take place beside those of servers."""


def _longest(kind: str, runs: Iterable[Figures]) -> str:
    stalls = [run["longest_stall_s"][kind] for run in runs if kind in run["longest_stall_s"]]
    return f"{max(stalls)} s" if stalls else "–"


def _fuzz_rows(fuzzed: Figures) -> Iterable[list[str]]:
    for name, of in fuzzed["targets"].items():
        yield [f"`{name}`", f"{of['executions']:,}", str(of["findings"])]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main(
    folders: Annotated[
        list[Path] | None, typer.Argument(help="Of the reports of runs that are added, if any.")
    ] = None,
    fuzz: Annotated[
        Path | None, typer.Option(help="The figures of a run of the fuzzer, if there is a new one.")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(help="The report of the run whose picture the page shows.")
    ] = None,
    docs: Annotated[Path, typer.Option(help="Where the page goes.")] = DOCS,
) -> None:
    """Add runs to those on record, and write the page of them all."""
    record = Record()
    reported = [json.loads((folder / "figures.json").read_text()) for folder in folders or ()]
    try:
        record.add(whole_runs(reported))
    except PartsError as exc:
        raise typer.BadParameter(str(exc)) from exc
    if fuzz is not None:
        record.take_fuzzed(json.loads(fuzz.read_text()))
    if picture is not None:
        shutil.copy(picture / "timeline.png", docs / PICTURE)
    (docs / "reliability.md").write_text(page(record.runs, record.fuzzed))


if __name__ == "__main__":
    typer.run(main)
