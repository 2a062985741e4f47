"""Registrations while the session begins again in the midst of a call."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from hqueue import ClosedError, Outcome, Settings, StoreUnavailableError
from hqueue.metadata.ports import GuardedWrite, Obstacle
from hqueue.runtime.steps import Work
from hqueue.runtime.stepwise import BoundWork
from hqueue.zookeeper import ZooKeeperStore
from hqueue.zookeeper.session import PIPELINED_MAX, TRANSACTION_BYTES_MAX
from tests.support.memory.zookeeper import MemoryZooKeeper
from tests.support.zookeeper_faults import expire

After = Callable[[object, str, int, Callable[[], object]], None]
PATHS = [f"/top/{number}" for number in range(6)]
MANY = [f"/top/{number:03}" for number in range(3 * PIPELINED_MAX)]
"""Of which three batches are made."""
LARGE = bytes(TRANSACTION_BYTES_MAX // 2 + 1)
"""Of which a transaction has one."""


@pytest.fixture
def open_store() -> Iterator[Callable[[], ZooKeeperStore]]:
    """Sessions at one ZooKeeper; they are closed after the test."""
    opened: list[ZooKeeperStore] = []
    with MemoryZooKeeper() as server:
        settings = Settings(
            zookeeper=f"127.0.0.1:{server.port}", zookeeper_session_timeout_ms=5_000
        )

        def open_one() -> ZooKeeperStore:
            opened.append(ZooKeeperStore(settings))
            return opened[-1]

        yield open_one
        for store in opened:
            store.close()


@pytest.fixture
def after_call(monkeypatch: pytest.MonkeyPatch) -> After:
    """Does something when a method has been called so many times, before it returns."""

    def set_up(owner: object, name: str, times: int, act: Callable[[], object]) -> None:
        method, time = getattr(owner, name), itertools.count(1)

        def called(*arguments: Any) -> Any:
            answer = method(*arguments)
            if next(time) == times:
                act()
            return answer

        def steps(*arguments: Any) -> Work[Any, Any]:
            answer = yield from method.steps(*arguments)
            if next(time) == times:
                act()
            return answer

        is_work = isinstance(method, BoundWork)
        monkeypatch.setattr(owner, name, SimpleNamespace(steps=steps) if is_work else called)

    return set_up


def test_what_was_claimed_by_a_session_that_ended_is_not_counted_for_the_next_one(
    open_store: Callable[[], ZooKeeperStore],
    after_call: After,
) -> None:
    one, other = open_store(), open_store()
    one.ephemerals.claim({"/top/none": b""})
    first, rest = MANY[:PIPELINED_MAX], MANY[PIPELINED_MAX:]

    def begin_again() -> None:
        expire(one)
        assert other.ephemerals.claim(dict.fromkeys(first, b"other")) == set(first)

    # Of each batch the creations, and then what is the session's of those that were refused.
    after_call(one.session, "run", 2, begin_again)
    assert one.ephemerals.claim(dict.fromkeys(MANY, b"one")) == set(rest)
    found = other.records.read(MANY)
    assert {found[path].value for path in first} == {b"other"}
    assert {found[path].value for path in rest} == {b"one"}


def test_what_another_has_since_the_session_ended_is_not_released(
    open_store: Callable[[], ZooKeeperStore], after_call: After
) -> None:
    one, other = open_store(), open_store()
    claim = {PATHS[0]: b"one"}
    one.ephemerals.claim(claim)

    def begin_again() -> None:
        expire(one)
        assert other.ephemerals.claim(claim) == set(claim)

    after_call(one.session.members, "is_own", 1, begin_again)
    one.ephemerals.release(claim)
    assert other.records.read(claim).keys() == claim.keys()


def test_what_stands_in_the_way_behind_writes_that_were_done_is_an_error_with_a_doubt(
    open_store: Callable[[], ZooKeeperStore],
) -> None:
    one, other = open_store(), open_store()
    one.records.create(dict.fromkeys(PATHS, b"1"))
    writes = [GuardedWrite(path, LARGE, f"{path}/who") for path in PATHS]
    other.ephemerals.claim({f"{PATHS[0]}/who": b"me"})
    assert one.ephemerals.write_where_absent(writes) == Obstacle(f"{PATHS[0]}/who", b"me")
    other.ephemerals.claim({f"{PATHS[1]}/who": b"me"})
    other.ephemerals.release([f"{PATHS[0]}/who"])
    with pytest.raises(StoreUnavailableError) as caught:
        one.ephemerals.write_where_absent(writes)
    assert caught.value.outcome is Outcome.UNKNOWN
    assert caught.value.path == f"{PATHS[1]}/who"
    values = [record.value for record in one.records.read(PATHS).values()]
    assert values == [LARGE] + [b"1"] * 5


def test_an_error_behind_writes_that_were_done_has_a_doubt(
    open_store: Callable[[], ZooKeeperStore], after_call: After
) -> None:
    one = open_store()
    one.records.create(dict.fromkeys(PATHS, b"1"))
    after_call(one.session, "run", 1, one.close)
    with pytest.raises(ClosedError) as caught:
        one.ephemerals.write_where_absent(
            [GuardedWrite(path, LARGE, f"{path}/who") for path in PATHS]
        )
    assert caught.value.outcome is Outcome.UNKNOWN


def test_an_error_behind_registrations_that_were_made_has_a_doubt(
    open_store: Callable[[], ZooKeeperStore],
    after_call: After,
) -> None:
    one = open_store()
    one.ephemerals.claim({"/top/none": b""})
    # Of each batch a transaction, and then what is sent of it alone.
    after_call(one.session, "run", 2, one.close)
    with pytest.raises(ClosedError) as caught:
        one.ephemerals.create(dict.fromkeys(MANY, b"one"))
    assert caught.value.outcome is Outcome.UNKNOWN
