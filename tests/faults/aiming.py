"""A process is killed while something that it wrote down is under way."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

__all__ = ["is_under_way", "kill_under_way"]

AIMS_MAX = 200
LAST_BYTES = 64 * 1024


def is_under_way(path: Path) -> bool:
    """Whether the last that a process wrote down has no outcome yet."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - LAST_BYTES))
        return file.read().rstrip(b"\n").rpartition(b"\n")[2].startswith(b'["invoke"')


def kill_under_way(pid: int, path: Path) -> None:
    """Kill it (-9), while what it writes down there is under way, if that can be met.

    Args:
        pid: of the process.
        path: of its history.
    """
    for _ in range(AIMS_MAX):
        os.kill(pid, signal.SIGSTOP)
        if path.exists() and is_under_way(path):
            break
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
