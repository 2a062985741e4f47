"""Hubs that do not answer: how that is noticed, and which ones are asked meanwhile."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from typing import Any

from hqueue.runtime.clock import Clock
from hqueue.runtime.fork import register
from hqueue.runtime.steps import Work
from hqueue.settings.addresses import Address
from hqueue.topics.exchanges import Ask

__all__ = ["SilentHubs", "share_ms"]

SHARE = 4
SHARE_MS_MIN, SHARE_MS_MAX = 50.0, 3_000.0
AVOIDED_MS = 5_000.0
"""How long a silent hub is left alone before it is asked whether it is back."""
HUBS_MAX = 1_024
"""This many are remembered: hubs name each other, at whatever addresses."""


def share_ms(remaining_ms: float) -> float:
    """How long one hub may be silent in a call that has this much time left."""
    return min(max(remaining_ms / SHARE, SHARE_MS_MIN), SHARE_MS_MAX)


class SilentHubs:
    """Remembers hubs that were silent. A hub may take long over a call, when HBase does; but one
    that is well answers at once where it serves the Thrift API, which is what it is asked.
    Thread-safe.

    Args:
        clock: where time comes from.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_ms: dict[Address, float] = {}
        self.after_fork_in_child()
        register(self)

    def after_fork_in_child(self) -> None:
        self._lock = threading.RLock()

    def note(self, hub: Address) -> None:
        """A hub was silent."""
        with self._lock:
            self._until_ms.pop(hub, None)  # The one that was noted last is the last.
            self._until_ms[hub] = self._clock.monotonic_ms() + AVOIDED_MS
            if len(self._until_ms) > HUBS_MAX:
                del self._until_ms[next(iter(self._until_ms))]

    def check(self, hub: Address, bound_ms: float) -> Work[Any, None]:
        """See that a hub which has not answered a call yet answers at all.

        Raises:
            ConnectionError: it does not, and is remembered.
        """
        if not (yield Ask(hub, bound_ms)):
            self.note(hub)
            raise ConnectionError("the hub does not answer")

    def may_be_called(self, hub: Address, bound_ms: float) -> Work[Any, bool]:
        """Whether a hub answers as far as is known; one that was silent is asked after a while."""
        with self._lock:
            until_ms = self._until_ms.get(hub)
        if until_ms is None:
            return True
        if self._clock.monotonic_ms() < until_ms:
            return False
        try:
            yield from self.check(hub, bound_ms)
        except ConnectionError:
            return False
        with self._lock:
            self._until_ms.pop(hub, None)
        return True

    def choose(self, hubs: Sequence[Address], by: random.Random) -> Address:
        """Some hub, if possible one that was not silent of late."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            until_ms = dict(self._until_ms)
        may_answer = [hub for hub in hubs if until_ms.get(hub, now_ms) <= now_ms]
        return by.choice(may_answer or hubs)
