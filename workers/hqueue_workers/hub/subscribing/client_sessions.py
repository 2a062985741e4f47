"""Clients' sessions with a hub: reports to each client which of its subscription sessions ended,
and ends sessions that are silent for too long.

A client process has one session, and in it a subscription session for each attached subscription
(`subscription_sessions`). The IDL calls a subscription session that ended *detached*.
"""

from __future__ import annotations

import asyncio
import enum
from collections import Counter, OrderedDict, defaultdict
from typing import NamedTuple

from hqueue import InvalidInputError
from hqueue.net.principals import is_proven
from hqueue.net.quotas import PortQuotas
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock

__all__ = ["ClientSessions", "SessionEnd", "SessionEndReason", "SessionKey"]

SESSIONS_MAX = 10_000
"""When there are too many sessions, the one that was silent for longest is dropped. Its client
finds out when it asks what was detached, and subscribes again.
"""
OWNER_SESSIONS_MAX = 2_500
"""The most sessions of one owner: a principal, or the address of a client that proves none."""
OWNER_WAITS_MAX = 100
SHORT_WAIT_MS = 2_000
"""Each call that waits holds a connection. This many calls of one owner may wait for as long as
they ask; further ones wait no longer than this."""
NOTES_MAX = 100_000
"""The most notes of one session. A session with more is dropped: its client subscribes to all its
topics again."""


class SessionKey(NamedTuple):
    """Identifies a client's session in a hub. Sessions of different principals differ even if they
    have the same name.

    Args:
        name: the name that the client chose.
        principal: the principal that the client has proven to be, as `calling_principal` gives it.
    """

    name: str
    principal: str | None = None


class SessionEndReason(enum.IntEnum):
    """Why a subscription session ended. The numbers are those of the IDL's `TDetachedReason`."""

    TOPIC_LEFT = 0
    REPLACED = 1
    UNSUBSCRIBED = 2


class SessionEnd(NamedTuple):
    """A subscription session that ended: the IDL's `TDetached`."""

    topic: str
    subscriber: str
    reason: SessionEndReason


class _Session:
    __slots__ = ("heard_ms", "notes", "owner", "waiting")

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.heard_ms = 0.0
        self.notes: dict[tuple[str, str], SessionEndReason] = {}
        self.waiting: asyncio.Future[None] | None = None


