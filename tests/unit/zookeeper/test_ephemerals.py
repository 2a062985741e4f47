"""Registrations while the session begins again in the midst of a call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from hqueue import Settings
from hqueue.zookeeper import ZooKeeperStore, ephemerals
from tests.support.memory.zookeeper import MemoryZooKeeper
from tests.support.zookeeper_faults import expire

PATHS = [f"/top/{number}" for number in range(6)]


@pytest.fixture
def open_store() -> Iterator[Callable[[], ZooKeeperStore]]:
    """Sessions at one ZooKeeper; they are closed after the test."""
    opened: list[ZooKeeperStore] = []
    with MemoryZooKeeper() as server:
        settings = Settings(
            zookeeper=f"127.0.0.1:{server.port}", zookeeper_session_timeout_ms=20_000
        )

        def open_one() -> ZooKeeperStore:
            opened.append(ZooKeeperStore(settings))
            return opened[-1]

        yield open_one
        for store in opened:
            store.close()


@pytest.fixture
def before_requests(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Does something before a store sends requests for the so-and-so-manieth time from now."""

    def set_up(store: ZooKeeperStore, time: int, act: Callable[[], object]) -> None:
        run, times = store.session.run, iter(range(1, 1_000))

        def run_after(requests: Sequence[Any], *arguments: Any) -> list[Any]:
            if next(times) == time:
                act()
            return run(requests, *arguments)

        monkeypatch.setattr(store.session, "run", run_after)

    return set_up


def test_what_was_claimed_by_a_session_that_ended_is_not_counted_for_the_next_one(
    open_store: Callable[[], ZooKeeperStore],
    before_requests: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ephemerals, "PIPELINED_MAX", 2)
    one, other = open_store(), open_store()
    one.ephemerals.claim({"/top/none": b""})

    def begin_again() -> None:
        expire(one)
        assert other.ephemerals.claim(dict.fromkeys(PATHS[:2], b"other")) == set(PATHS[:2])

    # Of each portion the creations, and then what is the session's of those that were refused.
    before_requests(one, 3, begin_again)
    assert one.ephemerals.claim(dict.fromkeys(PATHS, b"one")) == set(PATHS[2:])
    found = other.records.read(PATHS)
    assert [found[path].value for path in PATHS] == [b"other"] * 2 + [b"one"] * 4
