"""Leaves out lines of py4j's log: secrets, for its debug log has everything that is handed to the
JVM, and the tracebacks of errors that py4j raises as well.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator

__all__ = ["no_py4j_errors", "no_py4j_logs"]

_LOGGERS = ("py4j.clientserver", "py4j.java_gateway", "py4j.protocol")
_quiet = threading.local()


def _passes(record: logging.LogRecord) -> bool:
    return record.levelno > logging.DEBUG or not getattr(_quiet, "is_on", False)


@contextlib.contextmanager
def no_py4j_logs() -> Iterator[None]:
    """Have py4j log nothing of what this thread does within the block, but warnings and errors."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_passes)  # Once: it is the same filter each time.
    _quiet.is_on = True
    try:
        yield
    finally:
        _quiet.is_on = False


@contextlib.contextmanager
def no_py4j_errors() -> Iterator[None]:
    """Keep py4j from logging tracebacks within the block: of an interruption, and of a Java process
    that has ended. It raises these errors, too.
    """
    # py4j logs some by the root.
    loggers = [logging.getLogger(name) for name in (None, *_LOGGERS)]
    for each in loggers:
        each.addFilter(_has_no_traceback)
    try:
        yield
    finally:
        for each in loggers:
            each.removeFilter(_has_no_traceback)


def _has_no_traceback(record: logging.LogRecord) -> bool:
    return not (record.module in ("java_gateway", "clientserver") and record.exc_info)
