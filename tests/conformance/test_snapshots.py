"""What every store that takes snapshots must do: everything that `SnapshotPort` promises."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from hqueue import QueueNotFoundError, RequestRefusedError, StoreUnavailableError
from hqueue.errors import QueueEnabledError, SnapshotExistsError, SnapshotNotFoundError
from hqueue.log.table_ports import SnapshotPort
from hqueue.runtime.stepwise import Stepwise
from hqueue.store import StorePort
from tests.conformance.conftest import SHOWN_IN_MEMORY
from tests.support.awaited import LoopedSteps
from tests.support.backends import Backend, LossyWay
from tests.support.looped import LoopThread
from tests.support.proxy import Fate
from tests.support.raw import RawTables

pytestmark = pytest.mark.parametrize(
    "backend",
    ["memory", pytest.param("native", marks=pytest.mark.servers)],
    indirect=True,
    scope="session",
)
"""Gateways have no calls for snapshots."""


@pytest.fixture(params=["threads", pytest.param("asyncio", marks=SHOWN_IN_MEMORY)])
def face(request: pytest.FixtureRequest) -> Iterator[Callable[[SnapshotPort], SnapshotPort]]:
    """Gives snapshots by one of their faces."""
    if request.param == "threads":
        yield lambda snapshots: snapshots
        return
    with contextlib.closing(LoopThread()) as thread:
        yield lambda given: cast("SnapshotPort", LoopedSteps(cast("Stepwise", given), thread))


@pytest.fixture
def snapshots(store: StorePort, face: Callable[[SnapshotPort], SnapshotPort]) -> SnapshotPort:
    assert store.snapshots is not None
    return face(store.snapshots)


@pytest.fixture
def name(store: StorePort, raw: RawTables, queue_name: str) -> Iterator[str]:
    """The name of a queue with a message; no table of that name is left after the test."""
    store.tables.create(queue_name, 2, None, {})
    assert store.log(queue_name).put_if_absent(1, 0, b"h", {b"t": b"1"})
    yield queue_name
    for each in (queue_name, f"{queue_name}-other"):
        if raw.exists(each):
            raw.drop(each)


@pytest.fixture
def taken(store: StorePort, queue_name: str) -> Iterator[str]:
    """The name of a snapshot, which is deleted after the test."""
    assert store.snapshots is not None
    yield f"{queue_name}-snapshot"
    with contextlib.suppress(SnapshotNotFoundError):
        store.snapshots.delete(f"{queue_name}-snapshot")


def test_a_disabled_table_is_restored_to_what_it_held(
    store: StorePort, snapshots: SnapshotPort, raw: RawTables, name: str, taken: str
) -> None:
    rows = raw.rows(name)
    snapshots.create(taken, name)
    (listed,) = [each for each in snapshots.list() if each.name == taken]
    assert listed.queue == name
    assert listed.created_ms > 0
    assert store.log(name).put_if_absent(0, 0, b"h", {b"t": b"2"})
    store.tables.alter(name, ttl_seconds=3_600, attributes={})
    store.tables.disable(name)
    snapshots.restore(taken, name)
    assert not raw.is_enabled(name)
    store.tables.enable(name)
    assert raw.rows(name) == rows
    assert store.tables.describe(name).ttl_seconds is None


def test_a_table_that_is_not_there_is_created(
    store: StorePort, snapshots: SnapshotPort, raw: RawTables, name: str, taken: str
) -> None:
    rows = raw.rows(name)
    store.tables.disable(name)
    snapshots.create(taken, name)
    store.tables.delete(name)
    other = f"{name}-other"
    for each in (name, other):
        snapshots.restore(taken, each)
        assert raw.rows(each) == rows
        assert store.tables.describe(each).enabled
    snapshots.delete(taken)
    assert taken not in [each.name for each in snapshots.list()]
    assert raw.rows(other) == rows


def test_what_does_not_fit_is_refused(
    store: StorePort, snapshots: SnapshotPort, name: str, taken: str
) -> None:
    with pytest.raises((QueueNotFoundError, RequestRefusedError)):
        snapshots.create(taken, f"{name}-other")
    for refused in (lambda: snapshots.restore(taken, name), lambda: snapshots.delete(taken)):
        with pytest.raises(SnapshotNotFoundError):
            refused()
    snapshots.create(taken, name)
    with pytest.raises(SnapshotExistsError):
        snapshots.create(taken, name)
    assert store.tables.describe(name).enabled


def test_an_enabled_table_stays_as_it_is(backend: Backend, raw: RawTables, name: str) -> None:
    with contextlib.closing(backend.store(operation_timeout_ms=15_000)) as store:
        snapshot = f"{name}-snapshot"
        assert store.snapshots is not None
        store.snapshots.create(snapshot, name)
        assert store.log(name).put_if_absent(0, 0, b"h", {b"t": b"2"})
        rows = raw.rows(name)
        with pytest.raises((QueueEnabledError, StoreUnavailableError)):
            store.snapshots.restore(snapshot, name)
        assert raw.rows(name) == rows
        store.snapshots.delete(snapshot)


@pytest.mark.parametrize("fate", [Fate.LOSE_ANSWER, Fate.LOSE_REQUEST])
def test_an_operation_whose_first_try_was_lost_is_done_once(
    lossy: LossyWay, raw: RawTables, name: str, taken: str, fate: Fate
) -> None:
    def lose_first(operation: str) -> Callable[[str], Fate]:
        left = [fate]
        return lambda asked: left.pop() if asked == operation and left else Fate.PASS

    with contextlib.closing(lossy.store(gateway_retry_ms=1)) as store:
        assert store.snapshots is not None
        lossy.set_fate(lose_first("create_snapshot"))
        store.snapshots.create(taken, name)
        assert store.log(name).put_if_absent(0, 0, b"h", {b"t": b"2"})
        store.tables.disable(name)
        lossy.set_fate(lose_first("restore_snapshot"))
        store.snapshots.restore(taken, name)
        store.tables.enable(name)
        assert list(raw.rows(name)) == [b"\0\x01" + bytes(10)]
        lossy.set_fate(lose_first("delete_snapshot"))
        store.snapshots.delete(taken)
        assert taken not in [each.name for each in store.snapshots.list()]
