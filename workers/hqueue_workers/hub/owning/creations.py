"""How many topics and subscriptions callers may create, and how much they may have kept of them."""

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
"""This many times what one name may create, an address may under all names, and all may
together.
"""


class Creations:
    """Lets each caller create this many at once, and this many an hour from then on. Thread-safe. A
    caller that is far from its bound costs nothing for long.

    Who calls is mostly a name that nobody proves, so each address has a bound, too, and all have
    one together. A principal with a quota has that alone.

    Args:
        per_hour_max: how many.
        clock: where time comes from.
        what: what is created, for the error.
        kept_min: this many callers may be remembered in any case.
        quotas: bounds of principals; None if nobody proves who calls.
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
        """By caller, address, and for all: of those that created something of late."""
        self._kept_min = self._kept_max = kept_min

    @property
    def kept(self) -> int:
        """How many callers and addresses it remembers."""
        return len(self._buckets)

    def count(self, caller: str, host: str = "", many: int = 1) -> None:
        """A caller at an address is about to create one, or this many at once.

        Raises:
            BufferFullError: it, its address, or all have created as many as they may for now.
        """
        now_ms = self._clock.monotonic_ms()
        quota = None if self._quotas is None else self._quotas.quota(caller).creations
        bounds = {("caller", caller): self._per_hour_max if quota is None else quota}
        if caller == ANONYMOUS and host and quota is None:
            bounds = {}  # These are any number of callers.
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
