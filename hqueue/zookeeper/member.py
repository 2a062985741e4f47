"""One session at ZooKeeper's servers: a kazoo client, for as long as that session is."""

from __future__ import annotations

import atexit
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.protocol.serialization import Connect
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.retry import KazooRetry

from hqueue.metadata.ports import SessionState
from hqueue.net.kdc import kdc_error_of
from hqueue.net.refusals import RefusedError
from hqueue.runtime.clock import SYSTEM_CLOCK
from hqueue.runtime.interrupts import is_interruption
from hqueue.runtime.logs import Log
from hqueue.runtime.threads import refused as thread_refused
from hqueue.runtime.threads import try_start
from hqueue.settings.addresses import zookeeper_servers
from hqueue.settings.connection import Settings
from hqueue.zookeeper.courier import Later
from hqueue.zookeeper.handshake import Handler, secure_handshake
from hqueue.zookeeper.proving import SessionSecurity, acl_of, node_acl

__all__ = ["Failure", "Member", "end_all"]

logger = Log(__name__)


class _NoPayload(logging.Filter):
    """Leaves out kazoo's lines about each try to connect, unless all is wanted: `Members` says when
    the connection is cut, and when it is there again. Lines with requests and answers are left out
    in any case: they have keys in them, and the session's password, by which anyone could go on
    with the session.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        given = record.args if isinstance(record.args, tuple) else ()
        if record.levelno < logging.INFO or any(isinstance(each, Connect) for each in given):
            return False
        return record.levelno >= logging.ERROR or logger.is_enabled_for(logging.DEBUG)


kazoo_logger = logging.getLogger(f"{__name__}.kazoo")
kazoo_logger.addFilter(_NoPayload())

RECONNECT_PAUSE_MS_MAX = 2_000

_STATES = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.LOST,
}


def connect_s_max(settings: Settings) -> float:
    """How long connecting to one of ZooKeeper's servers may take.

    kazoo notices a silent server when two thirds of a session have passed. The remaining third must
    suffice for an attempt at each of the other servers.
    """
    servers = len(zookeeper_servers(settings.zookeeper))
    session_s = settings.zookeeper_session_timeout_ms / 1e3
    return session_s / 3 / servers if servers > 1 else session_s


class Failure(NamedTuple):
    """Says why a session could not connect."""

    text: str | None
    """What an error says; None where ZooKeeper itself can't be reached."""
    facts: Mapping[str, str]


