"""Log lines of the library, whatever a program does with them."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import traceback

from hqueue.runtime.interrupts import is_interruption

__all__ = ["Log"]

_CALLER = 3
"""Who asked for a line, counted from where it is given to `logging`."""


class Log:
    """Writes lines to one of the loggers of `logging`.

    Their handlers and filters are code of the program, which is called wherever the library has
    something to say: in its threads, in its loop, between what happened and those who wait for it.
    What such code raises, whatever it is, is printed on stderr, and the caller goes on. In the main
    thread what a handler of a signal raised passes through.

    Args:
        name: the logger's name.
    """

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def is_enabled_for(self, level: int) -> bool:
        """Whether lines of this level are written."""
        return self._logger.isEnabledFor(level)

    def debug(self, text: str, *given: object, exc_info: bool = False) -> None:
        """Like `logging.Logger.debug`; so are the others."""
        self._write(logging.DEBUG, text, given, exc_info)

    def info(self, text: str, *given: object) -> None:
        """Like `logging.Logger.info`."""
        self._write(logging.INFO, text, given, False)

    def warning(self, text: str, *given: object, exc_info: bool = False) -> None:
        """Like `logging.Logger.warning`."""
        self._write(logging.WARNING, text, given, exc_info)

    def error(self, text: str, *given: object, exc_info: bool | BaseException = False) -> None:
        """Like `logging.Logger.error`."""
        self._write(logging.ERROR, text, given, exc_info)

    def exception(self, text: str, *given: object) -> None:
        """Like `logging.Logger.exception`."""
        self._write(logging.ERROR, text, given, True)

    def log(self, level: int, text: str, *given: object, exc_info: bool = False) -> None:
        """Like `logging.Logger.log`."""
        self._write(level, text, given, exc_info)

    def _write(
        self, level: int, text: str, given: tuple[object, ...], exc_info: bool | BaseException
    ) -> None:
        try:
            self._logger.log(level, text, *given, exc_info=exc_info, stacklevel=_CALLER)
        except BaseException as exc:
            if threading.current_thread() is threading.main_thread() and is_interruption(exc):
                raise
            _print(exc)


def _print(error: BaseException) -> None:
    """Like `logging.Handler.handleError` does."""
    if logging.raiseExceptions and sys.stderr is not None:
        with contextlib.suppress(Exception):
            traceback.print_exception(error)
