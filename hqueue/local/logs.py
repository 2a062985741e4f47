"""Reading the log files of the local server's processes."""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import math
import os
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline

__all__ = ["LogLine", "cause_of_end", "follow_lines", "last_lines", "process_names", "read_lines"]

LINE_BYTES_MAX = 65_536
CAUSE_LINES = 1_000
_TAIL_BYTES = 1_048_576
_PAUSE_S = 0.1
_CAUSES = {
    "No space left on device": "its disk was full",
    "Disk quota exceeded": "its disk was full",
    "java.lang.OutOfMemoryError": "it had too little memory",
}
"""What a process writes when it can't go on, and what that means."""


@dataclasses.dataclass(frozen=True)
class LogLine:
    """One line of one process's log, without its line end."""

    process: str
    text: str


def last_lines(path: Path, number: int) -> list[str]:
    """The last lines of one file, at most; none if there is no such file.

    Only the last mebibyte of the file is looked at.
    """
    if number <= 0:
        return []
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    return lines[-number:]


def cause_of_end(log: Path) -> str | None:
    """Why a process of a server ended, by the last lines of what it logged and printed since its
    start; None if they don't say it.
    """
    last = [*last_lines(log, CAUSE_LINES), *last_lines(log.with_suffix(".out"), CAUSE_LINES)]
    for sign, cause in _CAUSES.items():
        if any(sign in line for line in last):
            return cause
    return None


def read_lines(folder: Path, pattern: str = "*", *, last: int | None = None) -> Iterator[LogLine]:
    """Yield the lines of every process whose name fits the pattern, a process after the other.

    Args:
        folder: where the logs are.
        pattern: a process's name, or a pattern such as ``regionserver-*``.
        last: at most this many lines of each process; all that its current file has if None.
    """
    for path in _files(folder, pattern):
        if last is not None:
            for text in last_lines(path, last):
                yield LogLine(path.stem, text)
            continue
        with contextlib.suppress(OSError), open(path, "rb") as file:
            for raw in file:
                yield LogLine(path.stem, _text(raw))


def follow_lines(
    folder: Path,
    pattern: str = "*",
    *,
    last: int | None = 10,
    timeout_s: float | None = None,
) -> Iterator[LogLine]:
    """Yield lines as they are written, from processes that are there or come later.

    It ends after the bound or when the generator is closed; between lines it looks every 0.1 s.
    A log that rolls over is followed into its new file.

    Args:
        folder: where the logs are.
        pattern: a process's name, or a pattern such as ``regionserver-*``.
        last: begin this many lines before the end of each log; at its beginning if None.
        timeout_s: when to end; None follows until the generator is closed.
    """
    deadline = Deadline(SYSTEM_CLOCK, math.inf if timeout_s is None else timeout_s * 1e3)
    with contextlib.ExitStack() as stack:
        tails: dict[Path, _Tail] = {}
        first = True
        while True:
            quiet = True
            for path in _files(folder, pattern):
                if path not in tails:
                    tails[path] = _Tail(path, last if first else None)
                    stack.callback(tails[path].close)
                for text in tails[path].new_lines():
                    quiet = False
                    yield LogLine(path.stem, text)
                    if deadline.expired:
                        return
            first = False
            if deadline.expired:
                return
            if quiet:
                time.sleep(_PAUSE_S)


def process_names(folder: Path) -> list[str]:
    """The processes that have logs."""
    return [path.stem for path in _files(folder, "*")]


def _files(folder: Path, pattern: str) -> list[Path]:
    return sorted(p for p in folder.glob("*.log") if fnmatch.fnmatchcase(p.stem, pattern))


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace").rstrip("\r\n")


class _Tail:
    """One log file that is being written, and rolled over now and then."""

    def __init__(self, path: Path, last: int | None) -> None:
        self._path = path
        self._ready: deque[str] = deque() if last is None else deque(last_lines(path, last))
        self._file: BinaryIO | None = None
        self._part = b""
        self._open(at_end=last is not None)

    def new_lines(self) -> Iterator[str]:
        """Yield the lines that were completed since the last call."""
        while self._ready:
            yield self._ready.popleft()
        yield from self._read()
        if self._rolled():
            yield from self._read()
            self.close()
            self._open(at_end=False)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self, *, at_end: bool) -> None:
        with contextlib.suppress(OSError):
            self._file = open(self._path, "rb")  # noqa: SIM115
            if at_end:
                self._file.seek(0, os.SEEK_END)

    def _rolled(self) -> bool:
        if self._file is None:
            return True
        try:
            return os.stat(self._path).st_ino != os.fstat(self._file.fileno()).st_ino
        except OSError:
            return False

    def _read(self) -> Iterator[str]:
        while self._file is not None:
            raw = self._part + self._file.readline(LINE_BYTES_MAX)
            if not raw.endswith(b"\n") and len(raw) < LINE_BYTES_MAX:
                self._part = raw
                return
            self._part = b""
            yield _text(raw)
