"""How results are written down: lines, tables, and the machine that they come from."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import statistics
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

import psutil

from .measure import Comparison

__all__ = [
    "comparisons",
    "line",
    "number",
    "origin",
    "stolen",
    "table",
    "versions",
    "write_part",
]

PAGE = "benchmarks.md"

_BEGAN = psutil.cpu_times()
_HEAD = ("what", "contender", "", "rival", "", "ratio, median (lowest to highest)", "goal", "")


def number(value: float) -> str:
    """A figure with as many digits as mean something."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def line(result: Comparison) -> str:
    """A result on a line of its own."""
    return " | ".join(_cells(result))


def comparisons(results: Iterable[Comparison]) -> str:
    """Results as a table."""
    return table(_HEAD, map(_cells, results))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows))


def origin(command: str) -> str:
    """When, at which commit and on what machine a page was written, in a sentence."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    now = datetime.datetime.now(datetime.timezone.utc)
    memory = psutil.virtual_memory().total / 2**30
    return (
        f"Written by `{command}` on {now:%Y-%m-%d}, at commit\n"
        f"{commit or 'unknown'}: {os.cpu_count()} cores{_processor()}, {memory:.0f} GiB,\n"
        f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    )


def stolen() -> str:
    """What other guests of a virtual machine's host took, since this program began, in a sentence.

    Absolute figures mean little where it is much; ratios suffer less.
    """
    now = psutil.cpu_times()
    taken = {name: getattr(now, name) - getattr(_BEGAN, name) for name in now._fields}
    wanted = sum(taken.values()) - taken["idle"] - taken.get("iowait", 0.0)
    share = taken.get("steal", 0.0) / wanted if wanted else 0.0
    return (
        f"Other guests of the host took {share:.0%} of the processor time that this one asked for."
    )


def write_part(folder: Path, command: str, part: str, page: str = PAGE) -> Path:
    """Write a command's part of a page, which several commands write; the page's path.

    It comes where it was, or at the end. The others' parts stay as they are.
    """
    path = folder / page
    begin, end = f"<!-- {command} writes this: -->", f"<!-- That was written by {command}. -->"
    text = path.read_text(encoding="utf-8") if path.exists() else "# Benchmarks\n"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    parts = (before.rstrip(), begin, part.strip(), end, after.strip())
    path.write_text("\n\n".join(filter(None, parts)) + "\n", encoding="utf-8")
    return path


def versions(packages: Iterable[str]) -> str:
    """The installed versions of packages, in a row."""
    return ", ".join(f"{package} {importlib.metadata.version(package)}" for package in packages)


def _cells(result: Comparison) -> list[str]:
    low, high = min(result.ratios), max(result.ratios)
    sign = "≤" if result.at_most else "≥"
    return [
        result.title,
        result.contender,
        f"{number(statistics.median(result.contender_figures))} {result.unit}",
        result.rival,
        f"{number(statistics.median(result.rival_figures))} {result.unit}",
        f"{result.ratio:.2f} ({low:.2f} to {high:.2f})",
        f"{sign} {result.goal:.2g}",
        "reached" if result.reached else "missed",
    ]


def _processor() -> str:
    """The processor's name, where Linux tells it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            name = next((text for text in lines if text.startswith("model name")), "")
    except OSError:
        return ""
    return f" ({name.partition(':')[2].strip()})" if name else ""
