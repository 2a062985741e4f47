"""Until when it is certain that a session lives."""

from __future__ import annotations

from contextlib import AbstractContextManager

from hqueue.errors import HQueueError
from hqueue.metadata.ports import MetadataStore
from hqueue.metadata.steps import Confirm, OnStore, Work
from hqueue.runtime.clock import Clock
from hqueue.runtime.logs import Log
from hqueue.runtime.stepwise import stepwise

__all__ = ["Certainty"]

logger = Log(__name__)


class Certainty(OnStore):
    """Of one session after the other: whether nobody else can have what was claimed with it.

    Args:
        store: the session.
        lock: held by its user where it begins or ends one.
        clock: where time comes from.
    """

    def __init__(
        self, store: MetadataStore, lock: AbstractContextManager[object], clock: Clock
    ) -> None:
        super().__init__(store, clock)
        self.session_id: int | None = None
        """The session with which claims are made; None without one."""
        self.until_ms = float("-inf")
        """Until when that was found to hold, on the clock."""
        self._lock = lock

    def begin(self, session_id: int | None) -> None:
        """Another session has begun, or none has."""
        self.session_id, self.until_ms = session_id, float("-inf")

    @stepwise
    def holds(self, for_ms: float = 0) -> Work[bool]:
        """Whether the session lives, and does this long from now. Asks the store if that is not
        known.
        """
        if self._clock.monotonic_ms() + for_ms >= self.until_ms:
            session_id = self.session_id
            try:
                until_ms = yield Confirm()
            except HQueueError as exc:
                logger.debug("the session is not confirmed now: %s", exc)
                return False
            with self._lock:
                # What was claimed is that session's; another may have begun, and been confirmed.
                if session_id is None or not (
                    session_id == self.session_id == self._store.session_id
                ):
                    return False
                self.until_ms = until_ms
        return self.still_holds(for_ms)

    def still_holds(self, for_ms: float = 0) -> bool:
        """Like `holds`, by what is known."""
        return self._clock.monotonic_ms() + for_ms < self.until_ms
