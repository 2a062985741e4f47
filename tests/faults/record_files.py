"""Files of JSON lines, flushed line by line, in which the processes of a run write things down."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, TextIO

__all__ = ["Outcome", "RecordFile", "now_s", "records"]

Outcome = Literal["ok", "fail", "unknown"]


def now_s() -> float:
    """The clock of all histories: seconds of the machine's boot clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class RecordFile:
    """Is written to at its end. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self._file: TextIO = path.open("a", encoding="utf-8")
        self._lock = threading.Lock()

    def write(self, *record: object) -> None:
        line = json.dumps(record, separators=(",", ":")) + "\n"
        with self._lock:
            self._file.write(line)
            self._file.flush()


def records(path: Path) -> Iterator[list[Any]]:
    """What such a file has."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.endswith("\n"):  # A killed process may leave half a line.
                yield json.loads(line)
