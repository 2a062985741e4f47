"""Connections that are kept for the next call: how many, for how long, and whose they are."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import functools
import math
import threading
from collections.abc import AsyncIterator, Callable
from typing import Generic, Protocol, TypeVar

from hqueue.runtime.clock import SYSTEM_CLOCK, Clock, Deadline
from hqueue.runtime.fork import register
from hqueue.runtime.interrupts import is_interruption
from hqueue.runtime.waiting import Condition

__all__ = [
    "AllInUseError",
    "AsyncConnectionPool",
    "ConnectionPool",
    "KeptConnections",
    "NoOlderConnectionError",
    "NotConnectedError",
]

LOOK_EVERY_S = 0.25
"""A caller that waits looks so often by itself whether a connection came back: the one that gave it
back may have been interrupted before it notified."""


class NotConnectedError(Exception):
    """No connection could be opened, so nothing was sent. Its cause says why."""


class AllInUseError(Exception):
    """All connections that will do stay in use."""


class NoOlderConnectionError(Exception):
    """No connection is left that was opened before the others."""


class _Closable(Protocol):
    def close(self) -> None: ...


Pooled = TypeVar("Pooled", bound=_Closable)
Answer = TypeVar("Answer")


class KeptConnections(Generic[Pooled]):
    """Open connections that nobody uses. It does no more than decide: not thread-safe, and it waits
    for nothing, so that threads and event loops can use it.

    Args:
        kept_max: this many are kept; further ones are closed when they come back.
        idle_ms: one that nobody used for longer is closed instead of used.
        usable: asked before one is used; it is closed if this says no.
        clock: where time comes from.
    """

    def __init__(
        self,
        kept_max: float = math.inf,
        idle_ms: float = math.inf,
        usable: Callable[[Pooled], bool] = lambda connection: True,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._kept_max = kept_max
        self._idle_ms = idle_ms
        self._usable = usable
        self._clock = clock
        self._closed = False
        self._kept: list[tuple[Pooled, int, float]] = []
        """Each with its number and when it was used, in the order in which they were used."""

    def take(self, below: float = math.inf) -> tuple[Pooled, int] | None:
        """The connection that was used last, of those with a number below this one, and its number;
        None if none is left. Closes those that idled for too long.
        """
        oldest_ms = self._clock.monotonic_ms() - self._idle_ms
        while self._kept and self._kept[0][2] < oldest_ms:
            self._kept.pop(0)[0].close()
        for at in reversed(range(len(self._kept))):
            if self._kept[at][1] < below:
                connection, number, _ = self._kept.pop(at)
                if self._usable(connection):
                    return connection, number
                connection.close()
        return None

    def has(self, below: float) -> bool:
        """Whether one is kept with a number below this one."""
        return any(number < below for _, number, _ in self._kept)

    def keep(self, connection: Pooled, number: int = 0) -> None:
        """Keep a connection for the next call, if there is room."""
        if self._closed or len(self._kept) >= self._kept_max:
            connection.close()
        else:
            self._kept.append((connection, number, self._clock.monotonic_ms()))

    def take_all(self) -> list[Pooled]:
        """All connections that are kept now: they are the caller's."""
        taken, self._kept = self._kept, []
        return [connection for connection, _, _ in taken]

    def drop(self) -> None:
        """Close those that are kept now."""
        for connection in self.take_all():
            connection.close()

    def close(self) -> None:
        """Close those that are kept, and each that comes back."""
        self._closed = True
        self.drop()


class _Use:
    """One caller's use of a connection."""

    __slots__ = ("connection", "number")

    def __init__(self) -> None:
        self.connection: object = None
        """None while it is opened."""
        self.number = 0


