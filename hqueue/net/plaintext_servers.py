"""Which servers a client may call without TLS, while a cluster is moved to it."""

from __future__ import annotations

import ssl
import threading
from collections import OrderedDict

from hqueue.net.refusals import NotTlsError
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock
from hqueue.runtime.fork import register

__all__ = ["PlaintextServers"]

LASTS_MS = 60_000.0
"""What a server was seen to speak counts for this long."""
SERVERS_MAX = 10_000


class PlaintextServers:
    """Remembers which servers speak TLS. Thread-safe.

    One that has spoken it is not called without for a minute, whatever ends its handshakes; one
    that hasn't is called without for a minute, so that not every connection takes two.

    Args:
        clock: where time comes from.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._seen: OrderedDict[tuple[str, int], tuple[bool, float]] = OrderedDict()
        """Whether each spoke TLS, and until when that counts: the oldest first."""
        self.after_fork_in_child()
        register(self)

    def after_fork_in_child(self) -> None:
        self._lock = threading.RLock()

    def has(self, host: str, port: int) -> bool:
        """Whether a server did not speak TLS within the last minute."""
        return self._spoke_tls(host, port) is False

    def spoke_tls(self, host: str, port: int) -> None:
        """A server has completed a handshake."""
        self._note(host, port, True)

    def adds(self, host: str, port: int, error: BaseException) -> bool:
        """Whether a server may be called without TLS from now on, as its handshake has ended with
        this error: it answered with something else, or hung up without an answer.
        """
        if not isinstance(error, (NotTlsError, ConnectionError, ssl.SSLEOFError)):
            return False
        if self._spoke_tls(host, port):
            return False
        self._note(host, port, False)
        return True

    def _spoke_tls(self, host: str, port: int) -> bool | None:
        with self._lock:
            spoke_tls, ends_ms = self._seen.get((host, port), (None, 0.0))
        return spoke_tls if self._clock.monotonic_ms() < ends_ms else None

    def _note(self, host: str, port: int, spoke_tls: bool) -> None:
        with self._lock:
            self._seen[host, port] = spoke_tls, self._clock.monotonic_ms() + LASTS_MS
            self._seen.move_to_end((host, port))
            if len(self._seen) > SERVERS_MAX:
                self._seen.popitem(last=False)
