"""Whether this worker may act: its session with the coordination service, checked by time."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from hqueue import HQueueError
from hqueue.metadata import Coordination, SessionState
from hqueue.runtime.logs import Log
from hqueue_workers.node.runtime import Runtime

__all__ = ["Lease"]

logger = Log(__name__)

RETRY_MS = 200.0
CONFIRMATIONS = 4
"""How often the session is confirmed in the time that it is certain for."""


class Lease:
    """The time in which this worker's claims are certainly its own.

    The session is confirmed regularly. Each confirmation holds until the earliest time at which the
    service could end the session. Code that acts checks `holds` right before, because a process
    that was suspended learns that its session is lost only after it has resumed. The lease does not
    hold while the session is suspended, either.

    Args:
        coordination: the session.
        runtime: the worker's runtime.
        on_lost: called by the event loop when the session was lost, and all claims with it.
    """

    def __init__(
        self, coordination: Coordination, runtime: Runtime, on_lost: Callable[[], None]
    ) -> None:
        self._coordination = coordination
        self._runtime = runtime
        self._on_lost = on_lost
        self._until_ms = -math.inf
        self._connected = False
        self._confirmed = asyncio.Event()
        self._changed = asyncio.Event()
        self._watch = coordination.on_state(
            lambda state: runtime.call(lambda: self._on_state(state))
        )

    @property
    def holds(self) -> bool:
        """Whether this worker may act now."""
        return self._connected and self._runtime.clock.monotonic_ms() < self._until_ms

    async def wait(self) -> None:
        """Wait until it holds."""
        while not self.holds:
            self._confirmed.clear()
            await self._confirmed.wait()

    async def run(self) -> None:
        """Confirm the session regularly, until cancelled."""
        while True:
            self._changed.clear()
            pause_ms = RETRY_MS
            if self._connected:
                try:
                    until_ms = await self._coordination.confirm.in_loop()
                except HQueueError as exc:
                    logger.info("the session was not confirmed: %s", exc)
                else:
                    self._until_ms = max(self._until_ms, until_ms)
                    left_ms = self._until_ms - self._runtime.clock.monotonic_ms()
                    pause_ms = left_ms / CONFIRMATIONS
                    if self.holds:
                        self._confirmed.set()
            await self._runtime.wait(self._changed, pause_ms)

    def close(self) -> None:
        """Stop listening to the session."""
        self._watch.close()

    def _on_state(self, state: SessionState) -> None:
        self._connected = state is SessionState.CONNECTED
        if state is not SessionState.CONNECTED:
            # It is confirmed again before anything is done, also if the cut was a short one.
            self._until_ms = -math.inf
        if state is SessionState.LOST:
            logger.warning("the session was lost; giving up all partitions")
            self._on_lost()
        self._changed.set()
