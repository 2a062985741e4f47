"""Secures kazoo's handshake: a session counts as connected only once it has proven who it is.

kazoo says that it is connected as soon as the server has granted a session. An error of its
handshake ends its thread, unless kazoo knows the error; after one that it knows it tries again for
ever, or ends the client without a reason. So this module holds back what kazoo says, and makes each
error one that kazoo knows.
"""

from __future__ import annotations

import math
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, ConnectionDropped, SessionExpiredError
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.states import KeeperState

from hqueue.net.alerts import refusal_in
from hqueue.net.contexts import TlsContexts
from hqueue.net.refusals import RefusedError
from hqueue.net.talking import Talk, talk_in_thread
from hqueue.runtime.causes import causes
from hqueue.runtime.steps import carry_out
from hqueue.zookeeper.exchange import Exchange
from hqueue.zookeeper.proving import SessionSecurity

__all__ = ["Handler", "secure_handshake"]

_KNOWN = (ConnectionDropped, KazooTimeoutError, SessionExpiredError)
"""What kazoo's loop goes on after."""


class Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """Provides kazoo's threads and sockets, which may speak TLS.

    Args:
        tls: the TLS contexts; None for connections in clear.
        connect_s_max: the bound on connecting to one server. kazoo's own is the session's whole
            time-out: a server of an ensemble that is cut off silently would cost the session,
            although the others are there.
    """

    def __init__(self, tls: TlsContexts | None, connect_s_max: float = math.inf) -> None:
        super().__init__()
        self._tls = tls
        self._connect_s_max = connect_s_max

    def create_connection(
        self,
        address: tuple[str, int],
        hostname: str | None = None,
        timeout: float | None = None,
        **_: object,
    ) -> socket.socket:
        bound_s = self._connect_s_max if timeout is None else min(timeout, self._connect_s_max)
        opened: socket.socket = super().create_connection(address, timeout=bound_s)
        if self._tls is None:
            return opened
        try:
            return self._tls.current().wrap_socket(opened, server_hostname=hostname)
        except BaseException:
            opened.close()
            raise

    def select(
        self, reading: list[Any], writing: list[Any], failing: list[Any], timeout: float | None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Return what is ready. With TLS there may be more than the system knows of: the rest of a
        record that was read.
        """
        waiting = [each for each in reading if isinstance(each, ssl.SSLSocket) and each.pending()]
        ready, *others = super().select(reading, writing, failing, 0 if waiting else timeout)
        return [*waiting, *(each for each in ready if each not in waiting)], *others


def secure_handshake(
    client: KazooClient,
    security: SessionSecurity,
    timeout_ms: int,
    granted: Callable[[int], None],
    failed: Callable[[BaseException, RefusedError | None], None],
) -> None:
    """Have a client prove who it is in each connection, before anything says that it is connected.

    Args:
        client: the client, which has a `Handler`, and is not started yet.
        security: how.
        timeout_ms: how long a KDC, and how long the server may take for it.
        granted: called with the session's time-out when it is connected.
        failed: called when the connection can't be had, with the error; also with the refusal if
            client and server don't accept each other, after which kazoo ends the client. It must
            not raise.
    """
    connection = client._connection
    shake_hands, announce = connection._connect, client._session_callback

    def connect(host: str, address: str, port: int) -> tuple[float, float]:
        said: list[KeeperState] = []
        client._session_callback = said.append
        try:
            proof = carry_out(security.begin(host, ends_s()), _no_step)
            read_ms, connect_ms = shake_hands(host, address, port)
            talk = Talk()
            work = proof.give(Exchange(talk))
            talk_in_thread(work, connection._socket, ends_s())
            if talk.unused():
                raise ConnectionDropped("the server said more than it was asked for")
            connection._socket.setblocking(False)
        except BaseException as exc:
            refusal = None if isinstance(exc, SessionExpiredError) else _refusal_in(exc)
            failed(exc, refusal)
            if refusal is not None:
                raise AuthFailedError(refusal.text) from exc
            if isinstance(exc, _KNOWN):
                raise
            raise ConnectionDropped(str(exc)) from exc
        finally:
            client._session_callback = announce
        for state in said:
            announce(state)
        granted(round(read_ms * 3 / 2))  # It reads for two thirds of the time-out.
        return read_ms, connect_ms

    def ends_s() -> float:
        return time.monotonic() + timeout_ms / 1e3

    connection._connect = connect


def _refusal_in(error: BaseException | None) -> RefusedError | None:
    """The refusal that an error is, or that it comes from: kazoo makes one of its own of each error
    of a socket.
    """
    for each in causes(error, contexts=True):
        refusal = each if isinstance(each, RefusedError) else refusal_in(each, "zookeeper_tls")
        if refusal is not None:
            return refusal
    return None


def _no_step(step: object) -> object:
    raise AssertionError(f"a step that is no wait: {step}")
