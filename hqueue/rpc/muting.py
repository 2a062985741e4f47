"""Refuses the calls of those over their quotas, and receives nothing from them for a while."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterator

from hqueue.errors import BufferFullError
from hqueue.net.quotas import PortQuotas
from hqueue.rpc.gathering import Request
from hqueue.rpc.served_connection import ServedConnection
from hqueue.runtime.clock import SYSTEM_CLOCK

__all__ = ["Muting"]

MUTED_MS_MAX = 5_000.0
"""This long nothing is received from a caller over its quota, at most: a client that does not obey
waits for its answer, and does not take the server for dead."""
SERVED_MUTED_MS_MAX = 500.0
"""This long if its call was served: it was not asked to wait."""


class Muting:
    """Sees that the callers of a port keep to their quotas. Used by the thread that serves it.

    Args:
        quotas: what callers may ask for in a second; without bounds if None.
        never_refuses: whether a call, by its first bytes, is served to callers over their quota,
            too. They are muted after that.
    """

    def __init__(self, quotas: PortQuotas | None, never_refuses: Callable[[bytes], bool]) -> None:
        self._quotas = quotas
        self._never_refuses = never_refuses
        self._muted: list[tuple[float, int, ServedConnection]] = []
        """A heap: when each is received from again. Some have gone since."""
        self._count = itertools.count()

    def open_account(self, connection: ServedConnection) -> None:
        """It is known now who calls: have the calls counted."""
        if self._quotas is not None:
            connection.account = self._quotas.account(connection.principal, connection.peer)

    def refusal_of(self, connection: ServedConnection, request: Request) -> BufferFullError | None:
        """Count a whole call; the error for one that is not served now, None for one that is. The
        connection of a caller that is over its quota is muted from its answer on.
        """
        if connection.account is None:
            return None
        over = connection.account.admit(len(request.data) or request.weight)
        if over is None:
            return None
        assert self._quotas is not None
        is_served = self._never_refuses(request.begun)
        muted_ms_max = SERVED_MUTED_MS_MAX if is_served else MUTED_MS_MAX
        muted_ms = min(float(over.retry_after_ms), muted_ms_max)
        connection.muted_until_ms = SYSTEM_CLOCK.monotonic_ms() + muted_ms
        if is_served:
            return None
        self._quotas.refuse(over, connection.principal, connection.peer)
        return BufferFullError(
            "the caller is over its quota; call again later",
            limit=over.limit,
            retry_after_ms=over.retry_after_ms,
        )

    def add(self, connection: ServedConnection) -> None:
        """A muted connection was answered: nothing is received from it from now on."""
        heapq.heappush(self._muted, (connection.muted_until_ms, next(self._count), connection))

    @property
    def due_ms(self) -> float:
        """When the next one is received from again; infinite if none is muted."""
        return self._muted[0][0] if self._muted else math.inf

    def due(self, now_ms: float) -> Iterator[ServedConnection]:
        """Those that are received from again, each once."""
        while self._muted and self._muted[0][0] <= now_ms:
            yield heapq.heappop(self._muted)[2]
