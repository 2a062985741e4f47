"""A ZooKeeper in memory: it serves the protocol's own clients on a port, and needs no Java.

It knows what `hqueue.zookeeper` asks for. It has ACLs, and SASL's DIGEST-MD5 if it has users. A
frame is a length (4) and

    a request      xid (4) │ operation (4) │ its fields
    an answer      xid (4) │ zxid (8) │ error (4) │ its fields
    an event       xid -1, zxid -1, error 0 │ kind (4) │ state (4) │ path

and before the first of them the handshake: version (4), time-out, session and password.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import socket
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from tests.support.digest_md5_server import DigestMd5Server

__all__ = ["MemoryZooKeeper"]

TICK_S = 0.02
CONNECTED = 3
DELETED, CHANGED, CHILD = 2, 3, 4
NO_NODE, NO_AUTH, BAD_VERSION, NO_CHILDREN, NODE_EXISTS, NOT_EMPTY = (
    -101,
    -102,
    -103,
    -108,
    -110,
    -111,
)
INVALID_ACL, AUTH_FAILED, SASL_REQUIRED = -114, -115, -124
UNIMPLEMENTED, ROLLED_BACK, INCONSISTENT = -6, 0, -2
CHECK, GET_ACL, SET_ACL, AUTH, SASL = 13, 6, 7, 100, 102
CREATE, DELETE, EXISTS, GET, SET, CHILDREN, SYNC, PING, MULTI, CLOSE = (
    1,
    2,
    3,
    4,
    5,
    8,
    9,
    11,
    14,
    -11,
)
_INT, _LONG = struct.Struct(">i"), struct.Struct(">q")
_REPLY, _EVENT = struct.Struct(">iqi"), struct.Struct(">ii")
_HANDSHAKE, _GRANT = struct.Struct(">iqiq"), struct.Struct(">iiq")
_OPERATION = struct.Struct(">i?i")
_STAT = struct.Struct(">qqqqiiiqiiq")
MAY_READ, MAY_WRITE, MAY_CREATE, MAY_DELETE, MAY_ADMINISTER = 1, 2, 4, 8, 16

Identity: TypeAlias = tuple[str, str]
"""A scheme and who one is."""

Acl: TypeAlias = "tuple[tuple[int, Identity], ...]"

ANYONE: Identity = ("world", "anyone")


class RefusedError(Exception):
    """An operation that is not done, for the reason that this code says."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Fields:
    """Reads what is in a frame."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def unpack(self, form: struct.Struct) -> tuple[int, ...]:
        values = form.unpack_from(self._data, self._at)
        self._at += form.size
        return values

    def int(self) -> int:
        return self.unpack(_INT)[0]

    def bytes(self) -> bytes:
        length = max(0, self.int())
        self._at += length
        return self._data[self._at - length : self._at]

    def text(self) -> str:
        return self.bytes().decode()

    def flag(self) -> bool:
        self._at += 1
        return bool(self._data[self._at - 1])


def _sized(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data


@dataclasses.dataclass(frozen=True)
class Node:
    data: bytes = b""
    created: int = 0
    changed: int = 0
    version: int = 0
    owner: int = 0
    children: frozenset[str] = frozenset()
    children_changed: int = 0
    acl: Acl = ((31, ANYONE),)
    acl_version: int = 0
    created_ms: int = 0

    @property
    def stat(self) -> bytes:
        return _STAT.pack(
            self.created, self.changed, self.created_ms, 0, self.version, 0, self.acl_version,
            self.owner, len(self.data), len(self.children), self.children_changed,
        )  # fmt: skip


class Session:
    def __init__(self, id: int, timeout_ms: int) -> None:
        self.id = id
        self.password = b"%016d" % id
        self.timeout_ms = timeout_ms
        self.connection: Connection | None = None
        self.heard_at = time.monotonic()

    @property
    def overdue(self) -> bool:
        return time.monotonic() - self.heard_at > self.timeout_ms / 1e3


class Connection:
    """One client's connection, read by a thread of its own."""

    def __init__(self, server: MemoryZooKeeper, client: socket.socket) -> None:
        self._server = server
        self._socket = client
        self._reader = client.makefile("rb")
        self.identities: set[Identity] = set()
        """Who the client has proven to be."""
        self.sasl: DigestMd5Server | None = None
        threading.Thread(target=self._run, name="memory-zookeeper", daemon=True).start()

    def send(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            self._socket.sendall(_sized(data))

    def hang_up(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _run(self) -> None:
        with contextlib.suppress(OSError, EOFError), self._socket:
            session = self._server.greet(self, self._frame())
            while session is not None:
                self._server.answer(self, session, self._frame())
        self._server.drop(self)

    def _frame(self) -> Fields:
        length = self._reader.read(_INT.size)
        if length == b"srvr":
            self._socket.sendall(b"Zookeeper version: in memory")
        if length == b"srvr" or len(length) < _INT.size:
            raise EOFError
        return Fields(self._reader.read(_INT.unpack(length)[0]))


class MemoryZooKeeper:
    """The server. A context manager: it serves in the block, on `port` of this machine.

    Args:
        timeout_ms_min: how long it keeps a session at least.
        users: the passwords of SASL's users; None if it knows no SASL.
        demands_sasl: whether it does nothing for others.
    """

    def __init__(
        self,
        timeout_ms_min: int = 100,
        *,
        users: Mapping[str, str] | None = None,
        demands_sasl: bool = False,
    ) -> None:
        self.users = users
        self.sasl_goes_on = threading.Event()
        """While this is not set, no token is answered."""
        self.sasl_goes_on.set()
        self.tokens = 0
        """How many tokens of SASL came."""
        self._demands_sasl = demands_sasl
        self.refused: set[str] = set()
        """The paths that nobody may change."""
        self.closed: set[str] = set()
        """The nodes below which nobody may create others."""
        self.ahead_ms = 0
        """How far its clock is ahead of this machine's."""
        self._timeout_ms_min = timeout_ms_min
        self._lock = threading.RLock()
        self._nodes = {"": Node()}
        self._zxid = 0
        self._ids = itertools.count(1)
        self._sessions: dict[int, Session] = {}
        self._watches: dict[tuple[str, bool], set[Connection]] = defaultdict(set)
        """By path, and whether its children are watched."""
        self._events: list[tuple[str, int, bool]] = []
        self._closed = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._operations: dict[int, Callable[[Fields, Session], bytes]] = {
            CREATE: self._create,
            DELETE: self._delete,
            SET: self._set,
            MULTI: self._multi,
            CHECK: self._check,
            SET_ACL: self._set_acl,
        }

    def __enter__(self) -> MemoryZooKeeper:
        for work in (self._accept, self._end_overdue):
            threading.Thread(target=work, name="memory-zookeeper", daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._closed.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for session in self._sessions.values():
                if session.connection is not None:
                    session.connection.hang_up()

    @property
    def sessions(self) -> int:
        """How many there are now."""
        with self._lock:
            return len(self._sessions)

    @property
    def watches(self) -> int:
        """How many nodes are watched now."""
        with self._lock:
            return sum(map(len, self._watches.values()))

    def acls(self) -> dict[str, Acl]:
        """The ACL of each node."""
        with self._lock:
            return {path: node.acl for path, node in self._nodes.items() if path}

    @contextlib.contextmanager
    def silent(self) -> Iterator[None]:
        """Let it answer nobody in the block, as a machine that stands still."""
        with self._lock:
            yield

    def greet(self, connection: Connection, fields: Fields) -> Session | None:
        """Begin a session, or go on with one."""
        _, _, timeout_ms, session_id = fields.unpack(_HANDSHAKE)
        with self._lock:
            if session_id:
                session = self._sessions.get(session_id)
                if session is None or session.password != fields.bytes():
                    connection.send(_GRANT.pack(0, 0, 0) + _sized(bytes(16)) + b"\0")
                    return None
            else:
                session = Session(next(self._ids), max(timeout_ms, self._timeout_ms_min))
                self._sessions[session.id] = session
            session.connection = connection
            session.heard_at = time.monotonic()
            connection.send(
                _GRANT.pack(0, session.timeout_ms, session.id) + _sized(session.password) + b"\0"
            )
            return session

    def answer(self, connection: Connection, session: Session, fields: Fields) -> None:
        """Do what is asked for, and say what came of it."""
        xid, operation = fields.int(), fields.int()
        if operation == SASL:
            self.tokens += 1
            self.sasl_goes_on.wait()
        with self._lock:
            if session.id not in self._sessions:
                raise EOFError
            session.heard_at = time.monotonic()
            error, answer = 0, b""
            is_over = operation == CLOSE
            try:
                if operation == CLOSE:
                    self._end(session)
                elif operation == SASL:
                    answer = self._sasl(fields, connection)
                elif operation == AUTH:
                    self._authenticate(fields, connection)
                elif self._demands_sasl and not connection.identities:
                    raise RefusedError(SASL_REQUIRED)
                elif operation in self._operations:
                    self._zxid += 1
                    answer = self._operations[operation](fields, session)
                    self._notify()
                elif operation != PING:
                    answer = self._read(operation, fields, connection)
            except RefusedError as exc:
                error = exc.code
            if error in (AUTH_FAILED, SASL_REQUIRED):
                self._end(session)
                is_over = True
            connection.send(_REPLY.pack(xid, self._zxid, error) + answer)
            if is_over:
                raise EOFError

    def _sasl(self, fields: Fields, connection: Connection) -> bytes:
        token = fields.bytes()
        if self.users is None:
            return _INT.pack(-1)
        if connection.sasl is None:
            connection.sasl = DigestMd5Server(self.users, "zookeeper/zk-sasl-md5")
            return _sized(connection.sasl.challenge)
        proof = connection.sasl.proof(token)
        if proof is None:
            raise RefusedError(AUTH_FAILED)
        connection.identities.add(("sasl", connection.sasl.user))
        return _sized(proof)

    def _authenticate(self, fields: Fields, connection: Connection) -> None:
        _, scheme, credential = fields.int(), fields.text(), fields.text()
        if scheme != "digest":
            raise RefusedError(AUTH_FAILED)
        connection.identities.add((scheme, credential))

    def drop(self, connection: Connection) -> None:
        """A connection has ended; its watches go with it."""
        with self._lock:
            for watching in self._watches.values():
                watching.discard(connection)

    def _read(self, operation: int, fields: Fields, connection: Connection) -> bytes:
        path = fields.text().rstrip("/")
        if operation == SYNC:
            return _sized((path or "/").encode())
        if operation == GET_ACL:
            node = self._node(path)
            self._check_acl(node, connection, MAY_READ | MAY_ADMINISTER)
            entries = (
                _INT.pack(permissions) + _sized(scheme.encode()) + _sized(name.encode())
                for permissions, (scheme, name) in node.acl
            )
            return _INT.pack(len(node.acl)) + b"".join(entries) + node.stat
        watch = fields.flag()
        node = self._node(path)
        if operation != EXISTS:
            self._check_acl(node, connection, MAY_READ)
        if watch:
            self._watches[path, operation == CHILDREN].add(connection)
        if operation == EXISTS:
            return node.stat
        if operation == GET:
            return _sized(node.data) + node.stat
        if operation == CHILDREN:
            names = sorted(node.children)
            return _INT.pack(len(names)) + b"".join(_sized(name.encode()) for name in names)
        raise RefusedError(UNIMPLEMENTED)

    def _create(self, fields: Fields, session: Session) -> bytes:
        path, data = fields.text(), fields.bytes()
        acl = self._acl(fields, session)
        ephemeral = fields.int() & 1
        above, _, name = path.rpartition("/")
        parent = self._node(above)
        self._check_rights(path)
        self._check_acl(parent, session.connection, MAY_CREATE)
        if above in self.closed:
            raise RefusedError(NO_AUTH)
        if path in self._nodes:
            raise RefusedError(NODE_EXISTS)
        if parent.owner:
            raise RefusedError(NO_CHILDREN)
        owner = session.id if ephemeral else 0
        created_ms = round(1e3 * time.time()) + self.ahead_ms
        self._nodes[path] = Node(
            data, self._zxid, self._zxid, owner=owner, acl=acl, created_ms=created_ms
        )
        self._nodes[above] = dataclasses.replace(
            parent, children=parent.children | {name}, children_changed=self._zxid
        )
        self._events.append((above, CHILD, True))
        return _sized(path.encode())

    def _delete(self, fields: Fields, session: Session) -> bytes:
        path, version = fields.text(), fields.int()
        self._check_rights(path)
        node = self._node(path, version)
        self._check_acl(self._node(path.rpartition("/")[0]), session.connection, MAY_DELETE)
        if node.children:
            raise RefusedError(NOT_EMPTY)
        self._remove(path)
        return b""

    def _remove(self, path: str) -> None:
        del self._nodes[path]
        above, _, name = path.rpartition("/")
        parent = self._nodes[above]
        self._nodes[above] = dataclasses.replace(
            parent, children=parent.children - {name}, children_changed=self._zxid
        )
        self._events += [(path, DELETED, False), (path, DELETED, True), (above, CHILD, True)]

    def _set(self, fields: Fields, session: Session) -> bytes:
        path, data, version = fields.text(), fields.bytes(), fields.int()
        self._check_rights(path)
        node = self._node(path, version)
        self._check_acl(node, session.connection, MAY_WRITE)
        self._nodes[path] = dataclasses.replace(
            node, data=data, changed=self._zxid, version=node.version + 1
        )
        self._events.append((path, CHANGED, False))
        return self._nodes[path].stat

    def _set_acl(self, fields: Fields, session: Session) -> bytes:
        path = fields.text()
        acl, version = self._acl(fields, session), fields.int()
        node = self._node(path)
        self._check_acl(node, session.connection, MAY_ADMINISTER)
        if version not in (-1, node.acl_version):
            raise RefusedError(BAD_VERSION)
        changed = dataclasses.replace(node, acl=acl, acl_version=node.acl_version + 1)
        self._nodes[path] = changed
        return changed.stat

    def _acl(self, fields: Fields, session: Session) -> Acl:
        """The ACL in a request; ``auth`` stands for the client's own identities."""
        assert session.connection is not None
        entries: list[tuple[int, Identity]] = []
        for _ in range(fields.int()):
            permissions, identity = fields.int(), (fields.text(), fields.text())
            proven = sorted(session.connection.identities)
            entries += [
                (permissions, each) for each in (proven if identity[0] == "auth" else [identity])
            ]
        if not entries:
            raise RefusedError(INVALID_ACL)
        return tuple(entries)

    def _check_acl(self, node: Node, connection: Connection | None, permissions: int) -> None:
        assert connection is not None
        if not any(
            mask & permissions and (identity == ANYONE or identity in connection.identities)
            for mask, identity in node.acl
        ):
            raise RefusedError(NO_AUTH)

    def _check(self, fields: Fields, session: Session) -> bytes:
        path, version = fields.text(), fields.int()
        self._node(path, version)
        return b""

    def _multi(self, fields: Fields, session: Session) -> bytes:
        before, answers = dict(self._nodes), []
        error = ROLLED_BACK
        while True:
            operation, done, _ = fields.unpack(_OPERATION)
            if done:
                break
            try:
                answer = self._operations[operation](fields, session)
                answers.append(_OPERATION.pack(operation, False, 0) + answer)
            except RefusedError as exc:
                codes = [ROLLED_BACK] * len(answers) + [exc.code]
                error = exc.code
                break
        if error != ROLLED_BACK:
            self._nodes = before
            self._events.clear()
            answers = [_OPERATION.pack(-1, False, code) + _INT.pack(code) for code in codes]
        return b"".join(answers) + _OPERATION.pack(-1, True, -1)

    def _check_rights(self, path: str) -> None:
        if path in self.refused:
            raise RefusedError(NO_AUTH)

    def _node(self, path: str, version: int = -1) -> Node:
        node = self._nodes.get(path)
        if node is None:
            raise RefusedError(NO_NODE)
        if version not in (-1, node.version):
            raise RefusedError(BAD_VERSION)
        return node

    def _notify(self) -> None:
        """Send each watch its one event."""
        events, self._events = self._events, []
        for path, kind, children in events:
            for connection in self._watches.pop((path, children), ()):
                connection.send(
                    _REPLY.pack(-1, -1, 0) + _EVENT.pack(kind, CONNECTED) + _sized(path.encode())
                )

    def _end(self, session: Session) -> None:
        del self._sessions[session.id]
        self._zxid += 1
        for path in [path for path, node in self._nodes.items() if node.owner == session.id]:
            self._remove(path)
        self._notify()

    def _end_overdue(self) -> None:
        while not self._closed.wait(TICK_S):
            with self._lock:
                for session in [each for each in self._sessions.values() if each.overdue]:
                    self._end(session)
                    if session.connection is not None:
                        session.connection.hang_up()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                opened, _ = self._listener.accept()
                opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                Connection(self, opened)
