"""A metadata store in memory, whose sessions end when a test says so."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from hqueue.errors import ClosedError, Outcome, StoreUnavailableError
from hqueue.metadata import Coordination
from hqueue.metadata.ports import (
    Attempt,
    Group,
    Guard,
    GuardedWrite,
    Obstacle,
    Record,
    Request,
    SessionState,
    Version,
)
from hqueue.runtime.alarm import needed_loop
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock, Deadline
from hqueue.runtime.foreign import call_foreign
from hqueue.runtime.loop import BackgroundLoop, call_later, in_thread
from hqueue.runtime.threads import start
from tests.support.memory.memory_records import MemoryRecords
from tests.support.memory.tree import MemoryTree

__all__ = ["MemoryCoordination", "MemoryServer", "MemorySession"]


Answer = TypeVar("Answer")


class MemoryCoordination(Coordination):
    """A `Coordination` on a store in memory: one client's session.

    Args:
        server: what its clients share; None for a server of its own.
        root: what all keys begin with.
        loop: that of the program that the session belongs to, if there is one.
    """

    store: MemorySession

    def __init__(
        self,
        server: MemoryServer | None = None,
        root: str = "/hqueue",
        loop: BackgroundLoop | None = None,
    ) -> None:
        server = server or MemoryServer()
        super().__init__(server.open(loop), root, server.clock)


class MemoryServer:
    """What any number of sessions in this process share. Thread-safe.

    Args:
        clock: what the sessions' time is measured by.
        session_timeout_ms: how long a session is kept while it is suspended. It ends when anybody
            next asks for anything.
        operation_timeout_ms: the bound on one operation.
    """

    def __init__(
        self,
        *,
        clock: Clock = SYSTEM_CLOCK,
        session_timeout_ms: int = 2_000,
        operation_timeout_ms: int = 20_000,
    ) -> None:
        self.clock = clock
        self.session_timeout_ms = session_timeout_ms
        self.operation_timeout_ms = operation_timeout_ms
        self.tree = MemoryTree()
        self.confirmations = 0
        """How often a session asked whether it lives."""
        self._stores: list[MemorySession] = []
        self._sessions = 0

    @property
    def sessions(self) -> list[MemorySession]:
        """Those that are open, in the order in which they were opened."""
        with self.tree.changed:
            return list(self._stores)

    def open(self, loop: BackgroundLoop | None = None) -> MemorySession:
        """A session of its own."""
        with self.tree.changed:
            store = MemorySession(self, loop)
            self._stores.append(store)
            return store

    def drop(self, store: MemorySession) -> None:
        """Expect nothing more of a session that was closed."""
        self._stores.remove(store)

    def new_session_id(self) -> int:
        self._sessions += 1
        return self._sessions

    def end_overdue(self) -> None:
        """End the sessions that are suspended for too long."""
        for store in list(self._stores):
            store.end_if_overdue()


class MemorySession:
    """The `MetadataStore` in memory: one client's session, connected from the beginning.

    It is suspended by `suspend`, until `resume`; it ends at the server by `expire`, or when it is
    suspended for longer than the server keeps it.
    """

    def __init__(self, server: MemoryServer, loop: BackgroundLoop | None = None) -> None:
        self.server = server
        self._loop = loop
        self.records = MemoryRecords(server.tree, self.ask)
        self.ephemerals = MemoryEphemerals(self)
        self.state = SessionState.CONNECTED
        self.closed = False
        self._id = server.new_session_id()
        self._listeners: list[_Listener] = []
        self._suspended_at_ms: float | None = None

    @property
    def session_id(self) -> int | None:
        """As `MetadataStore.session_id`."""
        return self._id if self.state is SessionState.CONNECTED else None

    @property
    def session_timeout_ms(self) -> int:
        """As `MetadataStore.session_timeout_ms`."""
        return self.server.session_timeout_ms

    @property
    def loop(self) -> BackgroundLoop:
        """As `MetadataStore.loop`."""
        return self._loop or needed_loop()

    def watch(
        self,
        prefix: str,
        depth: int,
        on_change: Callable[[Mapping[str, Record]], None],
        loop: BackgroundLoop | None = None,
    ) -> _Watch:
        """As `MetadataStore.watch`."""
        return _Watch(self, prefix, depth, on_change, loop)

    def on_state(
        self, on_change: Callable[[SessionState], None], on_close: Callable[[], None] | None = None
    ) -> _Listener:
        """As `MetadataStore.on_state`."""
        with self.server.tree.changed:
            listener = _Listener(self._listeners, on_change, on_close)
            on_change(self.state)
            return listener

    async def answer(self, request: Request) -> Any:
        """As `MetadataStore.answer`."""
        return await in_thread(request.do, self)

    def confirm(self) -> float:
        """As `MetadataStore.confirm`."""
        self.server.confirmations += 1
        return self.ask(
            lambda: self.server.clock.monotonic_ms() + self.session_timeout_ms, wait=False
        )

    def close_later(self, delay_ms: float) -> None:
        """As `MetadataStore.close_later`."""
        call_later(delay_ms, self.close)

    def close(self) -> None:
        """As `MetadataStore.close`."""
        with self.server.tree.changed:
            if self.closed:
                return
            self.closed = True
            self.server.tree.remove_all(self._id)
            self.server.drop(self)
            listeners, self._listeners = self._listeners, []
            self.server.tree.changed.notify_all()
        for listener in listeners:
            if listener.on_close is not None:
                listener.on_close()

    def suspend(self) -> None:
        """Cut the connection."""
        with self.server.tree.changed:
            self._suspended_at_ms = self.server.clock.monotonic_ms()
            self._become(SessionState.SUSPENDED)

    def resume(self) -> None:
        """Let it come through again."""
        with self.server.tree.changed:
            self.end_if_overdue()
            self._suspended_at_ms = None
            self._become(SessionState.CONNECTED)

    def lose_sight(self) -> None:
        """As if the connection had been cut for so long that the session is taken for over, while
        the server was away for as long, and kept it.
        """
        with self.server.tree.changed:
            self._become(SessionState.LOST)
            self._become(SessionState.CONNECTED)

    def expire(self) -> None:
        """End the session at the server; the next one begins as soon as it is not suspended."""
        with self.server.tree.changed:
            self.server.tree.remove_all(self._id)
            self._id = self.server.new_session_id()
            self._become(SessionState.LOST)
            if self._suspended_at_ms is None:
                self._become(SessionState.CONNECTED)

    def end_if_overdue(self) -> None:
        """End the session at the server if it is suspended for too long."""
        since_ms = self._suspended_at_ms
        if since_ms is None or self.state is SessionState.LOST or self.closed:
            return
        if self.server.clock.monotonic_ms() - since_ms >= self.session_timeout_ms:
            self.expire()

    def ask(self, operation: Callable[[], Answer], *, wait: bool = True) -> Answer:
        """Do this at the server, once it is connected."""
        bound_ms = self.server.operation_timeout_ms if wait else 0

        def attempt() -> Answer:
            with self.server.tree.changed:
                self.server.end_overdue()
                if self.closed:
                    raise ClosedError("the client is closed")
                if self.state is not SessionState.CONNECTED:
                    raise StoreUnavailableError(
                        "the server can't be reached", outcome=Outcome.NOT_APPLIED
                    )
                return operation()

        return Deadline(self.server.clock, bound_ms).run(attempt)

    def _become(self, state: SessionState) -> None:
        if state is not self.state:
            self.state = state
            self.server.tree.changed.notify_all()
            for listener in list(self._listeners):
                listener.on_change(state)


class _Listener:
    """One that is called with the session's states. It is a `Watch`."""

    def __init__(
        self,
        listeners: list[_Listener],
        on_change: Callable[[SessionState], None],
        on_close: Callable[[], None] | None,
    ) -> None:
        self.on_change = on_change
        self.on_close = on_close
        self._listeners = listeners
        listeners.append(self)

    def close(self) -> None:
        if self in self._listeners:
            self._listeners.remove(self)


