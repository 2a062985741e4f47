"""A clock that the nemesis can set, for one process."""

from __future__ import annotations

from pathlib import Path

from hqueue.runtime.clock import SystemClock

__all__ = ["SettableClock", "set_clock"]


class SettableClock(SystemClock):
    """The system's clocks, but the wall clock is off by what a file says, in milliseconds."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def wall_ms(self) -> int:
        try:
            return super().wall_ms() + int(self._path.read_text() or 0)
        except FileNotFoundError:
            return super().wall_ms()


def set_clock(path: Path, ahead_ms: int) -> None:
    """Put a process's clock ahead, or back if negative; at once and as a whole."""
    fresh = path.with_suffix(".new")
    fresh.write_text(str(ahead_ms))
    fresh.replace(path)
