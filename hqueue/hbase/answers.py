"""Answers of servers that can't be read: they count as missing."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from hqueue.errors import HQueueError, Outcome, StoreUnavailableError
from hqueue.runtime.interrupts import is_interruption

__all__ = ["ROWS_UNREADABLE", "ReadsAnswer", "is_of_files"]

ROWS_UNREADABLE = "HBase can't read a file of the table: it is damaged, or no replica is there"

_OF_FILES = (".hfile.", ".StoreFileScanner", "CorruptHFileException")
"""In the traces of region servers that failed to read a file."""

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def is_of_files(trace: str) -> bool:
    """Whether a region server's error is that it could not read a file of the table."""
    return any(each in trace for each in _OF_FILES)


class ReadsAnswer:
    """Decorates a function, or work, that reads answers: one that it can't read is treated as a
    missing answer.

    Args:
        text: the error's text.
        senseless: what reading raises then.
    """

    def __init__(self, text: str, *senseless: type[Exception]) -> None:
        self._text = text
        self._senseless = senseless

    def __call__(self, function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        @functools.wraps(function)
        def read(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
            try:
                return function(*args, **kwargs)
            except self._senseless as exc:
                if isinstance(exc, HQueueError) or is_interruption(exc):
                    raise
                raise self._error(exc) from exc

        @functools.wraps(function)
        def read_by_work(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Any:
            try:
                return (yield from function(*args, **kwargs))  # type: ignore[misc]
            except self._senseless as exc:
                if isinstance(exc, HQueueError) or is_interruption(exc):
                    raise
                raise self._error(exc) from exc

        return read_by_work if inspect.isgeneratorfunction(function) else read

    def _error(self, reason: Exception) -> StoreUnavailableError:
        return StoreUnavailableError(
            self._text,
            outcome=Outcome.UNKNOWN,
            reason=f"{type(reason).__name__}: {reason}",
        )
