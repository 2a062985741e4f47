"""How many topics each caller may create."""

from __future__ import annotations

import threading

from hqueue import BufferFullError
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock

__all__ = ["Creations"]

HOUR_MS = 3_600_000.0
CALLERS_KEPT = 1_024


class Creations:
    """Lets each caller create so many topics at once, and so many an hour from then on: the generic
    cell rate algorithm. Thread-safe. A caller that is far from its bound costs nothing for long.

    Args:
        per_hour_max: how many.
        clock: where time comes from.
    """

    def __init__(self, per_hour_max: int, clock: Clock = SYSTEM_CLOCK) -> None:
        self._per_hour_max = per_hour_max
        self._interval_ms = HOUR_MS / per_hour_max
        self._clock = clock
        self._lock = threading.Lock()
        self._free_ms: dict[str, float] = {}
        """By caller: when it will be as if it had created nothing."""
        self._kept_max = CALLERS_KEPT

    def count(self, caller: str) -> None:
        """A caller is about to create a topic.

        Raises:
            BufferFullError: it has created as many as it may for now.
        """
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            free_ms = max(now_ms, self._free_ms.get(caller, now_ms)) + self._interval_ms
            if free_ms - now_ms > HOUR_MS + self._interval_ms / 2:
                raise BufferFullError(
                    "the caller has created as many topics as it may for now",
                    creations_per_hour_max=self._per_hour_max,
                )
            self._free_ms[caller] = free_ms
            if len(self._free_ms) > self._kept_max:
                kept = {name: at_ms for name, at_ms in self._free_ms.items() if at_ms > now_ms}
                self._free_ms = kept
                self._kept_max = max(CALLERS_KEPT, 2 * len(kept))