class _Watch:
    """A thread that calls a listener with each view, or has a loop call it. It is a `Watch`."""

    def __init__(
        self,
        store: MemorySession,
        prefix: str,
        depth: int,
        on_change: Callable[[Mapping[str, Record]], None],
        loop: BackgroundLoop | None,
    ) -> None:
        self._loop = loop
        self._store = store
        self._prefix = prefix
        self._depth = depth
        self._on_change = on_change
        self._view: Mapping[str, Record] | None = None
        self._looked_at = -1
        self._closed = False
        start(self._run, name="memory-watch")

    def close(self) -> None:
        with self._store.server.tree.changed:
            self._closed = True
            self._store.server.tree.changed.notify_all()

    def _run(self) -> None:
        tree = self._store.server.tree
        while True:
            with tree.changed:
                tree.changed.wait_for(lambda: self._over or self._due)
                if self._over:
                    return
                self._looked_at = tree.changes
                view = tree.view(self._prefix, self._depth)
            if view != self._view:
                self._view = view
                what = f"a listener of changes below {self._prefix}"
                if self._loop is None:
                    call_foreign(what, self._on_change, view)
                else:
                    self._loop.call(call_foreign, what, self._on_change, view)

    @property
    def _over(self) -> bool:
        return self._closed or self._store.closed

    @property
    def _due(self) -> bool:
        connected = self._store.state is SessionState.CONNECTED
        return connected and self._looked_at != self._store.server.tree.changes


