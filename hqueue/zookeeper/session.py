"""The session with ZooKeeper: one kazoo client, its state, and requests in bulk."""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import KazooException, RolledBackError, RuntimeInconsistency
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.retry import KazooRetry
from kazoo.security import ACL, Id, Permissions

from hqueue.clock import SYSTEM_CLOCK, Deadline
from hqueue.config import Settings
from hqueue.coordination import SessionState
from hqueue.errors import ClosedError, RequestRefusedError, StoreUnavailableError
from hqueue.fork import register
from hqueue.zookeeper.translation import ANSWERS, translate

__all__ = ["Request", "Session", "Transaction"]

logger = logging.getLogger(__name__)

PIPELINED_MAX = 256
RECONNECT_PAUSE_MS_MAX = 2_000

Request = Callable[[KazooClient], Any]
"""Sends one request without waiting, and returns kazoo's asynchronous result."""

Transaction = Callable[[TransactionRequest], object]
"""Adds operations to a transaction: all of them are done, or none."""

_STATES = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.LOST,
}
_PERMISSIONS = {
    "r": Permissions.READ,
    "w": Permissions.WRITE,
    "c": Permissions.CREATE,
    "d": Permissions.DELETE,
    "a": Permissions.ADMIN,
}


class _Listener:
    """One that is told of the session's states. It is a `Watch`."""

    def __init__(
        self,
        session: Session,
        told: Callable[[SessionState], None],
        ended: Callable[[], None] | None,
    ) -> None:
        self._session = session
        self.told = told
        self.ended = ended

    def close(self) -> None:
        self._session.forget(self)


