"""Log lines that strangers can cause: one a second, with the number of those that were left out."""

from __future__ import annotations

import logging
import threading

from hqueue.runtime.clock import SYSTEM_CLOCK, Clock

__all__ = ["SeldomLog"]

EVERY_MS = 1_000.0


class SeldomLog:
    """Writes at most one line a second, so that no caller can fill a disk. Thread-safe.

    Args:
        logger: where the lines go.
        clock: where time comes from.
    """

    def __init__(self, logger: logging.Logger, clock: Clock = SYSTEM_CLOCK) -> None:
        self._logger = logger
        self._clock = clock
        self._lock = threading.Lock()
        self._next_ms = -EVERY_MS
        self._left_out = 0

    def warning(self, text: str, *given: object) -> None:
        """Write a line, unless another one was written less than a second ago."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            if now_ms < self._next_ms:
                self._left_out += 1
                return
            left_out, self._left_out = self._left_out, 0
            self._next_ms = now_ms + EVERY_MS
        if left_out:
            text, given = f"{text} (%d lines like this were left out)", (*given, left_out)
        self._logger.warning(text, *given)
