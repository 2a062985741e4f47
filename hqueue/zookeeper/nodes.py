"""Reading nodes of others, which lie anywhere: HBase's say where its servers are."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections.abc import Callable
from functools import partial
from typing import Any

from kazoo.exceptions import EXCEPTIONS, KazooException, NoNodeError

from hqueue.errors import Outcome, StoreUnavailableError
from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline, bounded_ms
from hqueue.runtime.sockets import connect, open_connection, opened_within, resolve, within
from hqueue.runtime.steps import Wait, Work
from hqueue.runtime.stepwise import Stepwise, stepwise
from hqueue.settings.addresses import Address, zookeeper_servers
from hqueue.settings.connection import Settings
from hqueue.zookeeper.translation import is_refusal, refused

__all__ = ["ZooKeeperNodes"]

AUTH_XID, AUTH = -4, 100
READ_XID, READ = 1, 4
CLOSE_XID, CLOSE = 2, -11
FRAME_BYTES_MAX = 4 * 1024 * 1024
"""Of what a server sends. ZooKeeper's own bound on a node is 1 MiB, unless set."""

_CONNECT = struct.Struct("!iqiqi16s?")
"""Version 0, no transaction seen, the time-out, no session yet, its password, no reading alone."""
_ACCEPTED = struct.Struct("!ii")
_LENGTH = struct.Struct("!i")
_REQUEST = struct.Struct("!ii")
_REPLY = struct.Struct("!iqi")

NoAnswer = (OSError, struct.error, ValueError)
"""What reading an answer raises when none comes, or what comes is none."""


class ZooKeeperNodes(Stepwise):
    """Nodes by their absolute paths. Thread-safe, and usable in a forked child.

    Each read is by a session of its own, for there are few: so nothing is kept open meanwhile. It
    is made in the caller's thread, or in an event loop, without kazoo's client, which needs three
    threads of its own and so can't read anything while the interpreter ends.

    ```
    client                                    server
    length │ version, time-out │ no session →
                                           ←  length │ version, time-out, session, password
    length │ xid -4, 100 │ credential      →  for each of ``zookeeper_auth``
                                           ←  length │ xid -4, zxid, error
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

    @stepwise
    def read(self, path: str) -> Work[Any, bytes | None]:
        """A node's data; None if there is no such node. One try, of one server after the other,
        bounded by ``request_timeout_ms``.

        Raises:
            StoreUnavailableError: ZooKeeper gave no answer.
            RequestRefusedError: it refused.
        """
        deadline = Deadline(SYSTEM_CLOCK, bounded_ms(self._settings.request_timeout_ms))
        servers = zookeeper_servers(self._settings.zookeeper)
        random.shuffle(servers)
        reasons: list[str] = []
        while servers:
            # A server that hangs leaves time for the others.
            share = Deadline(SYSTEM_CLOCK, deadline.remaining_ms / len(servers))
            server = servers.pop()
            try:
                return (yield from self._read(server, path, share))
            except NoNodeError:
                return None
            except (*NoAnswer, KazooException) as exc:
                if is_refusal(exc):
                    raise refused(exc, path) from exc
                reasons.append(f"{server}: {type(exc).__name__}: {exc}")
        raise StoreUnavailableError(
            "ZooKeeper gave no answer",
            outcome=Outcome.NOT_APPLIED,
            path=path,
            reason="; ".join(reasons)[:1_000],
        )

    def _read(self, server: Address, path: str, deadline: Deadline) -> Work[Any, bytes]:
        settings = self._settings
        opened: socket.socket = yield Wait(
            lambda: open_connection(server, _seconds(deadline)),
            lambda: opened_within(_connected(server), _seconds(deadline)),
        )
        with opened:
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = _Connection(opened, deadline)
            yield connection.send(
                _CONNECT.pack(0, 0, settings.zookeeper_session_timeout_ms, 0, 16, b"", False)
            )
            _, timeout_ms = _ACCEPTED.unpack_from((yield from connection.receive()))
            if timeout_ms <= 0:
                raise ConnectionError("the server accepts no session")
            for rule in settings.zookeeper_auth:
                yield connection.request(
                    AUTH_XID, AUTH, _LENGTH.pack(0) + _text(rule.scheme) + _text(rule.credential)
                )
                yield from connection.reply(AUTH_XID)
            yield connection.request(READ_XID, READ, _text(path) + b"\0")
            answer = yield from connection.reply(READ_XID)
            yield connection.request(CLOSE_XID, CLOSE)
        (length,) = _LENGTH.unpack_from(
            answer
        )  # -1 for no data, else this many bytes and the stat.
        data = answer[_LENGTH.size :][: max(0, length)]
        if len(data) < length:
            raise ValueError("the reply is cut off")
        return data


class _Connection:
    """Frames to and from one server, as steps."""

    def __init__(self, opened: socket.socket, deadline: Deadline) -> None:
        self._socket = opened
        self._deadline = deadline

    def request(self, xid: int, kind: int, body: bytes = b"") -> Wait:
        return self.send(_REQUEST.pack(xid, kind) + body)

    def reply(self, xid: int) -> Work[Any, bytes]:
        """The body of the reply to a request."""
        frame = yield from self.receive()
        of, _, code = _REPLY.unpack_from(frame)
        if of != xid:
            raise ValueError("the reply belongs to another request")
        if code:
            if code not in EXCEPTIONS:
                raise ValueError(f"the reply has an unknown code: {code}")
            raise EXCEPTIONS[code]
        return frame[_REPLY.size :]

    def send(self, frame: bytes) -> Wait:
        data = _LENGTH.pack(len(frame)) + frame
        return Wait(
            partial(self._here, self._socket.sendall, data),
            partial(self._in_loop, "sock_sendall", data),
        )

    def receive(self) -> Work[Any, bytes]:
        (length,) = _LENGTH.unpack((yield from self._bytes(_LENGTH.size)))
        if not 0 <= length <= FRAME_BYTES_MAX:
            raise ValueError("this is not a frame of ZooKeeper")
        return (yield from self._bytes(length))

    def _bytes(self, count: int) -> Work[Any, bytes]:
        data = bytearray()
        while len(data) < count:
            most = min(count - len(data), 65_536)
            part: bytes = yield Wait(
                partial(self._here, self._socket.recv, most),
                partial(self._in_loop, "sock_recv", most),
            )
            if not part:
                raise ConnectionError("the server ended the connection")
            data += part
        return bytes(data)

    def _here(self, call: Callable[[Any], object], argument: object) -> object:
        self._socket.settimeout(_seconds(self._deadline))
        return call(argument)

    async def _in_loop(self, method: str, argument: object) -> object:
        call = getattr(asyncio.get_running_loop(), method)
        try:
            return await within(call(self._socket, argument), _seconds(self._deadline))
        except asyncio.TimeoutError as exc:  # No `OSError` before Python 3.11.
            raise TimeoutError("timed out") from exc


async def _connected(server: Address) -> socket.socket:
    return await connect(await resolve(server))


def _text(text: str) -> bytes:
    encoded = text.encode()
    return _LENGTH.pack(len(encoded)) + encoded


def _seconds(deadline: Deadline) -> float:
    """What is left, which is more than 0: that would mean not to wait at all."""
    return max(deadline.remaining_ms, 1.0) / 1e3
