"""Leaves out lines of py4j's log: secrets, for its debug log has everything that is handed to the
JVM, and the tracebacks of interruptions.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator

__all__ = ["no_py4j_interrupts", "no_py4j_logs"]

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
def no_py4j_interrupts() -> Iterator[None]:
    """Keep py4j from logging the traceback of a `KeyboardInterrupt` within the block. It raises the
    `KeyboardInterrupt`, too.
    """
    root = logging.getLogger()  # py4j uses no logger of its own for this.
    root.addFilter(_is_no_interrupt)
    try:
        yield
    finally:
        root.removeFilter(_is_no_interrupt)


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    return not (
        record.module == "java_gateway"
        and record.exc_info is not None
        and record.exc_info[0] is KeyboardInterrupt
    )
