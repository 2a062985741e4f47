"""What the callers of one port may have together, and which of them is hung up on. No I/O."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Generic, NamedTuple, TypeVar

from hqueue.rpc.gathering import Gatherer
from hqueue.rpc.shares import Share, Shares

__all__ = ["Bounds", "Caller", "Callers"]

PIECE_BYTES = 64 * 1024
"""For every piece of this many bytes a request or an answer may take `Bounds.still_ms_max`
longer.
"""
LEAVE_MS = 5_000.0
"""For this long a caller that was refused may go on to send before it reads why."""
STAY_MS_MIN = 1_000.0
"""A caller that was answered keeps its place for this long, however many others want one."""
LOOKED_AT_MAX = 64


class Bounds(NamedTuple):
    """The bounds of a port. Times in milliseconds."""

    connections_max: int
    """At a time. For a further one the oldest one goes that is idle."""
    held_bytes_max: int
    """Of all begun requests and all answers that wait for their reader, beyond which those who hold
    most give way (`Shares`); and of whole requests that wait for their turn, which may hold half of
    it."""
    still_ms_max: float
    """How long a begun request, or an answer that is being read, may stand still; it may take twice
    that, and as long again for every 64 KiB. How long a whole one may wait for its turn."""
    idle_ms_max: float
    """How long nothing may come between requests."""


class Caller:
    """A connection, as far as the rules are concerned."""

    __slots__ = (
        "among",
        "began_ms",
        "gatherer",
        "held",
        "holder",
        "moved_ms",
        "network",
        "passed_bytes",
        "proven",
        "share",
    )

    def __init__(self, gatherer: Gatherer, network: str = "") -> None:
        self.gatherer = gatherer
        self.network = network
        """Where it calls from: an IP address, or of version 6 a network."""
        self.holder: str | None = None
        """The principal whose share of the memory it takes; None if it has not proven that it may
        call, or if nobody has to."""
        self.among: OrderedDict[Any, None] | None = None
        """Those of its kind. Kept by `Callers`."""
        self.proven = False
        """Whether it has made a whole request, or proven who it is."""
        self.held = 0
        """The memory that it takes while it is waited for."""
        self.share: Share[Any] | None = None
        """Whose share of the memory it takes. Kept by `Callers`."""
        self.passed_bytes = 0
        """How far its request, or its answer, has come. Kept by those that move the bytes."""
        self.began_ms = 0.0
        self.moved_ms = 0.0


_Caller = TypeVar("_Caller", bound=Caller)


class Callers(Generic[_Caller]):
    """The callers of a port. Each is idle, begun, queued, busy or leaving: nothing has come of its
    next request; or that has begun to come, or its answer is being read; or it waits for its turn;
    or it is served; or it was refused, and nothing that it sends is kept. Not thread-safe.

    All that is asked here takes time for what is found, not for the number of callers; but
    `overdue` looks at those that have begun.

    Args:
        bounds: theirs.
    """

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._connections_max = bounds.connections_max
        self._new: OrderedDict[_Caller, None] = OrderedDict()
        """Idle ones that are not proven, the oldest first."""
        self._idle: OrderedDict[_Caller, None] = OrderedDict()
        """Proven ones that are idle, the one that was idle for longest first."""
        self._begun: OrderedDict[_Caller, None] = OrderedDict()
        """In the order in which they have begun."""
        self._queued: OrderedDict[_Caller, None] = OrderedDict()
        """In the order in which their requests were whole."""
        self._busy: OrderedDict[_Caller, None] = OrderedDict()
        self._leaving: OrderedDict[_Caller, None] = OrderedDict()
        """The one that was refused first is the first."""
        self._shares: Shares[_Caller] = Shares(bounds.held_bytes_max)
        """Of those that have begun."""
        self.held_bytes = 0
        """Of those that have begun, and of those that are queued."""
        self._queued_bytes = 0

    def __len__(self) -> int:
        return sum(map(len, (*self._waited_for, self._busy)))

    def __iter__(self) -> Iterator[_Caller]:
        yield from self.waited_for()
        yield from list(self._busy)

    def waited_for(self) -> Iterator[_Caller]:
        """All that are not busy."""
        for each in self._waited_for:
            yield from list(each)

    @property
    def _waited_for(self) -> tuple[OrderedDict[_Caller, None], ...]:
        return self._new, self._idle, self._begun, self._queued, self._leaving

    def mark_idle(self, caller: _Caller, now_ms: float) -> None:
        """It has connected, or was answered: it is idle from now on."""
        self._put(caller, self._idle if caller.proven else self._new)
        caller.moved_ms = now_ms

    def begin(self, caller: _Caller, held: int, now_ms: float) -> None:
        """A request has begun to come, or an answer to be read; `held` bytes are held for it."""
        self._put(caller, self._begun)
        self._shares.begin(caller)
        caller.began_ms = caller.moved_ms = now_ms
        self._hold(caller, held)

    def move(self, caller: _Caller, held: int, now_ms: float) -> None:
        """More of it has come, or was read."""
        caller.moved_ms = now_ms
        self._hold(caller, held)

    def queue(self, caller: _Caller, held: int, now_ms: float) -> bool:
        """Its request is whole, and waits for its turn; False if too much waits already."""
        bound = self.bounds.held_bytes_max // 2
        if self._queued and self._queued_bytes + held > bound:
            return False
        self._put(caller, self._queued)
        caller.moved_ms = now_ms
        self._hold(caller, held)
        return True

    def leave(self, caller: _Caller, now_ms: float) -> None:
        """It was refused: it is dropped as soon as it has read so."""
        self._put(caller, self._leaving)
        caller.moved_ms = now_ms

    @property
    def queued_count(self) -> int:
        """How many wait for their turn. May be asked from any thread."""
        return len(self._queued)

    @property
    def has_queued(self) -> bool:
        """Whether any waits for its turn. May be asked from any thread."""
        return bool(self._queued)

    @property
    def first_queued(self) -> _Caller | None:
        """Whose turn is next."""
        return next(iter(self._queued), None)

    def serve(self, caller: _Caller) -> None:
        """Its request is served: it is busy, and not for these rules to end."""
        self._put(caller, self._busy)
        caller.proven = True

    def awaits(self, caller: _Caller) -> bool:
        """Whether something is to come of it."""
        return caller.among is not self._busy and caller.among is not self._queued

    def drop(self, caller: _Caller) -> None:
        """It is gone: drop it."""
        self._hold(caller, 0)
        self._shares.end(caller)
        if caller.among is not None:
            del caller.among[caller]
            caller.among = None

    def surplus(self) -> Iterator[_Caller]:
        """Those that go so that the others are within the bound on memory, as `Shares` says: each
        must be dropped before the next one is asked for.
        """
        while self.held_bytes > self.bounds.held_bytes_max:
            caller = self._shares.first_to_go()
            if caller is None:
                return
            yield caller

    def to_make_room(self, now_ms: float) -> _Caller | None:
        """Who goes for a further connection; None if nobody has to, or all have to stay: see
        `has_room`.
        """
        if self.has_room:
            return None
        # What was just accepted has not been received from yet: half calls go before that.
        leaving = next(iter(self._leaving), None)
        if leaving is not None:
            return leaving
        new = next(iter(self._new), None)
        for begun in itertools.islice(self._begun, LOOKED_AT_MAX):
            if not begun.proven and (new is None or begun.began_ms <= new.moved_ms):
                return begun
        if new is not None:
            return new
        oldest = next(iter(self._idle), None)
        if oldest is not None and now_ms - oldest.moved_ms >= STAY_MS_MIN:
            return oldest
        return None

    def shrink(self) -> None:
        """The process can have no more connections than there are now, until `grow`."""
        self._connections_max = min(self._connections_max, max(1, len(self)))

    def grow(self) -> None:
        """There may be as many as the bounds say."""
        self._connections_max = self.bounds.connections_max

    @property
    def has_room(self) -> bool:
        """Whether there may be a further connection."""
        return len(self) < self._connections_max

    def overdue(self, now_ms: float) -> list[tuple[_Caller, str]]:
        """Those that have had their time, and what for."""
        found = []
        still_ms = self.bounds.still_ms_max
        for caller in self._begun:
            allowed_ms = still_ms * (2 + caller.passed_bytes / PIECE_BYTES)
            if now_ms - caller.moved_ms > still_ms or now_ms - caller.began_ms > allowed_ms:
                found.append((caller, "its call, or the reading of an answer, takes too long"))
        idle_ms = self.bounds.idle_ms_max
        for kind, bound_ms in (
            (self._new, idle_ms),
            (self._idle, idle_ms),
            (self._leaving, min(LEAVE_MS, still_ms)),
        ):
            found += [(caller, "") for caller in _since(kind, now_ms - bound_ms)]
        return found

    def not_served(self, now_ms: float) -> list[_Caller]:
        """Those that have waited for their turn for as long as they may."""
        return _since(self._queued, now_ms - self.bounds.still_ms_max)

    def _put(self, caller: _Caller, among: OrderedDict[_Caller, None]) -> None:
        self.drop(caller)
        caller.among = among
        among[caller] = None

    def _hold(self, caller: _Caller, held: int) -> None:
        self.held_bytes += held - caller.held
        self._shares.hold(caller, held - caller.held)
        if caller.among is self._queued:
            self._queued_bytes += held - caller.held
        caller.held = held


def _since(kind: OrderedDict[_Caller, None], at_ms: float) -> list[_Caller]:
    """Those of a kind, in its order, that have been so since a time."""
    return list(itertools.takewhile(lambda caller: caller.moved_ms <= at_ms, kind))
