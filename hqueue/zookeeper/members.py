"""The sessions at ZooKeeper that make up one: opened on demand, living and dying together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.hosts import collect_hosts

from hqueue.errors import (
    ClosedError,
    HQueueError,
    Outcome,
    StoreUnavailableError,
)
from hqueue.metadata.ports import SessionState
from hqueue.net.refusals import RefusedError
from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline
from hqueue.runtime.fork import register
from hqueue.runtime.logs import Log
from hqueue.runtime.seldom import FaultLog
from hqueue.runtime.sockets import NO_DESCRIPTORS, are_descriptors_left
from hqueue.runtime.steps import Work
from hqueue.runtime.stepwise import Stepwise, stepwise
from hqueue.runtime.threads import try_start
from hqueue.settings.connection import Settings
from hqueue.zookeeper.allocation import Allocation
from hqueue.zookeeper.courier import Courier
from hqueue.zookeeper.member import Member, end_all
from hqueue.zookeeper.proving import SessionSecurity
from hqueue.zookeeper.states import States
from hqueue.zookeeper.translation import not_accepted
from hqueue.zookeeper.waiting import NEW_BOX, Box, take

__all__ = ["Members", "Request"]

logger = Log(__name__)

REOPEN_MS = 1_000.0
"""When a session is opened again for which the system started no thread."""

REFUSED_PAUSE_MS = 10_000.0
"""How long to wait before reopening a session that was let in before, and then refused: a key may
have changed here, and not there yet."""

_faults = FaultLog(logger)
"""Of all sessions of the process with the same ensemble."""

Request = Callable[[KazooClient], Any]
"""Sends one request without waiting, and returns kazoo's asynchronous result."""