class ConnectionPool(Generic[Pooled]):
    """The connections to one server, each for one call at a time. Thread-safe; a forked child opens
    its own, and leaves those of its parent open.

    Args:
        open: opens a connection, within this many milliseconds.
        in_use_max: calls at a time; further ones wait.
        kept_max, idle_ms, usable, clock: as those of `KeptConnections`.
    """

    def __init__(
        self,
        open: Callable[[float], Pooled],
        *,
        in_use_max: float = math.inf,
        kept_max: float = math.inf,
        idle_ms: float = math.inf,
        usable: Callable[[Pooled], bool] = lambda connection: True,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._open = open
        self._in_use_max = in_use_max
        self._make_kept: Callable[[], KeptConnections[Pooled]] = functools.partial(
            KeptConnections, kept_max, idle_ms, usable, clock
        )
        self.after_fork_in_child()
        register(self)

    def after_fork_in_child(self) -> None:
        self._lock = threading.RLock()
        self._returned = Condition(self._lock)
        # The parent's are not closed but by the parent.
        self._left_to_parent = getattr(self, "_kept", None)
        self._kept = self._make_kept()
        self._uses: set[_Use] = set()
        """Those of callers that have a connection, or are opened one."""
        self._opened = 0

    @property
    def opened(self) -> int:
        """How many connections were opened."""
        return self._opened

    def call(
        self,
        request: Callable[[Pooled], Answer],
        answers: tuple[type[BaseException], ...],
        *,
        open_ms: float,
        wait_ms: float = math.inf,
        below: int | None = None,
    ) -> Answer:
        """Make a call by a connection that this caller alone has; its answer. The connection is
        kept if the call was answered, and closed otherwise: it may hold half an answer.

        A handler of a signal may raise an error anywhere: the place in the pool is given back.

        Args:
            request: makes the call.
            answers: the errors that are answers of the server.
            open_ms: the bound on opening a connection.
            wait_ms: how long to wait while all that will do are in use.
            below: use one of the first so many that were opened, and open none.

        Raises:
            NotConnectedError: none could be opened in time.
            AllInUseError: all that will do stay in use for `wait_ms`.
            NoOlderConnectionError: none of the first `below` is left.
            Exception: what the request raises.
        """
        use = _Use()
        try:
            connection = self._acquire(use, open_ms, wait_ms, below)
            try:
                answer = request(connection)
            except answers:
                self._keep(connection, use.number)
                raise
            except BaseException:
                connection.close()
                raise
            self._keep(connection, use.number)
            return answer
        finally:
            self._uses.discard(use)
            with self._lock:
                self._returned.notify_all()  # Not each that waits can use it.

    def drop(self) -> None:
        """Close the connections that nobody uses now."""
        with self._lock:
            self._kept.drop()

    def close(self) -> None:
        """Close the connections that nobody uses now, and the others when their calls end."""
        with self._lock:
            self._kept.close()

    def _acquire(self, use: _Use, open_ms: float, wait_ms: float, below: int | None) -> Pooled:
        with self._lock:
            self._await(below, wait_ms)
            self._uses.add(use)
            found = self._kept.take(math.inf if below is None else below)
            if found is not None:
                use.connection, use.number = found
                return found[0]
        if below is not None:
            raise NoOlderConnectionError("no older connection is left to reuse")
        try:
            connection = self._open(open_ms)
        except (OSError, UnicodeError) as exc:
            if is_interruption(exc):
                raise
            raise NotConnectedError("the connection can't be opened") from exc
        with self._lock:
            use.connection, use.number = connection, self._opened
            self._opened += 1
        return connection

    def _keep(self, connection: Pooled, number: int) -> None:
        with self._lock:
            self._kept.keep(connection, number)

    def _await(self, below: int | None, wait_ms: float) -> None:
        """Wait while one that will do may come back."""
        if self._has_any(below):
            return
        deadline = Deadline(SYSTEM_CLOCK, wait_ms)
        while not self._has_any(below):
            if deadline.expired:
                raise AllInUseError("all connections are in use")
            self._returned.wait(min(LOOK_EVERY_S, deadline.remaining_ms / 1e3))

    def _has_any(self, below: int | None) -> bool:
        """Whether a caller need not wait: there is one, or one may be opened, or none will come."""
        uses = list(self._uses)
        if len(uses) >= self._in_use_max:
            return False
        if below is None or self._kept.has(below):
            return True
        return all(use.number >= below for use in uses if use.connection is not None)


class AsyncConnectionPool(Generic[Pooled]):
    """The connections to one server, each for one call at a time. For one event loop.

    Args:
        make: makes a connection, which is opened when it is used.
        in_use_max: calls at a time; further ones wait.
        kept_max, usable: as those of `KeptConnections`.
    """

    def __init__(
        self,
        make: Callable[[], Pooled],
        in_use_max: int,
        kept_max: float = math.inf,
        usable: Callable[[Pooled], bool] = lambda connection: True,
    ) -> None:
        self._make = make
        self._free = in_use_max
        self._waiting: collections.deque[asyncio.Future[None]] = collections.deque()
        self._make_kept: Callable[[], KeptConnections[Pooled]] = functools.partial(
            KeptConnections, kept_max, usable=usable
        )
        self._kept = self._make_kept()

    @contextlib.asynccontextmanager
    async def connection(self, wait_s: float | None = None) -> AsyncIterator[Pooled]:
        """A connection for the caller alone. Those that wait get theirs in turn.

        Raises:
            AllInUseError: all stay in use for `wait_s`.
        """
        if self._free and not self._waiting:
            self._free -= 1
        else:
            await self._wait(wait_s)
        try:
            kept = self._kept
            found = kept.take()
            connection = self._make() if found is None else found[0]
            try:
                yield connection
            except BaseException:
                connection.close()  # There may be half a call in it, or an answer under way.
                raise
            finally:
                kept.keep(connection)
        finally:
            self._give_back()

    def renew(self) -> None:
        """Use other connections from now on: close those that are free now, and those in use when
        they get free.
        """
        self._kept.close()
        self._kept = self._make_kept()

    def close(self) -> None:
        """Close the connections that are free now, and the others when they get free."""
        self._kept.close()

    def abandon(self, how: Callable[[Pooled], object]) -> None:
        """Leave the connections that are free now to a function."""
        for connection in self._kept.take_all():
            how(connection)

    async def _wait(self, wait_s: float | None) -> None:
        has_it = False
        woken = asyncio.get_running_loop().create_future()
        self._waiting.append(woken)
        try:
            await asyncio.wait([woken], timeout=wait_s)
            has_it = woken.done()
        finally:
            if not has_it:
                if woken.done():  # It was cancelled when it had just got one.
                    self._give_back()
                else:
                    self._waiting.remove(woken)
        if not has_it:
            raise AllInUseError("all connections are in use")

    def _give_back(self) -> None:
        if self._waiting:
            self._waiting.popleft().set_result(None)
        else:
            self._free += 1
