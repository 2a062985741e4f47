"""Runs that the page has already, and the fuzzer's: their figures, read from its tables."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["fuzzed_on", "runs_on"]

_ROWS = {
    "clusters, one after the other": ("parts",),
    "seconds": ("duration_s",),
    "puts: ok": ("puts", "ok"),
    "puts: fail": ("puts", "fail"),
    "puts: unknown": ("puts", "unknown"),
    "messages in the log": ("messages",),
    "with a key or headers": ("with_key_or_headers",),
    "messages read": ("reads",),
    "scans to the end": ("scans",),
    "messages delivered": ("deliveries",),
    "messages consumed by a group": ("consumed",),
    "messages published by way of hubs": ("published",),
    "messages given to their subscribers": ("listened",),
    "messages given to share consumers": ("shared",),
}
_HEAD = re.compile(r"seed (\d+)")
_FUZZED = re.compile(r"^(\d+) minutes \(seed (\d+)\):$", re.MULTILINE)
_INPUT = re.compile(r"^\| `([\w-]+)` \| ([\d,]+) \| (\d+) \|$", re.MULTILINE)
_FAULT = re.compile(r"(\d+)(?: \(([\d.]+) s\))?")


def runs_on(page: str) -> list[dict[str, Any]]:
    """The figures of the runs on a page, as far as it shows them."""
    runs: list[dict[str, Any]] = []
    for line in page.splitlines():
        if line.startswith("## How it is tested"):
            break
        title, *cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
        if seeds := _HEAD.findall(line if line.startswith("|  |") else ""):
            runs = runs or [
                {"seed": int(seed), "faults": {}, "violations": {}, "longest_stall_s": {}}
                for seed in seeds
            ]
        elif len(cells) == len(runs):
            for run, cell in zip(runs, cells, strict=True):
                _take(run, title, cell)
    return runs


def fuzzed_on(page: str) -> dict[str, Any]:
    """The figures of the fuzzer's run on a page; its time counts for the first input."""
    found = _FUZZED.search(page)
    assert found is not None, "the page has no run of the fuzzer"
    rows = _INPUT.findall(page, found.end())
    targets = {
        name: {"executions": int(times.replace(",", "")), "findings": int(wrong), "seconds": 0.0}
        for name, times, wrong in rows
    }
    targets[rows[0][0]]["seconds"] = int(found[1]) * 60.0
    return {"seed": int(found[2]), "targets": targets}


def _take(run: dict[str, Any], title: str, cell: str) -> None:
    """Take what a cell shows of a run; "–" means that nobody looked for it."""
    if title.startswith("`") and (found := _FAULT.fullmatch(cell)):
        kind = title.strip("`")
        run["faults"][kind] = int(found[1])
        if found[2]:
            run["longest_stall_s"][kind] = float(found[2])
    elif cell == "–" or not cell.replace(",", "").isdigit():
        return
    elif title.startswith("**"):
        run["violations"][title.strip("*")] = int(cell.replace(",", ""))
    elif title in _ROWS:
        *above, key = _ROWS[title]
        for name in above:
            run = run.setdefault(name, {})
        run[key] = int(cell.replace(",", ""))
