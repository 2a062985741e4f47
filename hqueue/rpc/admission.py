"""Which requests are served for the memory they take, and when that goes back to the system."""

from __future__ import annotations

import threading
from collections.abc import Callable

from hqueue.rpc.served_connection import ServedConnection
from hqueue.runtime.fork import register
from hqueue.runtime.memory import give_back_freed

__all__ = ["LIGHT_BYTES", "Admission"]

LIGHT_BYTES = 1024 * 1024
"""A request that takes no more memory is served at once, whatever else is served."""
TRIM_BYTES = 64 * 1024 * 1024
TRIM_EVERY_MS, TRIM_LIGHT_EVERY_MS = 5_000.0, 60_000.0
"""When this much was made of calls it is given back to the system: of large ones as soon as no call
needs any of it, and now and then while there always is one; of light ones once a minute, for what
comes next would mostly fit where they were."""


class Admission:
    """Gives memory to requests that are not light, up to a bound: to one alone whatever it takes.
    Thread-safe.

    Args:
        bytes_max: of all that have any.
        on_freed: called when there is more again. From any thread.
    """

    def __init__(self, bytes_max: float, on_freed: Callable[[], object]) -> None:
        self._bytes_max = bytes_max
        self._on_freed = on_freed
        self._bytes = 0
        """What was given."""
        self._freed_bytes = 0
        """Of that, since memory was given back to the system."""
        self._freed_light_bytes = 0
        """Of light ones, since then: about, for threads count it without a lock."""
        self._trimmed_ms = 0.0
        self.after_fork_in_child()
        register(self)

    def after_fork_in_child(self) -> None:
        self._lock = threading.RLock()

    @property
    def bytes(self) -> int:
        """What requests have of the memory."""
        return self._bytes

    def take(self, connection: ServedConnection, weight: int) -> bool:
        """Take the memory for a request that is not light, if it is there."""
        with self._lock:
            if self._bytes and self._bytes + weight > self._bytes_max:
                return False
            self._bytes += weight
            connection.memory_bytes = weight
            return True

    def release(self, connection: ServedConnection) -> None:
        """What was made of its request is needed no more. More than once, too."""
        weight, connection.weight = connection.weight, 0
        if not connection.memory_bytes:
            self._freed_light_bytes += weight
            return
        with self._lock:
            self._bytes -= connection.memory_bytes
            self._freed_bytes += connection.memory_bytes
            connection.memory_bytes = 0
        self._on_freed()

    def trim(self, now_ms: float) -> None:
        """Give back to the system what requests took, if it is time."""
        since_ms = now_ms - self._trimmed_ms
        with self._lock:
            if self._freed_bytes >= TRIM_BYTES:
                if self._bytes and since_ms < TRIM_EVERY_MS:
                    return
            elif self._freed_light_bytes < TRIM_BYTES or since_ms < TRIM_LIGHT_EVERY_MS:
                return
            self._freed_bytes = self._freed_light_bytes = 0
        self._trimmed_ms = now_ms
        give_back_freed()
