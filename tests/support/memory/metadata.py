"""A metadata store in memory, whose sessions end when a test says so."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from hqueue.errors import ClosedError, StoreUnavailableError
from hqueue.metadata import Coordination
from hqueue.metadata.ports import (
    ANY,
    NEW,
    Attempt,
    Change,
    Group,
    GuardedWrite,
    Obstacle,
    Record,
    SessionState,
    Version,
)
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock, Deadline

__all__ = ["MemoryCoordination", "MemoryServer", "MemoryStore"]

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")


class MemoryCoordination(Coordination):
    """A `Coordination` on a store in memory: one client's session.

    Args:
        server: what its clients share; None for a server of its own.
        root: what all keys begin with.
    """

    store: MemoryStore

    def __init__(self, server: MemoryServer | None = None, root: str = "/hqueue") -> None:
        server = server or MemoryServer()
        super().__init__(server.open(), root, server.clock)


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
        self.changed = threading.Condition(threading.RLock())
        """Notified of each change of a record, and of a session's state. Its lock is the one of
        everything here."""
        self.changes = 0
        self._entries: dict[str, _Entry] = {}
        self._stores: list[MemoryStore] = []
        self._sessions = 0

    def open(self) -> MemoryStore:
        """A session of its own."""
        store = MemoryStore(self)
        self._stores.append(store)
        return store

    def forget(self, store: MemoryStore) -> None:
        """Expect nothing more of a session that was closed."""
        self._stores.remove(store)

    def new_session_id(self) -> int:
        self._sessions += 1
        return self._sessions

    def end_overdue(self) -> None:
        """End the sessions that are suspended for too long."""
        for store in list(self._stores):
            store.end_if_overdue()

    def end(self, session_id: int) -> None:
        """Remove what is present by a session."""
        for key in [key for key, entry in self._entries.items() if entry.owner == session_id]:
            self.remove(key)

    def get(self, key: str) -> _Entry | None:
        return self._entries.get(key)

    def put(self, key: str, value: bytes, owner: int | None = None) -> Version:
        """Create a record, or change its value."""
        assert key.startswith("/"), key
        assert all(segment not in ("", ".", "..") for segment in key[1:].split("/")), key
        known = self._entries.get(key)
        self.changes += 1
        if known is None:
            entry = _Entry(value, Version(0), self.changes, owner)
        else:
            entry = _Entry(value, Version(known.version + 1), self.changes, known.owner)
        self._entries[key] = entry
        self.changed.notify_all()
        return entry.version

    def remove(self, key: str) -> None:
        self.changes += 1
        del self._entries[key]
        self.changed.notify_all()

    def below(self, key: str) -> list[str]:
        return [each for each in self._entries if each.startswith(f"{key}/")]

    def exists(self, key: str) -> bool:
        """Whether there is a record, or one below it."""
        return key in self._entries or bool(self.below(key))

    def view(self, prefix: str, depth: int) -> dict[str, Record]:
        """The records so many segments below a prefix."""
        slashes = prefix.count("/") + depth
        return {
            key: self._entries[key].record
            for key in self.below(prefix)
            if key.count("/") == slashes
        }


@dataclasses.dataclass(frozen=True, slots=True)
class _Entry:
    value: bytes
    version: Version
    changed: int
    owner: int | None

    @property
    def record(self) -> Record:
        return Record(self.value, self.version, self.changed)


class MemoryStore:
    """The `MetadataStore` in memory: one client's session, connected from the beginning.

    It is suspended by `suspend`, until `resume`; it ends at the server by `expire`, or when it is
    suspended for longer than the server keeps it.
    """

    def __init__(self, server: MemoryServer) -> None:
        self.server = server
        self.records = MemoryRecords(self)
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

    def watch(
        self, prefix: str, depth: int, on_change: Callable[[Mapping[str, Record]], None]
    ) -> _Watch:
        """As `MetadataStore.watch`."""
        return _Watch(self, prefix, depth, on_change)

    def on_state(
        self, on_change: Callable[[SessionState], None], on_close: Callable[[], None] | None = None
    ) -> _Listener:
        """As `MetadataStore.on_state`."""
        with self.server.changed:
            listener = _Listener(self._listeners, on_change, on_close)
            on_change(self.state)
            return listener

    def confirm(self) -> float:
        """As `MetadataStore.confirm`."""
        return self.ask(
            lambda: self.server.clock.monotonic_ms() + self.session_timeout_ms, wait=False
        )

    def close(self) -> None:
        """As `MetadataStore.close`."""
        with self.server.changed:
            if self.closed:
                return
            self.closed = True
            self.server.end(self._id)
            self.server.forget(self)
            listeners, self._listeners = self._listeners, []
            self.server.changed.notify_all()
        for listener in listeners:
            if listener.on_close is not None:
                listener.on_close()

    def suspend(self) -> None:
        """Cut the connection."""
        with self.server.changed:
            self._suspended_at_ms = self.server.clock.monotonic_ms()
            self._become(SessionState.SUSPENDED)

    def resume(self) -> None:
        """Let it come through again."""
        with self.server.changed:
            self.end_if_overdue()
            self._suspended_at_ms = None
            self._become(SessionState.CONNECTED)

    def expire(self) -> None:
        """End the session at the server; the next one begins as soon as it is not suspended."""
        with self.server.changed:
            self.server.end(self._id)
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
            with self.server.changed:
                self.server.end_overdue()
                if self.closed:
                    raise ClosedError("the client is closed")
                if self.state is not SessionState.CONNECTED:
                    raise StoreUnavailableError("the server can't be reached")
                return operation()

        return Deadline(self.server.clock, bound_ms).run(attempt)

    def _become(self, state: SessionState) -> None:
        if state is not self.state:
            self.state = state
            self.server.changed.notify_all()
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
    """A thread that calls a listener with each view. It is a `Watch`."""

    def __init__(
        self,
        store: MemoryStore,
        prefix: str,
        depth: int,
        on_change: Callable[[Mapping[str, Record]], None],
    ) -> None:
        self._store = store
        self._prefix = prefix
        self._depth = depth
        self._on_change = on_change
        self._view: Mapping[str, Record] | None = None
        self._looked_at = -1
        self._closed = False
        threading.Thread(target=self._run, name="memory-watch", daemon=True).start()

    def close(self) -> None:
        with self._store.server.changed:
            self._closed = True
            self._store.server.changed.notify_all()

    def _run(self) -> None:
        server = self._store.server
        while True:
            with server.changed:
                server.changed.wait_for(lambda: self._over or self._due)
                if self._over:
                    return
                self._looked_at = server.changes
                view = server.view(self._prefix, self._depth)
            if view != self._view:
                self._view = view
                try:
                    self._on_change(view)
                except Exception:
                    logger.exception("a listener of changes below %s failed", self._prefix)

    @property
    def _over(self) -> bool:
        return self._closed or self._store.closed

    @property
    def _due(self) -> bool:
        connected = self._store.state is SessionState.CONNECTED
        return connected and self._looked_at != self._store.server.changes


class MemoryRecords:
    """The `Records` in memory."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._server = store.server

    def keys(self, prefix: str, depth: int) -> Sequence[str]:
        """As `Records.keys`."""
        end = prefix.count("/") + depth + 1

        def look() -> Sequence[str]:
            segments = (key.split("/") for key in self._server.below(prefix))
            return sorted({"/".join(each[:end]) for each in segments if len(each) >= end})

        return self._store.ask(look)

    def list(self, prefix: str, depth: int) -> Mapping[str, Record]:
        """As `Records.list`."""
        return self._store.ask(lambda: self._server.view(prefix, depth))

    def read(self, keys: Iterable[str]) -> Mapping[str, Record]:
        """As `Records.read`."""
        wanted = [*keys]
        return self._store.ask(lambda: self._read(wanted))

    def create(self, values: Mapping[str, bytes]) -> Mapping[str, Record]:
        """As `Records.create`."""

        def create_missing() -> Mapping[str, Record]:
            for key, value in values.items():
                if self._server.get(key) is None:
                    self._server.put(key, value)
            return self._read(values)

        return self._store.ask(create_missing)

    def write(self, changes: Mapping[str, Change]) -> Mapping[str, Version | None]:
        """As `Records.write`."""
        return self._store.ask(
            lambda: {key: self._write(key, change) for key, change in changes.items()}
        )

    def delete(self, versions: Mapping[str, Version], *, levels_above: int = 0) -> Collection[str]:
        """As `Records.delete`. What leads to a record is no node of its own here."""

        def remove() -> Collection[str]:
            stay = set()
            for key, version in versions.items():
                known = self._server.get(key)
                if known is not None and (
                    version not in (ANY, known.version) or self._server.below(key)
                ):
                    stay.add(key)
                elif known is not None:
                    self._server.remove(key)
            return stay

        return self._store.ask(remove)

    def _read(self, keys: Iterable[str]) -> Mapping[str, Record]:
        found = ((key, self._server.get(key)) for key in keys)
        return {key: entry.record for key, entry in found if entry is not None}

    def _write(self, key: str, change: Change) -> Version | None:
        known = self._server.get(key)
        expected = NEW if known is None else known.version
        if change.version == expected or (change.version == ANY and known is not None):
            return self._server.put(key, change.value)
        return None