class Members(Stepwise):
    """The members of a session. Thread-safe. The first one is opened when one is first needed.

    The first is the *primary*; most sessions have no other. Further ones are opened when there
    are more ephemeral nodes than the others may own. All together are connected if each is, and
    suspended if one is not; when one is lost, all are ended, and a new primary is opened.

    Args:
        settings: how to reach ZooKeeper.
        bytes_max: how much each member may own, as `Allocation` counts.
    """

    def __init__(self, settings: Settings, bytes_max: int) -> None:
        self._settings = settings
        self._security = SessionSecurity(settings)
        self._bytes_max = bytes_max
        self.prefix_bytes = len((collect_hosts(settings.zookeeper)[1] or "").encode())
        """What the connection string's chroot adds to each path."""
        self._closed = False
        self._begin()
        register(self)

    def _begin(self) -> None:
        self.lock = threading.RLock()
        self._courier = Courier()
        self._waiters: set[Box] = set()
        self.states = States(self.lock)
        self._members: list[Member] = []
        self._allocation = self._new_allocation()
        self._granted_ms: int | None = None
        self._refusal: RefusedError | None = None
        """Why client and server did not accept each other the last time."""

    def _new_allocation(self) -> Allocation:
        return Allocation(self._bytes_max, self.prefix_bytes)

    def after_fork_in_child(self) -> None:
        self._begin()

    def __iter__(self) -> Iterator[Member]:
        """Those that were connected once: the others own nothing, and nothing depends on them."""
        return iter([member for member in list(self._members) if member.state is not None])

    @property
    def timeout_ms(self) -> int:
        """How long ZooKeeper keeps a session without a sign of life: as its servers granted it,
        which keep what was asked for within their own bounds. The least of all members'.
        """
        return min((member.timeout_ms for member in self), default=self._first_timeout_ms)

    @property
    def _first_timeout_ms(self) -> int:
        """What to expect before a handshake."""
        return self._granted_ms or self._settings.zookeeper_session_timeout_ms

    @property
    def id(self) -> int | None:
        """The primary's number at ZooKeeper, another one each time that the session begins again.
        None while it isn't connected.
        """
        primary = next(iter(list(self._members)), None)
        return primary.id if primary is not None and primary.connected else None

    def is_own(self, owner: int) -> bool:
        """Whether an ephemeral node of this owner is this session's."""
        return any(member.id == owner for member in self)

    def allocate(
        self, groups: Iterable[Sequence[str]], deadline: Deadline
    ) -> Work[Any, list[Member]]:
        """Choose the member that will own each group of ephemeral nodes; further ones are opened
        where there is no room. All that are chosen are connected.

        What is placed counts until `settle` says that it isn't there, or another's.

        Raises:
            As `primary`; StoreUnavailableError also where a further session can't be opened.
        """
        yield from self.primary.steps(deadline)
        placed = yield from self._courier.call.steps(partial(self._place, list(groups)))
        yield from self.wait(placed, deadline)
        return placed

    def _place(self, groups: Sequence[Sequence[str]]) -> list[Member]:
        with self.lock:
            self._check_begun()
            chosen = [self._allocation.allocate(paths) for paths in groups]
            for _ in self._allocation.bytes_by_session[len(self._members) :]:
                self._members.append(self._open())
            return [self._members[index] for index in chosen]

    def holders(self, paths: Iterable[str], deadline: Deadline) -> Work[Any, list[Member]]:
        """The member that each ephemeral node is placed with; the primary for others."""
        yield from self.primary.steps(deadline)
        with self.lock:
            self._check_begun()
            return [self._members[self._allocation.holder(path) or 0] for path in paths]

    def settle(self, nodes: Iterable[tuple[str, int | None]]) -> Work[Any, None]:
        """Take in who owns ephemeral nodes: what isn't this session's counts no more.

        Args:
            nodes: path and owner, None if there is no node, as the member answered that the node
                is placed with.
        """
        found = list(nodes)

        def settle() -> None:
            with self.lock:
                members = {member.id: index for index, member in enumerate(self._members)}
                members.pop(None, None)
                for path, owner in found:
                    self._allocation.settle(path, members.get(owner))

        if found:
            yield from self._courier.call.steps(settle)

    def ask(
        self, requests: Sequence[tuple[Member, Request]], bound_ms: float
    ) -> Work[Any, list[Any]]:
        """Like `Courier.ask`. A member whose requests have no answers while kazoo takes it for
        connected is dropped, and the session begins again.
        """
        results = yield from self._courier.ask(
            [partial(member.ask, request) for member, request in requests], bound_ms
        )
        for (member, _), result in zip(requests, results, strict=True):
            if isinstance(result, KazooTimeoutError):
                self._courier.post(partial(self._drop_mute, member))
                break
        return results

    def _drop_mute(self, member: Member) -> None:
        with self.lock:
            if member not in self._members:
                return
            if member.silent_since_ms is None:  # Others were answered: this one waits from now on.
                member.silent_since_ms = SYSTEM_CLOCK.monotonic_ms()
            if member.is_mute(self._settings.request_timeout_ms):
                logger.warning(
                    "the session with ZooKeeper is connected but does not answer; opening another"
                )
                self._begin_again()
                self._wake()

    @stepwise
    def close(self) -> Work[Any, None]:
        """End all of them; their ephemeral nodes disappear. Never raises."""
        self._closed = True
        bound_ms = self._settings.request_timeout_ms
        if not (yield from self._courier.end(self._end, bound_ms)):
            logger.warning(
                "the session with ZooKeeper did not end within %d ms; it is left to end by itself",
                bound_ms,
            )

    def close_later(self, delay_ms: float) -> None:
        """Have the session's own thread `close` it in a while, unless the process ends before."""
        self._courier.later(delay_ms, self.close)

    def _end(self) -> None:
        with self.lock:
            members, self._members = self._members, []
            for member in members:
                member.leave()
            self._wake()
        self.states.end()
        end_all(members)

    @stepwise
    def primary(self, deadline: Deadline) -> Work[Any, Member]:
        """Wait for the primary, which is opened if there is none.

        Raises:
            StoreUnavailableError: it is not connected within the bound.
            AuthenticationError: client and server don't accept each other.
            ClosedError: the session was closed.
        """
        with self.lock:
            before, is_open = self._refusal, bool(self._members) or self._closed
        if not is_open:
            self._courier.begin()
            yield from self._courier.call.steps(self._open_first)
        there = yield from self._wait_for(
            lambda: (
                self._closed
                or self._refusal is not before
                or (bool(self._members) and self._members[0].connected)
            ),
            deadline,
        )
        with self.lock:
            if self._closed:
                raise ClosedError("the client is closed")
            is_connected = bool(self._members) and self._members[0].connected
            if self._refusal is not None and self._refusal is not before and not is_connected:
                raise not_accepted(self._refusal, zookeeper=self._settings.zookeeper)
            if not there or not self._members:
                raise self._unreachable()
            return self._members[0]

    def wait(self, members: Iterable[Member], deadline: Deadline) -> Work[Any, None]:
        """Wait until these members are connected.

        Raises:
            StoreUnavailableError: one is not within the bound, or was lost.
            ClosedError: the session was closed.
        """
        awaited = set(members)
        there = yield from self._wait_for(
            lambda: (
                any(member.over for member in awaited)
                or all(member.connected for member in awaited)
            ),
            deadline,
        )
        with self.lock:
            self.check(awaited)
        if not there:
            raise self._unreachable()

    def check(self, members: Iterable[Member]) -> None:
        """Raise if the session of one of these is not this one any more."""
        if self._closed:
            raise ClosedError("the client is closed")
        if any(member.over for member in members):
            raise StoreUnavailableError(
                "the session with ZooKeeper was lost meanwhile", outcome=Outcome.UNKNOWN
            )

    def _check_begun(self) -> None:
        """Raise if there is no session. Called under the lock."""
        if self._closed:
            raise ClosedError("the client is closed")
        if not self._members:
            raise StoreUnavailableError(
                "the session with ZooKeeper was lost meanwhile", outcome=Outcome.NOT_APPLIED
            )

    def _wait_for(self, condition: Callable[[], bool], deadline: Deadline) -> Work[Any, bool]:
        """Wait until something is so; returns whether it is. A handler of a signal may raise here:
        the waiting thread does not hold the lock.
        """
        if self._is(condition):
            return True
        while remaining_ms := deadline.remaining_ms:
            waiter: Box = yield NEW_BOX
            try:
                if self._is(condition, waiter):
                    return True
                yield take(waiter, remaining_ms)
            finally:
                self._waiters.discard(waiter)  # ZooKeeper may stay away for days.
        return self._is(condition)

    def _is(self, condition: Callable[[], bool], waiter: Box | None = None) -> bool:
        """Whether something is so; if not, who waits is woken when that may have changed."""
        with self.lock:
            if condition():
                return True
            if waiter is not None:
                self._waiters.add(waiter)
            return False

    def _wake(self) -> None:
        """Let all who wait look again. Called under the lock."""
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            waiter.put(True)

    def _open_first(self) -> None:
        with self.lock:
            if not self._members and not self._closed:
                self._members.append(self._open())

    def _unreachable(self) -> StoreUnavailableError:
        failures = (member.failure for member in self._members if member.failure)
        text, facts = next(failures, (None, {}))
        if text is None:
            text = "ZooKeeper can't be reached" if are_descriptors_left() else NO_DESCRIPTORS
        return StoreUnavailableError(
            text, outcome=Outcome.NOT_APPLIED, zookeeper=self._settings.zookeeper, **facts
        )

    def _open(self) -> Member:
        try:
            return Member(
                self._settings,
                self._security,
                self._first_timeout_ms,
                changed=self._changed,
                granted=self._granted,
                refused=self._refused,
                outlived=self._outlived,
                later=self._courier.later,
            )
        except OSError as exc:  # kazoo has sockets of its own.
            raise self._unreachable() from exc

    def _granted(self, member: Member, timeout_ms: int) -> None:
        asked_ms = self._settings.zookeeper_session_timeout_ms
        with self.lock:
            if timeout_ms not in (asked_ms, self._granted_ms):
                logger.warning(
                    "ZooKeeper keeps a session for %d ms, not for %d as "
                    "zookeeper_session_timeout_ms asks: its servers bound session timeouts",
                    timeout_ms,
                    asked_ms,
                )
            less = timeout_ms < self.timeout_ms
            self._granted_ms = member.timeout_ms = timeout_ms
            if less and member in self._members[1:] and self.states.state is SessionState.CONNECTED:
                # What was confirmed before must not be relied on for longer than this one lasts.
                self.states.set(SessionState.SUSPENDED)
                self.states.set(SessionState.CONNECTED)

    def _changed(self, member: Member, state: SessionState) -> None:
        """Take in what kazoo says. Called by kazoo's connection thread."""
        with self.lock:
            if member not in self._members:
                return
            member.take(state)
            self._say(state)
            if state is SessionState.LOST:
                if member.given_up:
                    logger.error("kazoo gave up its connection to ZooKeeper; opening another")
                self._begin_again()
            else:
                if state is SessionState.CONNECTED and self.states.state is SessionState.LOST:
                    # ZooKeeper is back. The others have as long again to come back as well.
                    cut = SessionState.SUSPENDED
                    for other in filter(lambda each: each.state is cut, self._members):
                        other.begin_grace()
                self.states.set(self._state_of_all())
            self._wake()

    def _refused(self, member: Member, refusal: RefusedError) -> None:
        """Client and server don't accept each other. Called by kazoo's connection thread."""
        with self.lock:
            if member not in self._members:
                return
            self._refusal = refusal
            self._drop_all()
            if self._granted_ms is not None:
                logger.warning("the session with ZooKeeper is over: %s", refusal.text)
                self._courier.later(REFUSED_PAUSE_MS, self._open_again)
            self.states.set(SessionState.LOST)
            self._wake()

    def _say(self, state: SessionState) -> None:
        at = self._settings.zookeeper
        if state is SessionState.CONNECTED:
            if all(each.state in (None, SessionState.CONNECTED) for each in self._members):
                _faults.over(at, "ZooKeeper at %s answers again", at)
        else:
            _faults.met(at, "the connection to ZooKeeper at %s was lost", at)

    def _state_of_all(self) -> SessionState:
        """The state, by those members that were connected once."""
        if self._members[0].state is None:
            return self.states.state
        if all(member.state in (None, SessionState.CONNECTED) for member in self._members):
            return SessionState.CONNECTED
        return (
            SessionState.LOST if self.states.state is SessionState.LOST else SessionState.SUSPENDED
        )

    def _outlived(self, member: Member) -> None:
        """The connection stayed cut for as long as ZooKeeper keeps a session.

        Where all are cut nobody knows whether ZooKeeper ended them: one that was down ended none.
        Where others are not, it did, and what they own must not stay without the rest.
        """
        with self.lock:
            if member not in self._members or member.state is not SessionState.SUSPENDED:
                return
            if any(other.connected for other in self._members):
                self._begin_again()
            else:
                self.states.set(SessionState.LOST)
            self._wake()

    def _begin_again(self) -> None:
        """End all members: one of them is lost. Then connect."""
        self._drop_all()
        self._open_again()
        self.states.set(SessionState.LOST)

    def _drop_all(self) -> None:
        """End all members."""
        lost, self._members = self._members, []
        self._allocation = self._new_allocation()
        for member in lost:
            member.leave()
        # Not here: this may be the thread of one of them, whose end would be waited for. They are
        # lost: where no thread can be started any more they end with the process.
        try_start(end_all, lost, name="hqueue-session-end")

    def _open_again(self) -> None:
        """Open a primary, if there is none; a little later, if the system starts no thread now."""
        with self.lock:
            if self._members or self._closed:
                return
            try:
                self._members.append(self._open())
            except ClosedError:
                pass  # The program ends.
            except HQueueError as exc:
                logger.debug("a session with ZooKeeper will be opened a little later: %s", exc)
                self._courier.later(REOPEN_MS, self._open_again)
