"""The load that faults meet: a run waits for it before the first fault."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from .processes import Processes
from .record_files import records

__all__ = ["LOADING", "await_load", "idle"]

LOADING = ("producer", "publisher", "supplier")
"""The kinds of processes that write messages."""

LOADED_WITHIN_S = 180.0
LOOK_EVERY_S = 0.5


def await_load(processes: Processes, folder: Path) -> list[str]:
    """Wait until each process that writes messages has written some, for minutes at most.

    Returns:
        Those that have not: then the run proves nothing.
    """
    files = [
        folder / f"{name}.{kind}.jsonl" for kind in LOADING for name in processes.running(kind)
    ]
    deadline = time.monotonic() + LOADED_WITHIN_S
    while (left := list(idle(files))) and time.monotonic() < deadline:
        files = left
        time.sleep(LOOK_EVERY_S)
    return [file.name.partition(".")[0] for file in left]


def idle(files: Iterable[Path]) -> Iterator[Path]:
    """Those of these histories in which nothing succeeded yet."""
    for file in files:
        came = records(file) if file.exists() else iter(())
        if not any(what == "complete" and rest[1] == "ok" for what, *rest in came):
            yield file
