"""Reading nodes of others, which lie anywhere: HBase's say where its servers are."""

from __future__ import annotations

import random
import socket
import struct

from kazoo.exceptions import EXCEPTIONS, KazooException, NoNodeError

from hqueue.errors import Outcome, StoreUnavailableError
from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline, bounded_ms
from hqueue.runtime.sockets import open_connection
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


class ZooKeeperNodes:
    """Nodes by their absolute paths. Thread-safe, and usable in a forked child.

    Each read is by a session of its own, for there are few: so nothing is kept open meanwhile. It
    is made in the caller's thread, without kazoo's client, which needs three threads of its own and
    so can't read anything while the interpreter ends.

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

    def read(self, path: str) -> bytes | None:
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
                return self._read(server, path, share)
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

    def _read(self, server: Address, path: str, deadline: Deadline) -> bytes:
        settings = self._settings
        with open_connection(server, _seconds(deadline)) as opened:
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = _Connection(opened, deadline)
            connection.send(
                _CONNECT.pack(0, 0, settings.zookeeper_session_timeout_ms, 0, 16, b"", False)
            )
            _, timeout_ms = _ACCEPTED.unpack_from(connection.receive())
            if timeout_ms <= 0:
                raise ConnectionError("the server accepts no session")
            for rule in settings.zookeeper_auth:
                connection.request(
                    AUTH_XID, AUTH, _LENGTH.pack(0) + _text(rule.scheme) + _text(rule.credential)
                )
                connection.reply(AUTH_XID)
            connection.request(READ_XID, READ, _text(path) + b"\0")
            answer = connection.reply(READ_XID)
            connection.request(CLOSE_XID, CLOSE)
        (length,) = _LENGTH.unpack_from(
            answer
        )  # -1 for no data, else this many bytes and the stat.
        data = answer[_LENGTH.size :][: max(0, length)]
        if len(data) < length:
            raise ValueError("the reply is cut off")
        return data


class _Connection:
    """Frames to and from one server."""

    def __init__(self, opened: socket.socket, deadline: Deadline) -> None:
        self._socket = opened
        self._deadline = deadline

    def request(self, xid: int, kind: int, body: bytes = b"") -> None:
        self.send(_REQUEST.pack(xid, kind) + body)

    def reply(self, xid: int) -> bytes:
        """The body of the reply to a request."""
        frame = self.receive()
        of, _, code = _REPLY.unpack_from(frame)
        if of != xid:
            raise ValueError("the reply belongs to another request")
        if code:
            if code not in EXCEPTIONS:
                raise ValueError(f"the reply has an unknown code: {code}")
            raise EXCEPTIONS[code]
        return frame[_REPLY.size :]

    def send(self, frame: bytes) -> None:
        self._socket.settimeout(_seconds(self._deadline))
        self._socket.sendall(_LENGTH.pack(len(frame)) + frame)

    def receive(self) -> bytes:
        (length,) = _LENGTH.unpack(self._bytes(_LENGTH.size))
        if not 0 <= length <= FRAME_BYTES_MAX:
            raise ValueError("this is not a frame of ZooKeeper")
        return self._bytes(length)

    def _bytes(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            self._socket.settimeout(_seconds(self._deadline))
            part = self._socket.recv(min(count - len(data), 65_536))
            if not part:
                raise ConnectionError("the server ended the connection")
            data += part
        return bytes(data)


def _text(text: str) -> bytes:
    encoded = text.encode()
    return _LENGTH.pack(len(encoded)) + encoded


def _seconds(deadline: Deadline) -> float:
    """What is left, which is more than 0: that would mean not to wait at all."""
    return max(deadline.remaining_ms, 1.0) / 1e3
