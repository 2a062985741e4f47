"""The cache of a tree, on a ZooKeeper whose events come when the test says so."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kazoo.exceptions import NoNodeError
from kazoo.protocol.states import EventType, KeeperState, WatchedEvent

from hqueue.metadata import SessionState
from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline
from hqueue.zookeeper.session import Request, Session
from hqueue.zookeeper.tree import Leaf
from hqueue.zookeeper.tree_cache import TreeCache
from tests.support.waiting import wait_for

TOP = "/top"

Watcher = Callable[[WatchedEvent], object]


class _ZooKeeper:
    """A tree of depth 1 below `TOP`, with one-shot watches, as a session and its client."""

    def __init__(self) -> None:
        self.events: list[tuple[Watcher, WatchedEvent]] = []
        """What was set off, and waits to be told."""
        self._leaves: dict[str, tuple[bytes, int]] = {}
        self._watches: dict[tuple[str, str], Watcher] = {}
        self._changes = 0
        self._lock = threading.Lock()

    def create(self, path: str, data: bytes) -> None:
        with self._lock:
            self._changes += 1
            self._leaves[path] = data, self._changes
            self._set_off("children", TOP, EventType.CHILD)

    def delete(self, path: str) -> None:
        with self._lock:
            del self._leaves[path]
            self._set_off("data", path, EventType.DELETED)
            self._set_off("children", TOP, EventType.CHILD)

    def tell(self) -> None:
        """Tell the first event that waits."""
        watcher, event = self.events.pop(0)
        watcher(event)

    def _set_off(self, kind: str, path: str, event: str) -> None:
        watcher = self._watches.pop((kind, path), None)
        if watcher is not None:
            told = WatchedEvent(type=event, state=KeeperState.CONNECTED, path=path)
            self.events.append((watcher, told))

    def get_async(self, path: str, watch: Watcher) -> Any:
        with self._lock:
            if path not in self._leaves:
                return NoNodeError()
            self._watches["data", path] = watch
            data, changed = self._leaves[path]
            return data, SimpleNamespace(mzxid=changed)

    def get_children_async(self, path: str, watch: Watcher) -> Any:
        with self._lock:
            self._watches["children", path] = watch
            return [leaf.rpartition("/")[2] for leaf in self._leaves]

    def deadline(self) -> Deadline:
        return Deadline(SYSTEM_CLOCK, 1_000)

    def run(self, requests: Sequence[tuple[str, Request]], deadline: Deadline) -> list[Any]:
        return [request(cast("Any", self)) for _, request in requests]

    def on_state(
        self, on_change: Callable[[SessionState], None], on_close: Callable[[], None]
    ) -> Any:
        return SimpleNamespace(close=lambda: None)


@pytest.fixture
def zookeeper() -> _ZooKeeper:
    return _ZooKeeper()


@pytest.fixture
def views(zookeeper: _ZooKeeper) -> Iterator[list[Mapping[str, Leaf]]]:
    """What the listener of a cache was told."""
    told: list[Mapping[str, Leaf]] = []
    cache = TreeCache(cast("Session", zookeeper), TOP, 1, told.append)
    wait_for(lambda: told, "the first view")
    yield told
    cache.close()


def _last(views: list[Mapping[str, Leaf]]) -> dict[str, bytes]:
    return {path: leaf.data for path, leaf in views[-1].items()}


def test_it_tells_what_is_there_and_what_comes_and_goes(
    zookeeper: _ZooKeeper, views: list[Mapping[str, Leaf]]
) -> None:
    assert views == [{}]
    zookeeper.create("/top/a", b"1")
    zookeeper.tell()
    wait_for(lambda: _last(views) == {"/top/a": b"1"}, "it came")
    zookeeper.delete("/top/a")
    zookeeper.tell()
    zookeeper.tell()
    wait_for(lambda: _last(views) == {}, "it went")


def test_a_node_that_is_back_before_its_parent_is_read_again_is_found(
    zookeeper: _ZooKeeper, views: list[Mapping[str, Leaf]]
) -> None:
    zookeeper.create("/top/a", b"1")
    zookeeper.tell()
    wait_for(lambda: _last(views) == {"/top/a": b"1"}, "it came")
    zookeeper.delete("/top/a")
    zookeeper.tell()  # That its data are gone; that its parent has changed comes later.
    wait_for(lambda: _last(views) == {}, "it went")
    zookeeper.create("/top/a", b"2")
    zookeeper.tell()
    wait_for(lambda: _last(views) == {"/top/a": b"2"}, "it is back")
