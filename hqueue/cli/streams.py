"""The standard streams of a process that was started without some of them.

A shell's ``>&-`` closes a descriptor. The next file or socket that is opened would get its number,
and what is printed would go into it; and Python has None for the stream.
"""

from __future__ import annotations

import io
import os
import sys
from typing import TextIO

__all__ = ["complete_streams"]


def complete_streams() -> None:
    """Let the three standard descriptors be open, and stderr fail nothing.

    Reading a stdin that was closed, and writing to a stdout that was closed, fail as they would
    have: the descriptors that stand in are open the wrong way round. What can't be written to
    stderr is dropped, for the exit code says what became of the command.
    """
    for descriptor, mode in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        _occupy(descriptor, mode)
    if sys.stdin is None:
        sys.stdin = _text(io.BufferedReader(_raw(0, "r")))
    if sys.stdout is None:
        sys.stdout = _text(io.BufferedWriter(_raw(1, "w")))
    if sys.stderr is None or sys.stderr is sys.__stderr__:
        sys.stderr = _text(io.BufferedWriter(_Lossy(2, "w", closefd=False)), line_buffering=True)


class _Lossy(io.FileIO):
    """A file that drops what can't be written to it."""

    def write(self, data: object, /) -> int:
        """Write bytes, or drop them."""
        view = memoryview(data)  # type: ignore[arg-type]
        try:
            return super().write(view) or 0
        except OSError:
            return view.nbytes


def _occupy(descriptor: int, mode: int) -> None:
    try:
        os.fstat(descriptor)
    except OSError:
        opened = os.open(os.devnull, mode)
        if opened != descriptor:
            os.dup2(opened, descriptor)
            os.close(opened)
        os.set_inheritable(descriptor, True)


def _raw(descriptor: int, mode: str) -> io.FileIO:
    return io.FileIO(descriptor, mode, closefd=False)


def _text(stream: io.BufferedReader | io.BufferedWriter, *, line_buffering: bool = False) -> TextIO:
    return io.TextIOWrapper(
        stream, encoding="utf-8", errors="backslashreplace", line_buffering=line_buffering
    )
