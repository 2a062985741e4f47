"""Files and pipes that commands read."""

from __future__ import annotations

import fcntl
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from hqueue.errors import InvalidInputError

__all__ = ["STDIN", "open_input", "reading", "total_bytes"]

STDIN = "-"


def open_input(name: str) -> BinaryIO:
    """Open a file to be read from; ``-`` is stdin.

    Raises:
        InvalidInputError: it can't be read.
    """
    if name == STDIN:
        descriptor = sys.stdin.fileno()
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY:
            raise InvalidInputError("stdin can't be read: it is closed, or open for writing")
        return open(descriptor, "rb", closefd=False)
    try:
        return Path(name).expanduser().open("rb")
    except (OSError, ValueError, RuntimeError) as exc:  # A name that none has, a home of nobody.
        reason = exc.strerror if isinstance(exc, OSError) else str(exc)
        raise InvalidInputError("a file can't be read", file=name, reason=reason) from exc


def reading(values: Iterator[bytes], name: str) -> Iterator[bytes]:
    """Values, as an input gives them, with its errors as the library's own.

    Raises:
        InvalidInputError: the input can't be read.
    """
    try:
        yield from values
    except OSError as exc:
        raise InvalidInputError("an input can't be read", input=name, reason=str(exc)) from exc


def total_bytes(inputs: Sequence[tuple[str, BinaryIO]]) -> int | None:
    """How many bytes inputs have; None if one of them is not a file."""
    states = [os.fstat(stream.fileno()) for _, stream in inputs]
    if all(stat.S_ISREG(state.st_mode) for state in states):
        return sum(state.st_size for state in states)
    return None
