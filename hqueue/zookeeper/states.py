"""A session's state, and what is notified of it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from hqueue.metadata.ports import SessionState
from hqueue.runtime.foreign import call_foreign

__all__ = ["StateListener", "States"]


class StateListener:
    """One that is called with the session's states. It is a `Watch`."""

    def __init__(
        self,
        states: States,
        on_change: Callable[[SessionState], None],
        on_close: Callable[[], None] | None,
    ) -> None:
        self._states = states
        self.on_change = on_change
        self.on_close = on_close

    def close(self) -> None:
        self._states.remove(self)


class States:
    """Keeps the state, and reports its changes to each listener, in order, under the lock.

    Args:
        lock: the session's. The thread that sets the state holds it.
    """

    def __init__(self, lock: threading.RLock) -> None:
        self._lock = lock
        self._listeners: list[StateListener] = []
        self.state = SessionState.SUSPENDED

    def listen(
        self, on_change: Callable[[SessionState], None], on_close: Callable[[], None] | None
    ) -> StateListener:
        """Report each change, beginning with the state now."""
        listener = StateListener(self, on_change, on_close)
        with self._lock:
            self._listeners.append(listener)
            try:
                # In the caller's thread, which an error, also a signal's handler's, is for.
                listener.on_change(self.state)
            except BaseException:
                self._listeners.remove(listener)
                raise
        return listener

    def remove(self, listener: StateListener) -> None:
        """Call this one no more."""
        with self._lock:
            if listener in self._listeners:
                self._listeners.remove(listener)

    def set(self, state: SessionState) -> None:
        """Take a state; listeners are called if it is another one."""
        if state is not self.state:
            self.state = state
            for listener in list(self._listeners):
                self._notify(listener)

    def end(self) -> None:
        """Let all listeners know that nothing more will come."""
        with self._lock:
            listeners, self._listeners = self._listeners, []
        for listener in listeners:
            if listener.on_close is not None:
                call_foreign("a listener of the session's end", listener.on_close)

    def _notify(self, listener: StateListener) -> None:
        call_foreign("a listener of the session's state", listener.on_change, self.state)
