"""Limits a rate with one number of state."""

from __future__ import annotations

import math

__all__ = ["TokenBucket"]


class TokenBucket:
    """Has this many tokens in each window, which may be taken at once or one by one: the generic
    cell rate algorithm. The time is passed in. Not thread-safe.

    Args:
        tokens: how many.
        window_ms: the window.
        debt_ms_max: what is taken beyond what is there is made up for within this time, at most.
    """

    __slots__ = ("_debt_ms_max", "_full_ms", "_window_ms", "interval_ms")

    def __init__(self, tokens: int, window_ms: float, debt_ms_max: float = math.inf) -> None:
        self.interval_ms = window_ms / tokens
        """How long one token takes to come."""
        self._window_ms = window_ms
        self._debt_ms_max = debt_ms_max
        self._full_ms = -math.inf
        """When all tokens are there again."""

    def wait_ms(self, now_ms: float, count: float = 1) -> float:
        """How long it takes until this many tokens are there; 0 if they are."""
        wait_ms = max(now_ms, self._full_ms) + count * self.interval_ms - now_ms - self._window_ms
        return wait_ms if wait_ms > self.interval_ms / 2 else 0.0  # Less is rounding.

    def take(self, now_ms: float, count: float = 1) -> None:
        """Take this many tokens, whether they are there or not."""
        full_ms = max(now_ms, self._full_ms) + count * self.interval_ms
        self._full_ms = min(full_ms, now_ms + self._window_ms + self._debt_ms_max)

    def is_full(self, now_ms: float) -> bool:
        """Whether all tokens are there, as in a new bucket."""
        return self._full_ms <= now_ms