class MemoryEphemerals:
    """The `Ephemerals` in memory."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._server = store.server

    def put(
        self, groups: Sequence[Group], *, is_own: Callable[[bytes], bool], parents: bool = False
    ) -> Attempt:
        """As `Ephemerals.put`."""

        def put() -> Attempt:
            obstacle = None
            for group in groups:
                last = [*group][-1]
                above = {key.rpartition("/")[0] for key in group}
                if not parents and not all(map(self._server.exists, above)):
                    return Attempt(self._store.session_id, Obstacle(last, None))
                holder = self._server.get(last)
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
                if self._server.get(key) is None:
                    self._server.put(key, value, self._store.session_id)
            return self._own(values)

        return self._store.ask(claim)

    def release(self, keys: Iterable[str], *, wait: bool = True) -> None:
        """As `Ephemerals.release`."""
        released = [*keys]

        def release() -> None:
            for key in self._own(released):
                self._server.remove(key)

        self._store.ask(release, wait=wait)

    def write_where_absent(self, writes: Sequence[GuardedWrite]) -> Obstacle | None:
        """As `Ephemerals.write_where_absent`: all or none."""

        def write() -> Obstacle | None:
            for each in writes:
                if self._server.get(each.key) is None:
                    return Obstacle(each.key, None)
            for each in writes:
                guard = self._server.get(each.absent)
                if guard is not None:
                    return Obstacle(each.absent, guard.value)
            for each in writes:
                self._server.put(each.key, each.value)
            return None

        return self._store.ask(write)

    def _put(self, group: Group) -> None:
        own = {key: entry.value for key in self._own(group) if (entry := self._server.get(key))}
        if own == group:
            return
        for key, value in group.items():
            if self._server.get(key) is not None:
                self._server.remove(key)
            self._server.put(key, value, self._store.session_id)

    def _own(self, keys: Iterable[str]) -> list[str]:
        found = ((key, self._server.get(key)) for key in keys)
        return [key for key, entry in found if entry and entry.owner == self._store.session_id]
