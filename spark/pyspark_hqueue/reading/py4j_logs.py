"""Keeps secrets out of py4j's debug log, which has everything that is handed to the JVM."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator

__all__ = ["no_py4j_logs"]

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