class MemoryEphemerals:
    """The `Ephemerals` in memory."""

    def __init__(self, store: MemorySession) -> None:
        self._store = store
        self._tree = store.server.tree

    def put(
        self, groups: Sequence[Group], *, is_own: Callable[[bytes], bool], parents: bool = False
    ) -> Attempt:
        """As `Ephemerals.put`."""

        def put() -> Attempt:
            obstacle = None
            for group in groups:
                last = [*group][-1]
                above = {key.rpartition("/")[0] for key in group}
                if not parents and not all(map(self._tree.exists, above)):
                    return Attempt(self._store.session_id, Obstacle(last, None))
                holder = self._tree.get(last)
                if holder and holder.owner != self._store.session_id and not is_own(holder.value):
                    obstacle = Obstacle(last, holder.value)
                else:
                    self._put(group)
            return Attempt(self._store.session_id, obstacle)

        return self._store.ask(put)

    def claim(self, values: Mapping[str, bytes]) -> Collection[str]:
        """As `Ephemerals.claim`."""

        def claim() -> Collection[str]:
            for key, value in values.items():
                if self._tree.get(key) is None:
                    self._tree.put(key, value, self._store.session_id)
            return self._own(values)

        return self._store.ask(claim)

    def create(
        self, values: Mapping[str, bytes], guards: Mapping[str, Guard] | None = None
    ) -> Mapping[str, Version | None]:
        """As `Ephemerals.create`."""

        def create_one(key: str, value: bytes) -> Version | None:
            guard = (guards or {}).get(key)
            if self._tree.get(key) or not self._tree.holds(guard):
                return None
            if guard is not None:
                self._tree.put(guard.key, b"")
            return self._tree.put(key, value, self._store.session_id)

        def create() -> Mapping[str, Version | None]:
            return {key: create_one(key, value) for key, value in values.items()}

        return self._store.ask(create)

    def release(self, keys: Iterable[str], *, wait: bool = True) -> None:
        """As `Ephemerals.release`."""
        released = [*keys]

        def release() -> None:
            for key in self._own(released):
                self._tree.remove(key)

        self._store.ask(release, wait=wait)

    def own(self, keys: Iterable[str], on_change: Callable[[str], None]) -> Mapping[str, Record]:
        """As `Ephemerals.own`."""
        asked = [*keys]

        def report(key: str) -> None:
            if self._store.state is SessionState.CONNECTED:
                on_change(key)

        def look() -> Mapping[str, Record]:
            own = self._own(asked)
            for key in own:
                self._tree.watch(key, report)
            return {key: entry.record for key in own if (entry := self._tree.get(key))}

        return self._store.ask(look)

    def write_where_absent(self, writes: Sequence[GuardedWrite]) -> Obstacle | None:
        """As `Ephemerals.write_where_absent`: all or none."""

        def write() -> Obstacle | None:
            for each in writes:
                if self._tree.get(each.key) is None:
                    return Obstacle(each.key, None)
            for each in writes:
                guard = self._tree.get(each.absent)
                if guard is not None:
                    return Obstacle(each.absent, guard.value)
            for each in writes:
                self._tree.put(each.key, each.value)
            return None

        return self._store.ask(write)

    def _put(self, group: Group) -> None:
        own = {key: entry.value for key in self._own(group) if (entry := self._tree.get(key))}
        if own == group:
            return
        for key, value in group.items():
            if self._tree.get(key) is not None:
                self._tree.remove(key)
            self._tree.put(key, value, self._store.session_id)

    def _own(self, keys: Iterable[str]) -> list[str]:
        found = ((key, self._tree.get(key)) for key in keys)
        return [key for key, entry in found if entry and entry.owner == self._store.session_id]