class Session:
    """A session with ZooKeeper. Thread-safe. Connects when it is first used.

    Requests are not repeated here: whether that is right is for their sender to know. In a forked
    child it begins anew: without the parent's ephemeral nodes, listeners and connection, all of
    which stay the parent's.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._closed = False
        self._begin()
        register(self)

    def _begin(self) -> None:
        self._lock = threading.RLock()
        self._changes = threading.Condition(self._lock)
        self._client: KazooClient | None = None
        self._state = SessionState.SUSPENDED
        self._listeners: list[_Listener] = []
        self._grace: threading.Timer | None = None
        self._granted_ms: int | None = None

    def after_fork_in_child(self) -> None:
        if self._client is not None:
            # Its threads stayed in the parent: waiting for them to end would be for ever.
            atexit.unregister(self._client.handler.stop)
        self._begin()

    def deadline(self) -> Deadline:
        """The bound on one operation, from now."""
        return Deadline(SYSTEM_CLOCK, self.settings.operation_timeout_ms)

    @property
    def timeout_ms(self) -> int:
        """How long ZooKeeper keeps a session without a sign of life: as its servers granted it,
        which keep what was asked for within their own bounds.
        """
        return self._granted_ms or self.settings.zookeeper_session_timeout_ms

    @property
    def state(self) -> SessionState:
        return self._state

    @property
    def id(self) -> int | None:
        """The session's number at ZooKeeper: what owns its ephemeral nodes. None without one."""
        client = self._client
        identity = None if client is None else client.client_id
        return None if identity is None else int(identity[0])

    def on_state(
        self, told: Callable[[SessionState], None], ended: Callable[[], None] | None = None
    ) -> _Listener:
        """Tell of each change of state, in order, beginning with the state now.

        Args:
            told: called with the state.
            ended: called when the session is closed for good.
        """
        listener = _Listener(self, told, ended)
        with self._lock:
            self._listeners.append(listener)
            self._tell(listener)
        return listener

    def forget(self, listener: _Listener) -> None:
        """Tell this one nothing more."""
        with self._lock:
            if listener in self._listeners:
                self._listeners.remove(listener)

    def confirm(self) -> float:
        """As `Coordination.confirm`."""
        client = self._connected(Deadline(SYSTEM_CLOCK, 0))
        sent_ms = SYSTEM_CLOCK.monotonic_ms()
        answer = self._answer("/", client.exists_async("/"))
        if isinstance(answer, Exception):
            raise translate(answer, "/") from answer
        return sent_ms + self.timeout_ms

    def connect(self, deadline: Deadline) -> int:
        """Wait for a connection, and return the session's number."""
        while (session_id := self.id) is None:
            self._connected(deadline)
        return session_id

    def run(self, requests: Sequence[tuple[str, Request]], deadline: Deadline) -> list[Any]:
        """Send requests, many at a time, and wait for all answers.

        Args:
            requests: what each is about, for errors, and the request.
            deadline: the bound on waiting for a connection. An answer that takes longer than
                ``request_timeout_ms`` counts as none.

        Returns:
            For each request its result; or, as a value, an error that is an answer (`ANSWERS`).

        Raises:
            StoreUnavailableError: one or more of them got no answer.
            RequestRefusedError: ZooKeeper will not do one of them.
            ClosedError: the session was closed.
        """
        answers: list[Any] = []
        for first in range(0, len(requests), PIPELINED_MAX):
            client = self._connected(deadline)
            sent = [(p, request(client)) for p, request in requests[first : first + PIPELINED_MAX]]
            answers += [self._answer(place, result) for place, result in sent]
        return answers

    def one(self, place: str, request: Request, deadline: Deadline) -> Any:
        """Send one request and return its result. Raises as `run`, and what is an answer, too."""
        (answer,) = self.run([(place, request)], deadline)
        if isinstance(answer, ANSWERS):
            raise answer
        return answer

    def transact(
        self, transactions: Iterable[tuple[str, Transaction]], deadline: Deadline
    ) -> list[Any]:
        """Commit transactions, many at a time.

        Returns:
            For each None if it was done, or the error that is the answer to its first operation
            that could not be: then nothing of it was done.

        Raises:
            As `run`.
        """

        def request(operations: Transaction) -> Request:
            def send(client: KazooClient) -> Any:
                transaction = client.transaction()
                operations(transaction)
                return transaction.commit_async()

            return send

        placed = list(transactions)
        committed = self.run([(place, request(fill)) for place, fill in placed], deadline)
        return [
            _verdict(place, results) for (place, _), results in zip(placed, committed, strict=True)
        ]

    def close(self) -> None:
        """End the session; its ephemeral nodes disappear. Never raises."""
        with self._lock:
            self._closed = True
            client, self._client = self._client, None
            listeners, self._listeners = self._listeners, []
            self._changes.notify_all()
            if self._grace is not None:
                self._grace.cancel()
        for listener in listeners:
            if listener.ended is not None:
                listener.ended()
        if client is not None:
            try:
                client.stop()
                client.close()
            except Exception:  # What it left open, ZooKeeper ends.
                logger.warning("the session with ZooKeeper was not closed", exc_info=True)

    def _answer(self, place: str, result: Any) -> Any:
        try:
            return result.get(timeout=self.settings.request_timeout_ms / 1e3)
        except ANSWERS as exc:
            return exc
        except (KazooException, KazooTimeoutError) as exc:
            raise translate(exc, place) from exc

    def _connected(self, deadline: Deadline) -> KazooClient:
        """The client, when it is connected."""
        with self._lock:
            if self._closed:
                raise ClosedError("the client is closed")
            if self._client is None:
                self._client = self._open()
            if not self._changes.wait_for(
                lambda: self._client is None or self._client.connected,
                deadline.remaining_ms / 1e3,
            ):
                raise StoreUnavailableError(
                    "ZooKeeper can't be reached", zookeeper=self.settings.zookeeper
                )
            if self._closed:
                raise ClosedError("the client is closed")
            if self._client is None:
                raise RequestRefusedError(
                    "ZooKeeper refused the session; see zookeeper_auth",
                    zookeeper=self.settings.zookeeper,
                )
            return self._client

    def _open(self) -> KazooClient:
        client = KazooClient(
            hosts=self.settings.zookeeper,
            timeout=self.settings.zookeeper_session_timeout_ms / 1e3,
            auth_data=[(rule.scheme, rule.credential) for rule in self.settings.zookeeper_auth],
            default_acl=[
                ACL(sum(_PERMISSIONS[p] for p in set(rule.permissions)), Id(rule.scheme, rule.id))
                for rule in self.settings.zookeeper_acl
            ],
            connection_retry=KazooRetry(
                max_tries=-1, delay=0.1, max_delay=RECONNECT_PAUSE_MS_MAX / 1e3
            ),
        )
        client.add_listener(lambda state: self._changed(client, _STATES[state]))
        self._watch_handshake(client._connection)
        client.start_async()
        return client

    def _watch_handshake(self, connection: Any) -> None:
        """Learn the session time-out that is granted: kazoo keeps it to itself."""
        shake_hands = connection._connect

        def watched(*arguments: Any) -> tuple[float, float]:
            read_ms, connect_ms = shake_hands(*arguments)
            self._granted(round(read_ms * 3 / 2))  # It reads for two thirds of the time-out.
            return read_ms, connect_ms

        connection._connect = watched

    def _granted(self, timeout_ms: int) -> None:
        asked_ms = self.settings.zookeeper_session_timeout_ms
        if timeout_ms not in (asked_ms, self._granted_ms):
            logger.warning(
                "ZooKeeper keeps a session for %d ms, not for %d as zookeeper_session_timeout_ms "
                "asks: its servers have bounds of their own",
                timeout_ms,
                asked_ms,
            )
        self._granted_ms = timeout_ms

    def _changed(self, client: KazooClient, state: SessionState) -> None:
        """Take in what kazoo says. Called by kazoo's connection thread."""
        with self._lock:
            if self._client is None or self._client is not client:
                return
            if self._grace is not None:
                self._grace.cancel()
                self._grace = None
            if state is SessionState.SUSPENDED:
                # kazoo says LOST when ZooKeeper says so, which takes a connection.
                self._grace = threading.Timer(self.timeout_ms / 1e3, self._outlived, (client,))
                self._grace.daemon = True
                self._grace.start()
            if self._client.client_state is KeeperState.AUTH_FAILED:
                self._client = None  # kazoo tries no more: the next use opens another.
            elif self._client.client_state is KeeperState.CLOSED:
                logger.error("kazoo gave up its connection to ZooKeeper; another is opened")
                self._client = self._open()
            self._set(state)

    def _outlived(self, client: KazooClient) -> None:
        """The connection stayed cut for as long as ZooKeeper keeps a session."""
        with self._lock:
            if client is self._client and self._state is SessionState.SUSPENDED:
                self._set(SessionState.LOST)

    def _set(self, state: SessionState) -> None:
        self._state = state
        self._changes.notify_all()
        for listener in list(self._listeners):
            self._tell(listener)

    def _tell(self, listener: _Listener) -> None:
        try:
            listener.told(self._state)
        except Exception:
            logger.exception("a listener of the session's state failed")


def _verdict(place: str, results: Sequence[Any]) -> Any:
    """What stopped a transaction; None if nothing did."""
    for result in results:
        if isinstance(result, ANSWERS):
            return result
        if isinstance(result, Exception) and not isinstance(
            result, (RolledBackError, RuntimeInconsistency)
        ):
            raise translate(result, place) from result
    failed: Iterator[Exception] = (r for r in results if isinstance(r, Exception))
    error = next(failed, None)
    if error is not None:
        raise translate(error, place) from error
    return None
