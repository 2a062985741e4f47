"""Reading nodes of others, which lie anywhere: HBase's say where its servers are."""

from __future__ import annotations

import random
import socket
import struct
from typing import Any

from kazoo.exceptions import EXCEPTIONS, KazooException, MarshallingError, NoNodeError
from kazoo.protocol.serialization import Auth, CloseInstance, Connect, GetData

from hqueue.errors import StoreUnavailableError
from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline
from hqueue.settings.addresses import Address, zookeeper_servers
from hqueue.settings.connection import Settings
from hqueue.zookeeper.translation import is_refusal, refused

__all__ = ["ZooKeeperNodes"]

AUTH_XID = -4
READ_XID = 1
CLOSE_XID = 2
FRAME_BYTES_MAX = 4 * 1024 * 1024
"""Of what a server sends. ZooKeeper's own bound on a node is 1 MiB, unless set."""

_LENGTH = struct.Struct("!i")
_REQUEST = struct.Struct("!ii")
_REPLY = struct.Struct("!iqi")

NoAnswer = (OSError, struct.error, ValueError, IndexError)
"""What reading an answer raises when none comes, or what comes is none."""


class ZooKeeperNodes:
    """Nodes by their absolute paths. Thread-safe, and usable in a forked child.

    Each read is by a session of its own, for there are few: so nothing is kept open meanwhile. It
    is made in the caller's thread, without kazoo's client, which needs three threads of its own and
    so can't read anything while the interpreter ends.

    ```
    client                                    server
    length │ connect (protocol, time-out)  →
                                           ←  length │ connect (time-out, session)
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
        deadline = Deadline(SYSTEM_CLOCK, self._settings.request_timeout_ms)
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
            "ZooKeeper gave no answer", path=path, reason="; ".join(reasons)[:1_000]
        )

    def _read(self, server: Address, path: str, deadline: Deadline) -> bytes:
        settings = self._settings
        with socket.create_connection(server, _seconds(deadline)) as opened:
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = _Connection(opened, deadline)
            connection.send(
                Connect(
                    0, 0, settings.zookeeper_session_timeout_ms, 0, bytes(16), False
                ).serialize()
            )
            accepted, _ = Connect.deserialize(connection.receive(), 0)
            if accepted.time_out <= 0:
                raise ConnectionError("the server takes no session")
            for rule in settings.zookeeper_auth:
                connection.request(AUTH_XID, Auth(0, rule.scheme, rule.credential))
                connection.reply(AUTH_XID)
            connection.request(READ_XID, GetData(path, None))
            answer, offset = connection.reply(READ_XID)
            data, _ = GetData.deserialize(answer, offset)
            connection.request(CLOSE_XID, CloseInstance)
            return bytes(data or b"")


class _Connection:
    """Frames to and from one server."""

    def __init__(self, opened: socket.socket, deadline: Deadline) -> None:
        self._socket = opened
        self._deadline = deadline

    def request(self, xid: int, what: Any) -> None:
        self.send(_REQUEST.pack(xid, what.type) + what.serialize())

    def reply(self, xid: int) -> tuple[bytes, int]:
        """The reply to a request, and where its body begins."""
        frame = self.receive()
        of, _, code = _REPLY.unpack_from(frame)
        if of != xid:
            raise ValueError("the reply is to another request")
        if code:
            raise EXCEPTIONS[code] if code in EXCEPTIONS else MarshallingError(f"code {code}")
        return frame, _REPLY.size

    def send(self, frame: bytes | bytearray) -> None:
        self._socket.settimeout(_seconds(self._deadline))
        self._socket.sendall(_LENGTH.pack(len(frame)) + frame)

    def receive(self) -> bytes:
        (length,) = _LENGTH.unpack(self._bytes(_LENGTH.size))
        if not 0 <= length <= FRAME_BYTES_MAX:
            raise ValueError("this is no frame of ZooKeeper's")
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


def _seconds(deadline: Deadline) -> float:
    """What is left, which is more than 0: that would mean not to wait at all."""
    return max(deadline.remaining_ms, 1.0) / 1e3
