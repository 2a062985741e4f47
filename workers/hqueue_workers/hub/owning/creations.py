"""How many topics and subscriptions callers may create, and how much they may have kept of them."""

from __future__ import annotations

import threading

from hqueue import BufferFullError
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock

__all__ = ["Creations"]

HOUR_MS = 3_600_000.0
CALLERS_KEPT = 1_024
ADDRESS_TIMES, ALL_TIMES = 4, 16
"""This many times what one name may create, an address may under all names, and all may
together.
"""


class Creations:
    """Lets each caller create this many at once, and this many an hour from then on: the generic
    cell rate algorithm. Thread-safe. A caller that is far from its bound costs nothing for long.

    Who calls is a name that nobody proves, so each address has a bound, too, and all have one
    together.

    Args:
        per_hour_max: how many.
        clock: where time comes from.
        what: what is created, for the error.
    """

    def __init__(
        self,
        per_hour_max: int,
        clock: Clock = SYSTEM_CLOCK,
        what: str = "topics",
        kept_min: int = CALLERS_KEPT,
    ) -> None:
        self._per_hour_max = per_hour_max
        self._what = what
        self._clock = clock
        self._lock = threading.Lock()
        self._free_ms: dict[tuple[str, str], float] = {}
        """By caller, address, and for all: when it will be as if that had created nothing."""
        self._kept_min = self._kept_max = kept_min

    @property
    def kept(self) -> int:
        """How many callers and addresses it remembers."""
        return len(self._free_ms)

    def count(self, caller: str, host: str = "", many: int = 1) -> None:
        """A caller at an address is about to create one, or this many at once.

        Raises:
            BufferFullError: it, its address, or all have created as many as they may for now.
        """
        now_ms = self._clock.monotonic_ms()
        bounds = {("caller", caller): self._per_hour_max}
        if host:
            bounds["address", host] = ADDRESS_TIMES * self._per_hour_max
            bounds["all", ""] = ALL_TIMES * self._per_hour_max
        with self._lock:
            free_ms = {}
            for key, per_hour_max in bounds.items():
                interval_ms = HOUR_MS / per_hour_max
                at_ms = max(now_ms, self._free_ms.get(key, now_ms)) + many * interval_ms
                if at_ms - now_ms > HOUR_MS + interval_ms / 2:
                    raise BufferFullError(
                        f"too many {self._what} were created in the last hour: try again later",
                        by=" ".join(key).strip(),
                        topic_creations_per_hour_max=per_hour_max,
                    )
                free_ms[key] = at_ms
            self._free_ms.update(free_ms)
            if len(self._free_ms) > self._kept_max:
                kept = dict(filter(lambda item: item[1] > now_ms, self._free_ms.items()))
                self._free_ms = kept
                self._kept_max = max(self._kept_min, 2 * len(kept))
