"""Registrations that outlast sessions: made again when one was lost."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence

from hqueue.errors import ClosedError, HQueueError, StoreUnavailableError
from hqueue.metadata.ports import Group, MetadataStore, Obstacle, SessionState
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock, Deadline

__all__ = ["Registration"]

logger = logging.getLogger(__name__)

PAUSE_MS = 100


class Registration:
    """Something that is present, and is made again after its session was lost, until closed.

    Where a group of it is there already, by another session:

    - if `is_own` says so of its last value, its session is that of a process that can't be alive,
      and it is replaced;
    - otherwise it may be dead: it is waited for until its session must be over.

    When the session was lost, a thread makes the groups again, likewise. If it can't, `on_failure`
    is called, and that was it. While the store merely can't be reached it goes on trying.

    Args:
        store: the session.
        groups: what is registered.
        is_own: whether this last value can only be that of an earlier one of ours.
        on_obstacle: the error for what stays in the way.
        on_failure: called if the groups can't be made again.
        parents: whether what is missing above the groups is created.
        clock: measures how long another is waited for.

    Raises:
        HQueueError: that of `on_obstacle`, or the store's. Nothing is left of the groups.
    """

    def __init__(
        self,
        store: MetadataStore,
        groups: Sequence[Group],
        *,
        is_own: Callable[[bytes], bool],
        on_obstacle: Callable[[Obstacle], HQueueError],
        on_failure: Callable[[HQueueError], None],
        parents: bool = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.failure: HQueueError | None = None
        """Why it could not be made again: it is gone for good. None while all is well."""
        self._store = store
        self._groups = list(groups)
        self._is_own = is_own
        self._on_obstacle = on_obstacle
        self._on_failure = on_failure
        self._parents = parents
        self._clock = clock
        self._made_by: int | None = None
        self._lost = False
        self._closed = False
        self._making = threading.Lock()
        self._work = threading.Condition()
        try:
            self._make()
        except HQueueError:
            self._remove()
            raise
        self._listening = store.on_state(self._on_state, self._end)
        threading.Thread(target=self._run, name="hqueue-registration", daemon=True).start()

    def close(self) -> None:
        """Remove what this registration made, and only that. Never raises: what can't be removed
        now disappears with the session.
        """
        if self._closed:
            return
        self._end()
        self._listening.close()
        if self._making.acquire(timeout=self._store.session_timeout_ms / 1e3):
            try:
                self._remove()
            finally:
                self._making.release()

    def replace(self, values: Mapping[str, bytes]) -> None:
        """Give some keys of it other values, now and when they are made again."""
        with self._making:
            self._groups = [
                {key: values.get(key, value) for key, value in group.items()}
                for group in self._groups
            ]
            self._make()

    def _end(self) -> None:
        with self._work:
            self._closed = True
            self._work.notify_all()

    def _on_state(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED and self._store.session_id != self._made_by:
            with self._work:
                self._lost = True
                self._work.notify_all()

    def _run(self) -> None:
        while True:
            with self._work:
                self._work.wait_for(lambda: self._lost or self._closed)
                if self._closed:
                    return
                self._lost = False
            try:
                with self._making:
                    self._make()
            except StoreUnavailableError as exc:
                logger.warning("a registration could not be made again yet: %s", exc)
                with self._work:
                    self._lost = True
                    self._work.wait_for(lambda: self._closed, PAUSE_MS / 1e3)
            except ClosedError:
                return
            except HQueueError as exc:
                logger.error("a registration could not be made again: %s", exc)
                self.failure = exc
                self._on_failure(exc)
                return

    def _make(self) -> None:
        """Make what isn't there by this session."""
        patience = Deadline(self._clock, 1.5 * self._store.session_timeout_ms + 1_000)
        while not self._closed:
            session_id, obstacle = self._store.ephemerals.put(
                self._groups, is_own=self._is_own, parents=self._parents
            )
            if obstacle is None:
                if session_id is not None and self._store.session_id == session_id:
                    self._made_by = session_id
                    return
            elif obstacle.value is None or patience.expired:
                raise self._on_obstacle(obstacle)
            self._clock.sleep_ms(PAUSE_MS)

    def _remove(self) -> None:
        """Release what is this session's. What is looked at first goes first."""
        if self._store.state is not SessionState.CONNECTED:
            return
        keys = [key for group in self._groups for key in group]
        try:
            self._store.ephemerals.release(reversed(keys), wait=False)
        except HQueueError as exc:
            logger.warning("a registration stays until its session ends: %s", exc)
