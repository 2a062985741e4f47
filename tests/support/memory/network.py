"""What lies between a store and its cluster: requests and answers that get lost, as tests plan."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable
from typing import TypeVar

from hqueue.errors import HQueueError, Outcome, StoreUnavailableError
from tests.support.proxy import Fate

__all__ = ["Network"]

Result = TypeVar("Result")


class Network:
    """Brings requests to the cluster, each with the fate that a test chose. Thread-safe."""

    def __init__(self) -> None:
        self.fate: Callable[[str], Fate] = lambda operation: Fate.PASS
        """Asked for each request, by the name of the port's method."""
        self.down = False
        """Whether no request even leaves: none is applied."""
        self.calls: collections.Counter[str] = collections.Counter()
        """How often each method was called."""
        self._lock = threading.Lock()
        self._held: list[Callable[[], object]] = []

    def bring(
        self, operation: str, request: Callable[[], Result], wait: Callable[[], None]
    ) -> Result:
        """Let the cluster do it, and return its answer.

        Args:
            operation: the name of the port's method.
            request: does it.
            wait: waits for an answer that never comes.

        Raises:
            StoreUnavailableError: there was no answer. The outcome is unknown, unless the network
                is down.
        """
        if self.down:
            raise StoreUnavailableError(
                "the store can't be reached", outcome=Outcome.NOT_APPLIED, request=operation
            )
        with self._lock:
            self.calls[operation] += 1
            fate = self.fate(operation)
        if fate is Fate.PASS:
            return request()
        if fate is Fate.HOLD:
            with self._lock:
                self._held.append(request)
        if fate in (Fate.LOSE_ANSWER, Fate.HANG):
            _settle(request)
        if fate is Fate.HANG:
            wait()
        raise StoreUnavailableError(
            "the store gave no answer", outcome=Outcome.UNKNOWN, request=operation
        )

    def deliver(self) -> int:
        """Bring what was held to the cluster; returns how many requests that were."""
        with self._lock:
            held, self._held = self._held, []
        for request in held:
            _settle(request)
        return len(held)


def _settle(request: Callable[[], object]) -> None:
    """Let the cluster do it, whatever it answers."""
    try:
        request()
    except HQueueError:
        pass