class Member:
    """A session at ZooKeeper, one of those that make up a `Session`. It begins at once.

    What kazoo says is passed on; `Session` decides what it means, and changes a member only
    under its own lock. A member whose session is lost is never used again.

    Args:
        settings: how to reach ZooKeeper.
        security: how the session is secured.
        timeout_ms: how long ZooKeeper keeps the session, as long as it has not said so.
        changed: called by kazoo's connection thread with each state.
        granted: called by kazoo's connection thread with the time-out, after each handshake.
        refused: called by kazoo's connection thread when client and server don't accept each
            other. kazoo ends its client then.
        outlived: called in the background when the connection stayed cut for as long as
            ZooKeeper keeps the session.
        later: has something called later: as `Courier.later`.
    """

    def __init__(
        self,
        settings: Settings,
        security: SessionSecurity,
        timeout_ms: int,
        *,
        changed: Callable[[Member, SessionState], None],
        granted: Callable[[Member, int], None],
        refused: Callable[[Member, RefusedError], None],
        outlived: Callable[[Member], None],
        later: Callable[[float, Callable[[], object]], Later],
    ) -> None:
        self.timeout_ms = timeout_ms
        self.state: SessionState | None = None
        """None until it is connected for the first time: nothing depends on it before."""
        self.id: int | None = None
        """The session's number at ZooKeeper: what owns its ephemeral nodes."""
        self.over = False
        """Whether the session that it is a member of goes on without it."""
        self.silent_since_ms: float | None = None
        """When the first request was sent since the last answer. None if none was."""
        self.failure: Failure | None = None
        """Why it could not connect the last time; None if it could."""
        self._refused = refused
        self._outlived = outlived
        self._later = later
        self._grace: Later | None = None
        self.client = KazooClient(
            hosts=settings.zookeeper,
            timeout=settings.zookeeper_session_timeout_ms / 1e3,
            handler=Handler(security.tls, connect_s_max(settings)),
            use_ssl=security.tls is not None,
            default_acl=acl_of(node_acl(settings)),
            logger=kazoo_logger,
            connection_retry=KazooRetry(
                max_tries=-1, delay=0.1, max_delay=RECONNECT_PAUSE_MS_MAX / 1e3
            ),
        )
        self.client.add_listener(lambda state: changed(self, _STATES[state]))
        secure_handshake(
            self.client,
            security,
            settings.connect_timeout_ms,
            lambda timeout_ms: granted(self, timeout_ms),
            self._failed,
        )
        try:
            self.client.start_async()
        except RuntimeError as exc:
            if is_interruption(exc):
                raise
            raise thread_refused(exc, "kazoo") from exc
        except OSError:  # It has its threads, but no sockets to wake them by.
            self.client.handler.stop()
            raise
        # kazoo ends its threads when the interpreter begins to end, though others go on: a consumer
        # that is closed then needs them. They are daemons, and end with the process.
        atexit.unregister(self.client.handler.stop)

    @property
    def connected(self) -> bool:
        """Whether requests can be sent by it now."""
        return self.state is SessionState.CONNECTED and bool(self.client.connected)

    @property
    def given_up(self) -> bool:
        """Whether kazoo gave up the connection."""
        return bool(self.client.client_state is KeeperState.CLOSED)

    def take(self, state: SessionState) -> None:
        """Take in what kazoo says."""
        self.state = state
        self.silent_since_ms = None
        self._cancel_grace()
        if state is SessionState.CONNECTED:
            self.failure = None
            self.id = int(self.client._session_id)
        elif state is SessionState.SUSPENDED:
            self.begin_grace()

    def ask(self, request: Callable[[KazooClient], Any]) -> Any:
        """Send a request; returns kazoo's asynchronous result. Called by the session's thread."""
        if self.silent_since_ms is None:
            self.silent_since_ms = SYSTEM_CLOCK.monotonic_ms()
        result = request(self.client)
        result.rawlink(self._answered)
        return result

    def is_mute(self, bound_ms: float) -> bool:
        """Whether no request was answered for a bound, and for as long as ZooKeeper keeps the
        session, though kazoo, which ends a connection by which pings aren't answered, did not.
        """
        since_ms = self.silent_since_ms
        silent_ms = 0.0 if since_ms is None else SYSTEM_CLOCK.monotonic_ms() - since_ms
        return self.connected and silent_ms >= max(bound_ms, self.timeout_ms)

    def begin_grace(self) -> None:
        """Call `outlived` in the time that ZooKeeper keeps the session, unless the state changes.

        kazoo says LOST when ZooKeeper says so, which takes a connection.
        """
        self._cancel_grace()
        self._grace = self._later(self.timeout_ms, partial(self._outlived, self))

    def leave(self) -> None:
        """Be no member any more. The session at ZooKeeper ends by `end`."""
        self.over = True
        self._cancel_grace()

    def end(self) -> None:
        """End the session; its ephemeral nodes disappear. Never raises. Called by a thread of the
        library, which kazoo may hold up for ever.
        """
        try:
            self.client.stop()
            self.client.close()
        except BaseException:  # What it left open, ZooKeeper ends.
            logger.warning("the session with ZooKeeper was not closed", exc_info=True)

    def _answered(self, _: Any) -> None:
        self.silent_since_ms = None

    def _cancel_grace(self) -> None:
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None

    def _failed(self, error: BaseException, refusal: RefusedError | None) -> None:
        away = kdc_error_of(error)
        if away is not None:
            self.failure = Failure(away.text, away.facts)
        else:
            self.failure = Failure(None, {"reason": f"{type(error).__name__}: {error}"})
        if refusal is not None:
            self._refused(self, refusal)


def end_all(members: Sequence[Member]) -> None:
    """End sessions, all at once: each takes a round trip and the end of kazoo's threads."""
    others = {member: try_start(member.end, name="hqueue-session-end") for member in members[1:]}
    for member in members:
        thread = others.get(member)
        if thread is None:
            member.end()
        else:
            thread.join()
