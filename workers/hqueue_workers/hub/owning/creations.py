"""Bounds on the topics and subscriptions that callers create, and on the bytes that they store."""

from __future__ import annotations

import math
import threading

from hqueue import BufferFullError
from hqueue.net.principals import ANONYMOUS
from hqueue.net.quotas import OverQuota, PortQuotas
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock
from hqueue.runtime.token_bucket import TokenBucket

__all__ = ["Creations"]

HOUR_MS = 3_600_000.0
CALLERS_KEPT = 1_024
ADDRESS_TIMES, ALL_TIMES = 4, 16
"""An address under all its names, and all callers together, may create this many times what one
name may create.
"""


class Creations:
    """Lets each caller create a number of things at once, and this number per hour from then on.
    Thread-safe. A caller that is far from its bound soon costs no memory.

    Callers' names may be unproven, so each address has a bound, too, and so have all callers
    together. For a principal with a quota only the quota counts.

    Args:
        per_hour_max: the number per caller.
        clock: the clock.
        what: what is created, for the error.
        kept_min: the number of callers that may always be remembered.
        quotas: the quotas of principals; None if callers prove none.
    """

    def __init__(
        self,
        per_hour_max: int,
        clock: Clock = SYSTEM_CLOCK,
        what: str = "topics",
        kept_min: int = CALLERS_KEPT,
        quotas: PortQuotas | None = None,
    ) -> None:
        self._per_hour_max = per_hour_max
        self._what = what
        self._clock = clock
        self._quotas = quotas
        self._lock = threading.Lock()
        self._buckets: dict[tuple[str, str], TokenBucket] = {}
        """The buckets of recent callers, of their addresses, and of all callers together."""
        self._kept_min = self._kept_max = kept_min

    @property
    def kept(self) -> int:
        """How many callers and addresses are remembered."""
        return len(self._buckets)

    def count(self, caller: str, host: str = "", many: int = 1) -> None:
        """Count what a caller at an address is about to create.

        Raises:
            BufferFullError: the caller, its address, or all callers together may create no more
                now.
        """
        now_ms = self._clock.monotonic_ms()
        quota = None if self._quotas is None else self._quotas.quota(caller).creations
        bounds = {("caller", caller): self._per_hour_max if quota is None else quota}
        if caller == ANONYMOUS and host and quota is None:
            bounds = {}  # This name stands for any number of callers.
        if host and quota is None:
            bounds["address", host] = ADDRESS_TIMES * self._per_hour_max
            bounds["all", ""] = ALL_TIMES * self._per_hour_max
        with self._lock:
            buckets = {
                key: self._buckets.get(key) or TokenBucket(per_hour_max, HOUR_MS)
                for key, per_hour_max in bounds.items()
            }
            waits = {key: bucket.wait_ms(now_ms, many) for key, bucket in buckets.items()}
            by = max(waits, key=waits.__getitem__)
            if waits[by]:
                raise self._refused(by, bounds[by], waits[by], None if quota is None else host)
            for bucket in buckets.values():
                bucket.take(now_ms, many)
            self._buckets.update(buckets)
            if len(self._buckets) > self._kept_max:
                left = filter(lambda item: not item[1].is_full(now_ms), self._buckets.items())
                self._buckets = dict(left)
                self._kept_max = max(self._kept_min, 2 * len(self._buckets))

    def _refused(
        self, by: tuple[str, str], per_hour_max: int, wait_ms: float, host: str | None
    ) -> BufferFullError:
        """The error for a caller, an address or all that may create no more; `host` is given if it
        is a principal's quota that says so.
        """
        error = BufferFullError(
            f"too many {self._what} were created in the last hour: try again later",
            by=" ".join(by).strip(),
            per_hour_max=per_hour_max,
        )
        if self._quotas is not None and host is not None:
            over = OverQuota("creations", math.ceil(wait_ms))
            self._quotas.refuse(over, by[1], (host, 0))
            error.facts["retry_after_ms"] = over.retry_after_ms
        return error
