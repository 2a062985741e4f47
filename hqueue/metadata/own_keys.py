"""Finds out that something this session registered is gone or garbled, by whatever hand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping

from hqueue.metadata.ports import Change, MetadataStore, Record, SessionState
from hqueue.metadata.steps import Own, Work, Write
from hqueue.runtime.logs import Log

__all__ = ["OwnKeys"]

logger = Log(__name__)


class OwnKeys:
    """Keys that this session registered, and that others may take away or change. Thread-safe.

    An operator can remove a registration, and another client can replace it, while the session
    that it lives by goes on. Anyone who acts by right of a registration asks here, each time that
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
        self.store = store
        """The session."""
        self._on_change = on_change
        self._lock = threading.RLock()
        self._watched: set[str] = set()
        """Those that are this session's, and whose next change is reported."""
        self._listening = store.on_state(self._on_state, on_close)

    def missing(self, values: Mapping[str, bytes]) -> Work[set[str]]:
        """Those of these keys that this session does not have registered now. One that somebody
        else gave another value gets its own again. While the session is not connected none is known
        to be missing: `on_change` is called when it is connected again.

        Args:
            values: what this session registered.

        Raises:
            HQueueError: the store can't be asked now.
        """
        if self.store.state is not SessionState.CONNECTED:
            return set()
        with self._lock:
            asked = values.keys() - self._watched
            # Before it is asked: a change that is reported meanwhile takes the key out again.
            self._watched |= asked
        if not asked:
            return set()
        unwatched: Collection[str] = asked
        try:
            found: Mapping[str, Record] = yield Own(sorted(asked), self._on_key)
            yield from self._restore(found, values)
            unwatched = asked - found.keys()
        finally:
            with self._lock:
                self._watched.difference_update(unwatched)
        return set(unwatched)

    def close(self) -> None:
        """Report nothing any more. Never raises."""
        self._listening.close()

    def _restore(self, found: Mapping[str, Record], values: Mapping[str, bytes]) -> Work[None]:
        """Give keys their values, as far as they have others."""
        changes = {
            key: Change(values[key], record.version)
            for key, record in found.items()
            if record.value != values[key]
        }
        if changes:
            # Another hand's, or a change of ours whose request was lost.
            text = "registrations in ZooKeeper had other values, and are written again: %s"
            logger.warning(text, sorted(changes)[:10])
            yield Write(changes)

    def _on_key(self, key: str) -> None:
        with self._lock:
            self._watched.discard(key)
        self._on_change()

    def _on_state(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            with self._lock:
                self._watched.clear()
            self._on_change()
