"""Log lines that could come by the thousand: those that strangers cause, one a second, with the
number of those that were left out; those of each who is known, a few at once and then one a second;
and those of a fault that lasts, one at its beginning and one at its end.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict

from hqueue.runtime.clock import SYSTEM_CLOCK, Clock
from hqueue.runtime.fork import register
from hqueue.runtime.logs import Log
from hqueue.runtime.token_bucket import TokenBucket

__all__ = ["AT_ONCE", "EachLog", "FaultLog", "SeldomLog"]

EVERY_MS = 1_000.0
AT_ONCE = 10
KNOWN_MAX = 1_024
FAULTS_MAX = 1_024


class SeldomLog:
    """Writes at most one line a second, so that no caller can fill a disk. Thread-safe.

    Args:
        logger: where the lines go.
        clock: where time comes from.
    """

    def __init__(self, logger: Log, clock: Clock = SYSTEM_CLOCK) -> None:
        self._logger = logger
        self._clock = clock
        self._next_ms = -EVERY_MS
        self._left_out = 0
        self.after_fork_in_child()
        register(self)

    def after_fork_in_child(self) -> None:
        self._lock = threading.RLock()

    def info(self, text: str, *given: object) -> None:
        """Like `warning`, at the level info."""
        self._line(logging.INFO, text, given)

    def warning(self, text: str, *given: object) -> None:
        """Write a line, unless another one was written less than a second ago."""
        self._line(logging.WARNING, text, given)

    def _line(self, level: int, text: str, given: tuple[object, ...]) -> None:
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            if now_ms < self._next_ms:
                self._left_out += 1
                return
            left_out, self._left_out = self._left_out, 0
            self._next_ms = now_ms + EVERY_MS
        _write(self._logger, level, left_out, text, given)


class EachLog:
    """Writes at most 10 lines at once of each cause, and one a second after that. Thread-safe, and
    bounded: of more than 1,024 causes those are forgotten that wrote longest ago.

    Args:
        logger: where the lines go.
        clock: where time comes from.
    """

    def __init__(self, logger: Log, clock: Clock = SYSTEM_CLOCK) -> None:
        self._logger = logger
        self._clock = clock
        self._known: OrderedDict[str, _Share] = OrderedDict()
        self.after_fork_in_child()
        register(self)

    def after_fork_in_child(self) -> None:
        self._lock = threading.RLock()

    def warning(self, cause: str, text: str, *given: object) -> None:
        """Write a line, unless too many were written of its cause."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            share = self._known.setdefault(cause, _Share())
            self._known.move_to_end(cause)
            if len(self._known) > KNOWN_MAX:
                self._known.popitem(last=False)
            if share.lines.wait_ms(now_ms):
                share.left_out += 1
                return
            share.lines.take(now_ms)
            left_out, share.left_out = share.left_out, 0
        _write(self._logger, logging.WARNING, left_out, text, given)


class _Share:
    """What one cause may write."""

    __slots__ = ("left_out", "lines")

    def __init__(self) -> None:
        self.lines = TokenBucket(AT_ONCE, AT_ONCE * EVERY_MS)
        self.left_out = 0


def _write(logger: Log, level: int, left_out: int, text: str, given: tuple[object, ...]) -> None:
    if left_out:
        text, given = f"{text} (%d lines like this were left out)", (*given, left_out)
    logger.log(level, text, *given)


class FaultLog:
    """Writes a line when a fault begins, and one when it is over. Thread-safe, and bounded: of more
    than 1,024 faults at a time those that began first are forgotten.

    Args:
        logger: where the lines go.
        clock: where time comes from.
        quiet_ms: a fault is over when it was not met for this long: for what is met by some of
            those who ask, and not by others.
        patience_ms: a fault is written when it lasts for this long: for what is mended all the
            time, as a region that moves.
    """

    def __init__(
        self,
        logger: Log,
        clock: Clock = SYSTEM_CLOCK,
        quiet_ms: float = 0.0,
        patience_ms: float = 0.0,
    ) -> None:
        self._logger = logger
        self._clock = clock
        self._quiet_ms = quiet_ms
        self._patience_ms = patience_ms
        self._faults: dict[str, tuple[float, float, bool]] = {}
        """By fault: when it began, when it was met last, and whether it was written."""
        self.after_fork_in_child()
        register(self)

    def after_fork_in_child(self) -> None:
        self._lock = threading.RLock()

    @property
    def count(self) -> int:
        """How many faults are there, as far as they are remembered."""
        return len(self._faults)

    def met(self, fault: str, text: str, *given: object) -> None:
        """A fault is there: the line is written if it was not there before."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            began_ms, _, written = self._faults.get(fault, (now_ms, now_ms, False))
            is_due = not written and now_ms - began_ms >= self._patience_ms
            self._faults[fault] = (began_ms, now_ms, written or is_due)
            if len(self._faults) > FAULTS_MAX:
                self._faults.pop(next(iter(self._faults)))
        self._logger.log(logging.WARNING if is_due else logging.DEBUG, text, *given)

    def over(self, fault: str, text: str, *given: object) -> bool:
        """A fault is not there: the line is written if it was there before. Whether it was."""
        if fault not in self._faults:
            return False  # Nearly always.
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            began_ms, met_ms, written = self._faults.get(fault, (now_ms, now_ms, False))
            if fault not in self._faults or now_ms - met_ms < self._quiet_ms:
                return False
            del self._faults[fault]
        if written:
            self._logger.warning(f"{text}, after %.1f s", *given, (now_ms - began_ms) / 1e3)
        return written
