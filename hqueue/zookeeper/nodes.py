"""Reading nodes of others, which lie anywhere: HBase's say where its servers are."""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
import struct
import time
from functools import partial
from typing import Any

from kazoo.exceptions import KazooException, NoNodeError

from hqueue.errors import Outcome, StoreUnavailableError
from hqueue.net.refusals import RefusedError
from hqueue.net.talking import Talk, Talking, talk_in_loop, talk_in_thread
from hqueue.net.tls import Tls
from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline, bounded_ms
from hqueue.runtime.loop import blocking
from hqueue.runtime.sockets import connect, open_connection, resolve, within
from hqueue.runtime.steps import Wait, Work
from hqueue.runtime.stepwise import Stepwise, stepwise
from hqueue.settings.addresses import Address, zookeeper_servers
from hqueue.settings.connection import Settings
from hqueue.zookeeper.exchange import Exchange, sized, unsized
from hqueue.zookeeper.proving import SessionSecurity
from hqueue.zookeeper.translation import is_refusal, not_accepted, refused

__all__ = ["ZooKeeperNodes"]

_READ_XID, _READ = 1, 4
_CLOSE_XID, _CLOSE = 2, -11
_CLOSED = (
    "it closed the connection, as it does if only one side speaks TLS; compare zookeeper_tls and "
    "the port in zookeeper with the servers' clientPort and secureClientPort"
)

NoAnswer = (OSError, struct.error, ValueError)
"""What reading an answer raises when none comes, or what comes is none."""


class ZooKeeperNodes(Stepwise):
    """Nodes by their absolute paths. Thread-safe, and usable in a forked child.

    Each read is by a session of its own, for there are few: so nothing is kept open meanwhile. It
    is made in the caller's thread, or in an event loop, without kazoo's client, which needs three
    threads of its own and so can't read anything while the interpreter ends.

    ```
    client                                    server
    the session begins                     ↔  `hqueue.zookeeper.exchange`
    it proves who it is                    ↔  `hqueue.zookeeper.proving`
    length │ xid 1, 4 │ path               →
                                           ←  length │ xid 1, zxid, error │ data, stat
    length │ xid 2, -11                    →  the session ends
    ```

    Args:
        settings: how to reach ZooKeeper. What its connection string is rooted at is left out: it is
            this project's.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._security = SessionSecurity(settings)

    @stepwise
    def read(self, path: str) -> Work[Any, bytes | None]:
        """A node's data; None if there is no such node. One try, of one server after the other,
        bounded by ``request_timeout_ms``.

        Raises:
            StoreUnavailableError: ZooKeeper gave no answer.
            RequestRefusedError: it refused; `AuthenticationError` if client and server don't accept
                each other.
        """
        deadline = Deadline(SYSTEM_CLOCK, bounded_ms(self._settings.request_timeout_ms))
        servers = zookeeper_servers(self._settings.zookeeper)
        random.shuffle(servers)
        reasons: list[str] = []
        text = "ZooKeeper gave no answer"
        while servers:
            # A server that hangs leaves time for the others.
            share_s = max(deadline.remaining_ms / len(servers), 1.0) / 1e3
            server = servers.pop()
            try:
                answer: bytes = yield Wait(
                    partial(self._here, server, path, share_s),
                    partial(self._in_loop, server, path, share_s),
                )
                return answer
            except NoNodeError:
                return None
            except RefusedError as exc:
                raise not_accepted(exc, path=path, server=str(server)) from exc
            except (*NoAnswer, KazooException) as exc:
                if is_refusal(exc):
                    raise refused(exc, path) from exc
                reasons.append(f"{server}: {type(exc).__name__}: {exc}")
                if isinstance(exc, ConnectionError) and not isinstance(exc, ConnectionRefusedError):
                    text = f"ZooKeeper gave no answer: {_CLOSED}"
        raise StoreUnavailableError(
            text,
            outcome=Outcome.NOT_APPLIED,
            path=path,
            reason="; ".join(reasons)[:1_000],
        )

    def _here(self, server: Address, path: str, timeout_s: float) -> bytes:
        ends_s = time.monotonic() + timeout_s
        with open_connection(server, timeout_s) as opened:
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return talk_in_thread(self._ask(server, path, ends_s), opened, ends_s)

    async def _in_loop(self, server: Address, path: str, timeout_s: float) -> bytes:
        ends_s = time.monotonic() + timeout_s
        try:
            return await within(self._connect_and_ask(server, path, ends_s), timeout_s)
        except asyncio.TimeoutError as exc:  # No `OSError` before Python 3.11.
            raise TimeoutError("timed out") from exc

    async def _connect_and_ask(self, server: Address, path: str, ends_s: float) -> bytes:
        with await connect(await resolve(server)) as opened:
            return await talk_in_loop(self._ask(server, path, ends_s), opened)

    def _ask(self, server: Address, path: str, ends_s: float) -> Talking[bytes]:
        connect_s = self._settings.connect_timeout_ms / 1e3
        proof = yield from self._security.begin(
            server.host, min(ends_s, time.monotonic() + connect_s)
        )
        talk = Talk()
        if self._security.tls is not None:
            context: ssl.SSLContext = yield blocking(self._security.tls.current)
            yield from talk.start_tls(Tls(context, server.host, "zookeeper_tls"))
        exchange = Exchange(talk)
        yield from exchange.begin(self._settings.zookeeper_session_timeout_ms)
        yield from proof.give(exchange)
        exchange.request(_READ_XID, _READ, sized(path.encode()) + b"\0")
        answer = yield from exchange.reply(_READ_XID)
        exchange.request(_CLOSE_XID, _CLOSE)
        yield from exchange.flush()
        return unsized(answer)
