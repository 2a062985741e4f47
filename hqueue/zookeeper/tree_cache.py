"""A part of ZooKeeper's tree, kept here as it is there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from kazoo.exceptions import NoNodeError
from kazoo.protocol.states import EventType, WatchedEvent

from hqueue.errors import ClosedError, HQueueError
from hqueue.metadata.ports import Record, SessionState
from hqueue.runtime.job import Job
from hqueue.runtime.logs import Log
from hqueue.runtime.loop import BackgroundLoop
from hqueue.runtime.steps import Work
from hqueue.runtime.stepwise import Stepwise, stepwise
from hqueue.zookeeper.requests import children, ensure, get
from hqueue.zookeeper.session import Request, Session
from hqueue.zookeeper.zookeeper_records import record_of

__all__ = ["TreeCache"]

logger = Log(__name__)

PAUSE_MS = 500.0


class TreeCache(Stepwise):
    """Keeps the nodes at one depth below a node, and tells a listener when they changed.

    Each node above that depth has a watch on its children, and each at it one on its data; so
    nothing is asked while nothing changes, and data above the depth may change unnoticed. What
    changed is read in bulk by the session's loop, and the listener is called: with the whole, once
    after changes that came together. After a connection was cut everything is read
    again, for the watches went with it; until then the last view stands.

    It is a `Watch`.

    Args:
        session: the session.
        top: the node at depth 0. It is created if it isn't there.
        depth: where the nodes with data are.
        on_change: the listener: path to record.
        loop: reads, and calls the listener; the session's if None.
    """

    def __init__(
        self,
        session: Session,
        top: str,
        depth: int,
        on_change: Callable[[Mapping[str, Record]], None],
        loop: BackgroundLoop | None = None,
    ) -> None:
        self._session = session
        self._top = top
        self._depth = top.count("/") + depth
        self._on_change = on_change
        self._children: dict[str, frozenset[str]] = {}
        self._leaves: dict[str, Record] = {}
        self._dirty: set[str] = {top}
        self._unreported = True
        self._closed = False
        self._lock = threading.RLock()
        self._loop = loop or session.loop
        self._reading = Job(self._refresh, loop=self._loop)
        self._reading.ask()
        try:
            self._listening = session.on_state(self._on_state, self._end)
        except BaseException:
            self._end()
            raise

    def close(self) -> None:
        """Call the listener no more. Never raises."""
        self._end()
        self._listening.close()

    def _end(self) -> None:
        self._closed = True
        self._reading.close()

    def _on_state(self, state: SessionState) -> None:
        with self._lock:
            if state is SessionState.CONNECTED:
                self._dirty |= {self._top, *self._children, *self._leaves}
        self._reading.ask()

    def _on_event(self, event: WatchedEvent) -> None:
        if event.type == EventType.NONE:
            return  # The connection was cut: `_on_state` knows.
        with self._lock:
            self._dirty.add(event.path)
        self._reading.ask()

    async def _refresh(self) -> float:
        """Read what changed, and report it; returns when to do so again."""
        with self._lock:
            if self._closed or not (self._dirty or self._unreported):
                return float("inf")
            dirty, self._dirty = self._dirty, set()
        try:
            await self._read.in_loop(dirty)
        except BaseException as exc:
            with self._lock:
                self._dirty |= dirty
            if isinstance(exc, ClosedError) or not isinstance(exc, HQueueError):
                raise
            logger.debug("changes below %s were not read: %s", self._top, exc)
            return PAUSE_MS
        with self._lock:
            settled = not self._dirty and not self._closed
        if settled and self._unreported:
            self._unreported = False
            await self._notify()
        return float("inf")

    async def _notify(self) -> None:
        what = f"a listener of changes below {self._top}"
        try:
            await self._loop.notify(what, self._on_change, dict(self._leaves))
        except HQueueError:  # There is no thread now.
            self._unreported = True
            raise

    @stepwise
    def _read(self, dirty: set[str]) -> Work[Any, None]:
        """Read these nodes again, and what is found below them.

        If this raises, `dirty` has those that are still to be read, also what was found meanwhile.
        """
        deadline = self._session.deadline()
        while dirty:
            paths = sorted(dirty)
            requests = [(path, self._request(path)) for path in paths]
            answers = yield from self._session.run.steps(requests, deadline)
            for path, answer in zip(paths, answers, strict=True):
                if path == self._top and isinstance(answer, NoNodeError):
                    yield from self._session.one.steps(path, ensure(path), deadline)
                    continue
                dirty.discard(path)
                if isinstance(answer, NoNodeError):
                    self._drop(path)
                    self._miss(path)
                elif path.count("/") == self._depth:
                    record = record_of(answer)
                    self._unreported |= self._leaves.get(path) != record
                    self._leaves[path] = record
                else:
                    found = frozenset(answer)
                    known = self._children.get(path, frozenset())
                    self._children[path] = found
                    dirty |= {f"{path}/{name}" for name in found - known}
                    for name in known - found:
                        self._drop(f"{path}/{name}")

    def _request(self, path: str) -> Request:
        read = get if path.count("/") == self._depth else children
        return read(path, self._on_event)

    def _miss(self, path: str) -> None:
        """Let the next listing of the node above find this one new, should it be there again."""
        above, _, name = path.rpartition("/")
        if above in self._children:
            self._children[above] -= {name}

    def _drop(self, path: str) -> None:
        """Forget a node and all below it."""
        if path.count("/") == self._depth:
            self._unreported |= self._leaves.pop(path, None) is not None
        for name in self._children.pop(path, frozenset()):
            self._drop(f"{path}/{name}")