class ClientSessions:
    """The clients' sessions of one queue. Used by the event loop; a session is nothing but an
    object.

    Args:
        session_ms: a session that is silent for this long is over.
        clock: where time comes from.
        sessions_max: at a time.
        owner_sessions_max: at a time, of one owner.
        owner_waits_max: calls of one owner that may wait for long at a time.
        short_wait_ms: how long further ones wait.
        quotas: how many a caller may have; no other bounds if None.
    """

    def __init__(
        self,
        session_ms: float,
        clock: Clock = SYSTEM_CLOCK,
        *,
        sessions_max: int = SESSIONS_MAX,
        owner_sessions_max: int = OWNER_SESSIONS_MAX,
        owner_waits_max: int = OWNER_WAITS_MAX,
        short_wait_ms: int = SHORT_WAIT_MS,
        quotas: PortQuotas | None = None,
    ) -> None:
        self._session_ms = session_ms
        self._clock = clock
        self._sessions_max = sessions_max
        self._owner_sessions_max = owner_sessions_max
        self._owner_waits_max = owner_waits_max
        self._short_wait_ms = short_wait_ms
        self._quotas = quotas
        self._sessions: OrderedDict[SessionKey, _Session] = OrderedDict()
        """The session that was heard from last is the last."""
        self._of_owner: defaultdict[str, OrderedDict[SessionKey, None]] = defaultdict(OrderedDict)
        """Those of each owner, likewise."""
        self._waits: Counter[str] = Counter()
        """Calls that wait, by the owner of their session."""
        self._ending = False

    def heard(self, key: SessionKey, host: str = "") -> None:
        """Note that a client attaches something.

        Args:
            key: the session's.
            host: the client's address.

        Raises:
            BufferFullError: the session is new, and its owner has as many as its quota allows.
        """
        session = self._sessions.get(key)
        if session is None:
            owner = key.principal if is_proven(key.principal) else host
            if self._quotas is not None:
                live = sum(not self._is_over(each) for each in self._of_owner.get(owner, ()))
                self._quotas.check_held("sessions", live, key.principal, host)
            if len(self._of_owner[owner]) >= self._owner_sessions_max:
                self._end(next(iter(self._of_owner[owner])))
            elif len(self._sessions) >= self._sessions_max:
                self._end(next(iter(self._sessions)))
            session = self._sessions[key] = _Session(owner)
            self._of_owner[owner][key] = None
        self._hear(key, session)

    def attached(self, key: SessionKey, topic: str, subscriber: str) -> None:
        """Drop the note of this subscription: it is attached again."""
        session = self._sessions.get(key)
        if session is not None:
            session.notes.pop((topic, subscriber), None)

    def detached(
        self, key: SessionKey, topic: str, subscriber: str, reason: SessionEndReason
    ) -> None:
        """Report to a client that a subscription session ended."""
        session = self._sessions.get(key)
        if session is None:
            return
        session.notes[topic, subscriber] = reason
        if len(session.notes) > NOTES_MAX:
            self._end(key)
        elif session.waiting is not None and not session.waiting.done():
            session.waiting.set_result(None)

    async def wait(self, key: SessionKey, wait_ms: int) -> list[SessionEnd]:
        """Wait until something of a session has ended, or for a while, and return what ended and
        was not reported yet. An earlier call of the session that waits ends.

        Raises:
            InvalidInputError: there is no such session, or it was over long ago.
        """
        session = self._sessions.get(key)
        if session is None:
            raise InvalidInputError("this hub has no subscriptions of the session: subscribe again")
        self._hear(key, session)
        if session.waiting is not None and not session.waiting.done():
            session.waiting.set_result(None)
        if not session.notes and wait_ms and not self._ending:
            waiting = session.waiting = asyncio.get_running_loop().create_future()
            self._waits[session.owner] += 1
            if self._waits[session.owner] > self._owner_waits_max:
                wait_ms = min(wait_ms, self._short_wait_ms)
            try:
                await asyncio.wait({waiting}, timeout=wait_ms / 1e3)
            finally:
                self._waits[session.owner] -= 1
                if not self._waits[session.owner]:
                    del self._waits[session.owner]
            if session.waiting is not waiting:
                return []  # A later call returns the notes.
            session.waiting = None
        if self._sessions.get(key) is session:
            self._hear(key, session)
        notes, session.notes = session.notes, {}
        return [SessionEnd(*subscription, reason) for subscription, reason in notes.items()]

    def end_waits(self) -> None:
        """Answer each call that waits, and let none wait from now on: the hub ends, and its clients
        may have left.
        """
        self._ending = True
        for session in self._sessions.values():
            if session.waiting is not None and not session.waiting.done():
                session.waiting.set_result(None)

    def _hear(self, key: SessionKey, session: _Session) -> None:
        session.heard_ms = self._clock.monotonic_ms()
        self._sessions.move_to_end(key)
        self._of_owner[session.owner].move_to_end(key)

    def _end(self, key: SessionKey) -> None:
        """Forget a session."""
        session = self._sessions.pop(key)
        del self._of_owner[session.owner][key]
        if not self._of_owner[session.owner]:
            del self._of_owner[session.owner]
        if session.waiting is not None and not session.waiting.done():
            session.waiting.set_result(None)

    def _is_over(self, key: SessionKey) -> bool:
        session = self._sessions[key]
        silent_ms = self._clock.monotonic_ms() - session.heard_ms
        return session.waiting is None and silent_ms > self._session_ms

    def silent(self) -> set[SessionKey]:
        """Return the sessions that are over, and forget those that have been for long."""
        now_ms = self._clock.monotonic_ms()
        over = set()
        for key, session in list(self._sessions.items()):
            silent_ms = now_ms - session.heard_ms
            if session.waiting is None and silent_ms > self._session_ms:
                over.add(key)
            if session.waiting is None and silent_ms > 3 * self._session_ms:
                self._end(key)
        return over
