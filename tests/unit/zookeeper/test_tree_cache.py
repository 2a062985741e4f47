"""The cache of a tree misses nothing, in whatever order changes and answers come."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kazoo.exceptions import NoNodeError
from kazoo.protocol.states import EventType, WatchedEvent

from hqueue.errors import StoreUnavailableError
from hqueue.metadata.ports import Record, SessionState
from hqueue.runtime.alarm import needed_loop
from hqueue.runtime.loop import call_later
from hqueue.runtime.steps import Work
from hqueue.runtime.stepwise import Stepwise, stepwise
from hqueue.zookeeper.session import Request, Session
from hqueue.zookeeper.tree_cache import TreeCache
from hqueue.zookeeper.waiting import NEW_BOX
from tests.support.waiting import wait_for

Watcher = Callable[[WatchedEvent], object]


class Tree(Stepwise):
    """A ZooKeeper of one session: nodes, one-time watches, and what happens between requests."""

    def __init__(self, *paths: str) -> None:
        self.nodes: dict[str, int] = {}
        self.changes = 0
        self.before: list[Callable[[], None]] = []
        """What happens before the next answers, in turn."""
        self.loop = needed_loop()
        self._on_data: dict[str, Watcher] = {}
        self._on_children: dict[str, Watcher] = {}
        for path in ("/top", *paths):
            self.create(path)

    def create(self, path: str) -> None:
        self.changes += 1
        self.nodes[path] = self.changes
        self._notify(self._on_children, path.rpartition("/")[0], EventType.CHILD)

    def delete(self, path: str) -> None:
        del self.nodes[path]
        self._notify(self._on_data, path, EventType.DELETED)
        self._notify(self._on_children, path, EventType.DELETED)
        self._notify(self._on_children, path.rpartition("/")[0], EventType.CHILD)

    def hold(self, path: str) -> Callable[[], None]:
        """Report changes below a node only when the returned function is called."""
        watcher = self._on_children.pop(path)
        return lambda: cast(None, watcher(WatchedEvent(EventType.CHILD, None, path)))

    def _notify(self, watches: dict[str, Watcher], path: str, event: str) -> None:
        watcher = watches.pop(path, None)
        if watcher is not None:
            watcher(WatchedEvent(event, None, path))

    @stepwise
    def run(
        self, requests: Sequence[tuple[str, Request]], deadline: object
    ) -> Work[Any, list[Any]]:
        yield NEW_BOX
        if self.before:
            self.before.pop(0)()
        return [request(cast(Any, self)) for _, request in requests]

    def get_async(self, path: str, watch: Watcher) -> Any:
        if path not in self.nodes:
            return NoNodeError()
        self._on_data[path] = watch
        return b"", SimpleNamespace(version=0, mzxid=self.nodes[path])

    def get_children_async(self, path: str, watch: Watcher) -> Any:
        if path not in self.nodes:
            return NoNodeError()
        self._on_children[path] = watch
        return [each[len(path) + 1 :] for each in self.nodes if each.rpartition("/")[0] == path]

    def deadline(self) -> None:
        pass

    def on_state(self, on_change: Callable[[SessionState], None], on_close: object) -> Any:
        return SimpleNamespace(close=lambda: None)


class Watched:
    """A tree and a cache of what is so deep in it."""

    def __init__(self, tree: Tree, depth: int) -> None:
        self.tree = tree
        self.views: list[Mapping[str, Record]] = []
        self.cache = TreeCache(cast(Session, tree), "/top", depth, self.views.append)

    def await_view(self, what: str, *paths: str) -> None:
        """Wait until the cache has these nodes as they are."""
        expected = {path: self.tree.nodes[path] for path in paths}
        wait_for(
            lambda: self.views and {p: r.changed for p, r in self.views[-1].items()} == expected,
            what,
            timeout_s=10,
        )


@pytest.fixture
def watch() -> Iterator[Callable[..., Watched]]:
    made: list[Watched] = []

    def watch_tree(tree: Tree, depth: int) -> Watched:
        made.append(Watched(tree, depth))
        return made[-1]

    yield watch_tree
    for watched in made:
        watched.cache.close()


def test_what_is_created_and_deleted_is_seen(watch: Callable[..., Watched]) -> None:
    tree = Tree("/top/q", "/top/q/0", "/top/q/1")
    watched = watch(tree, 2)
    watched.await_view("what is there", "/top/q/0", "/top/q/1")
    tree.create("/top/r")
    tree.create("/top/r/0")
    watched.await_view("what was created", "/top/q/0", "/top/q/1", "/top/r/0")
    for path in ("/top/q/0", "/top/q/1", "/top/q"):
        tree.delete(path)
    watched.await_view("what was deleted", "/top/r/0")


@pytest.mark.parametrize("depth", [1, 2])
def test_what_is_created_again_after_it_was_missed_is_seen(
    watch: Callable[..., Watched], depth: int
) -> None:
    paths = ["/top/a", "/top/a/b"][:depth]
    tree = Tree(*paths)
    watched = watch(tree, depth)
    watched.await_view("what is there", paths[-1])

    def create() -> None:
        for path in paths:
            tree.create(path)

    # What is deleted is reported before the node above it is, and asked for in between.
    late = tree.hold("/top")
    tree.before = [late, create]
    with watched.cache._lock:  # All at once.
        for path in reversed(paths):
            tree.delete(path)
    wait_for(lambda: not tree.before, "both have happened")
    watched.await_view("what was created again", paths[-1])


@pytest.mark.parametrize("error", [StoreUnavailableError("no answer"), ValueError("no sense")])
@pytest.mark.parametrize(("depth", "answered"), [(1, 1), (2, 1), (2, 2)])
def test_what_was_found_is_read_again_when_its_answer_got_lost(
    watch: Callable[..., Watched], depth: int, answered: int, error: Exception
) -> None:
    paths = ["/top/a", "/top/a/b"][:depth]
    tree = Tree(*paths)

    def lose() -> None:
        raise error

    tree.before = [lambda: None] * answered + [lose]
    watched = watch(tree, depth)
    watched.await_view("what is there", paths[-1])
    assert not tree.before


def test_one_that_can_not_hear_of_the_session_reads_nothing_and_tells_nobody() -> None:
    tree, views = Tree("/top/a"), list[object]()

    def on_state(*_: object) -> Any:
        raise KeyboardInterrupt

    tree.on_state = on_state  # type: ignore[method-assign]
    held = threading.Event()

    def hold() -> None:
        held.wait(10)

    tree.before = [hold]
    with pytest.raises(KeyboardInterrupt):
        TreeCache(cast(Session, tree), "/top", 1, views.append)
    held.set()
    later = call_later(200, lambda: None)
    assert later is not None
    later.result(10)
    assert not views
