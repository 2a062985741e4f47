"""How long the pauses are between tries of the same thing."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator

__all__ = ["Backoff"]


@dataclasses.dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses between retries, which grow up to a bound.

    Args:
        first_ms: the first pause.
        most_ms: the longest pause.
        growth: the factor between two pauses.
        spread: each pause is random, between these shares of its length, so that clients that were
            refused together don't retry together.
    """

    first_ms: float
    most_ms: float
    growth: float = 2.0
    spread: tuple[float, float] = (1.0, 1.0)

    def pauses(self) -> Iterator[float]:
        """Iterate over the pauses, in milliseconds, without an end."""
        pause_ms = min(self.first_ms, self.most_ms)
        while True:
            yield pause_ms * random.uniform(*self.spread)
            pause_ms = self.longer(pause_ms)

    def longer(self, pause_ms: float) -> float:
        """The pause that follows the given one; the first pause after 0."""
        return min(max(self.first_ms, self.growth * pause_ms), self.most_ms)

    def obey(self, wait_ms: float) -> float:
        """The pause that a server asks for: at least that long, and at most a quarter longer, so
        that clients that it asked together don't come back together.
        """
        return wait_ms * random.uniform(1.0, 1.25)

    def after(self, failures: int) -> float:
        """The pause after a number of failures, which is at least one."""
        grown_ms: float = self.first_ms * self.growth ** min(failures - 1, 40)
        return min(grown_ms, self.most_ms)
