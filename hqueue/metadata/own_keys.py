"""Finds out that something this session registered is gone, by whatever hand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from hqueue.metadata.ports import MetadataStore, SessionState

__all__ = ["OwnKeys"]


class OwnKeys:
    """Keys that this session registered, and that others may take away. Thread-safe.

    An operator can remove a registration, and another client can replace it, while the session
    that it lives by goes on. Whoever acts by right of a registration asks here, each time that
    `on_change` is called. Costs nothing while nothing changes: a key is asked about once, and again
    only after a change of it, or after the connection was cut.

    Args:
        store: the session.
        on_change: called when `missing` may have another answer, by a thread that must not be held
            up: it takes notice and returns.
        on_close: called when the session is closed for good.
    """

    def __init__(
        self,
        store: MetadataStore,
        on_change: Callable[[], None],
        on_close: Callable[[], None] | None = None,
    ) -> None:
        self._store = store
        self._on_change = on_change
        self._lock = threading.Lock()
        self._known: set[str] = set()
        """Those that are this session's, and whose next change is reported."""
        self._listening = store.on_state(self._on_state, on_close)

    def missing(self, keys: Iterable[str]) -> set[str]:
        """Those of these keys that this session does not have registered now.

        Raises:
            HQueueError: the store can't be asked now.
        """
        wanted = set(keys)
        with self._lock:
            asked = wanted - self._known
            # Before it is asked: a change that is reported meanwhile takes the key out again.
            self._known |= asked
        if not asked:
            return set()
        gone = asked
        try:
            gone = set(self._store.ephemerals.missing(sorted(asked), self._on_key))
        finally:
            with self._lock:
                self._known -= gone
        return gone

    def close(self) -> None:
        """Report nothing any more. Never raises."""
        self._listening.close()

    def _on_key(self, key: str) -> None:
        with self._lock:
            self._known.discard(key)
        self._on_change()

    def _on_state(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            with self._lock:
                self._known.clear()
            self._on_change()
