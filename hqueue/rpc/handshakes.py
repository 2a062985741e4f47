"""The handshakes at a port: what each costs, how far it is, and whom it refuses."""

from __future__ import annotations

import socket

from hqueue.net.guard import PortGuard
from hqueue.net.principals import is_proven
from hqueue.rpc.callers import Callers
from hqueue.rpc.gathering import Gatherer
from hqueue.rpc.served_connection import ServedConnection
from hqueue.runtime.clock import SYSTEM_CLOCK

__all__ = ["Handshakes"]

HANDSHAKE_BYTES = 32 * 1024
"""Of memory, about, for a connection whose handshake will begin."""
SHAKING_BYTES = 160 * 1024
"""Likewise, once it has begun. OpenSSL takes as much for a message as its first bytes promise:
128 KiB for a hello, 100 for certificates."""


class Handshakes:
    """Conducts the handshakes of a port's callers, a step at a time.

    Args:
        guard: who may call, and how they prove who they are.
        callers: those of the port.
    """

    def __init__(self, guard: PortGuard, callers: Callers[ServedConnection]) -> None:
        self._guard = guard
        self._callers = callers
        self.steps = 0
        """Steps so far, of all handshakes."""

    def begin(self, sock: socket.socket, peer: object, gatherer: Gatherer) -> ServedConnection:
        """Take in a connection, whose handshake comes first.

        Raises:
            OSError: the caller has gone.
        """
        if not self._guard.optional:
            sock = self._guard.wrap(sock)
        connection = ServedConnection(sock, peer, gatherer, self._guard)
        self._callers.begin(connection, HANDSHAKE_BYTES, SYSTEM_CLOCK.monotonic_ms())
        return connection

    def step(self, connection: ServedConnection) -> int:
        """Take the next step of a handshake; the events that it waits for, 0 when it is over.

        Raises:
            ConnectionError: the caller has gone.
            OSError: the caller was refused.
        """
        self.steps += 1
        has_begun = connection.held > HANDSHAKE_BYTES or not connection.is_quiet()
        try:
            events = connection.shake()
        except ConnectionError:
            raise
        except OSError as exc:
            self.refuse(connection, "handshake", str(exc))
            connection.shaking = False
            raise
        if events:
            held = SHAKING_BYTES if has_begun else HANDSHAKE_BYTES
            self._callers.move(connection, held, SYSTEM_CLOCK.monotonic_ms())
        elif is_proven(connection.principal):
            connection.proven = True
        return events

    def refuse(self, connection: ServedConnection, kind: str, reason: str) -> None:
        """Count a refusal, and write it into the audit."""
        self._guard.refuse(kind, connection.principal, connection.peer, reason)
