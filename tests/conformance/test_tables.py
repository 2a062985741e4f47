"""What every store must do with the tables of queues: everything that `TablePort` promises."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import cast

import pytest

from hqueue import (
    ClosedError,
    HQueueError,
    QueueDescription,
    QueueExistsError,
    QueueNotFoundError,
    RequestRefusedError,
    StoreUnavailableError,
)
from hqueue.errors import NotAQueueError, QueueEnabledError
from hqueue.log.table_ports import LogPort, TablePort
from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline
from hqueue.runtime.stepwise import Stepwise
from hqueue.store import StorePort
from tests.support.awaited import LoopedSteps
from tests.support.backends import Backend, LossyWay
from tests.support.looped import LoopThread
from tests.support.proxy import Fate
from tests.support.raw import RawTables

ATTRIBUTES = {"partitions_per_region": 2, "compression": "GZ", "compaction_files_min": 4}


@pytest.fixture
def tables(store: StorePort) -> TablePort:
    return store.tables


@pytest.fixture(params=["threads", "asyncio"])
def face(request: pytest.FixtureRequest) -> Iterator[Callable[[TablePort], TablePort]]:
    """Gives tables by one of their faces."""
    if request.param == "threads":
        yield lambda tables: tables
        return
    with contextlib.closing(LoopThread()) as thread:
        yield lambda tables: cast("TablePort", LoopedSteps(cast("Stepwise", tables), thread))


@pytest.fixture
def name(raw: RawTables, queue_name: str) -> Iterator[str]:
    """A name that is free, also after the test."""
    yield queue_name
    if raw.exists(queue_name):
        raw.drop(queue_name)


def create(tables: TablePort, name: str, **attributes: int | str) -> None:
    tables.create(name, 3, 3_600, attributes)


def put_at_last(log: LogPort, partition: int) -> bool:
    """Put a row; again where the table's regions are others than the log knew."""
    return Deadline(SYSTEM_CLOCK, 60_000).run(
        lambda: log.put_if_absent(partition, 0, b"h", {b"t": b"1"})
    )


def test_what_was_created_is_described_as_it_was_asked_for(
    store: StorePort, face: Callable[[TablePort], TablePort], raw: RawTables, name: str
) -> None:
    tables = face(store.tables)
    tables.create(name, 5, 3_600, ATTRIBUTES)
    expected = QueueDescription(name, 5, 3_600, ATTRIBUTES, True)
    assert tables.describe(name) == expected
    (listed,) = (found for found in tables.list() if found.name == name)
    assert (listed.partitions, listed.ttl_seconds, listed.attributes, listed.enabled) == (
        5,
        3_600,
        ATTRIBUTES,
        None,
    )
    assert [r.start_key for r in raw.regions(name)] == [b"", b"\0\x02", b"\0\x04"]


def test_without_attributes_there_is_no_compression_and_a_region_a_partition(
    tables: TablePort, raw: RawTables, name: str
) -> None:
    tables.create(name, 3, None, {})
    assert tables.describe(name) == QueueDescription(name, 3, None, {"compression": "NONE"}, True)
    assert [r.start_key for r in raw.regions(name)] == [b"", b"\0\x01", b"\0\x02"]


def test_queues_are_listed_by_name_and_other_tables_are_not(
    tables: TablePort, raw: RawTables, name: str
) -> None:
    more = [f"{name}-{suffix}" for suffix in "ba"]
    raw.create_plain(name)
    for each in more:
        create(tables, each)
    try:
        listed = [found.name for found in tables.list()]
        assert listed == sorted(listed)
        assert [each for each in listed if each.startswith(name)] == more[::-1]
    finally:
        for each in more:
            raw.drop(each)


def test_a_name_that_is_taken_is_refused_and_its_table_stays(
    tables: TablePort, raw: RawTables, name: str
) -> None:
    create(tables, name)
    before = tables.describe(name)
    plain = f"{name}-plain"
    raw.create_plain(plain)
    try:
        for taken in (name, plain):
            with pytest.raises(QueueExistsError) as caught:
                tables.create(taken, 7, None, {})
            assert caught.value.queue == taken
    finally:
        raw.drop(plain)
    assert tables.describe(name) == before


def test_a_namespace_must_be_there(tables: TablePort, raw: RawTables, name: str) -> None:
    namespace = "hqueue_conformance"
    inside = f"{namespace}:{name}"
    with pytest.raises((RequestRefusedError, StoreUnavailableError)):
        create(tables, inside)
    raw.create_namespace(namespace)
    try:
        create(tables, inside)
        assert inside in [found.name for found in tables.list()]
        assert tables.describe(inside).name == inside
    finally:
        raw.drop(inside)
        raw.delete_namespace(namespace)


def test_alter_changes_what_is_given_and_keeps_the_rest(tables: TablePort, name: str) -> None:
    create(tables, name, compaction_files_min=4, compaction_files_max=9)
    tables.alter(name, attributes={"compaction_files_min": 5})
    changed = {"compaction_files_min": 5, "compaction_files_max": 9, "compression": "NONE"}
    assert tables.describe(name) == QueueDescription(name, 3, 3_600, changed, True)
    tables.alter(name, ttl_seconds=7_200, attributes={})
    assert tables.describe(name) == QueueDescription(name, 3, 7_200, changed, True)
    tables.alter(name, ttl_seconds=None, attributes={"compression": "GZ"})
    changed["compression"] = "GZ"
    assert tables.describe(name) == QueueDescription(name, 3, None, changed, True)


def test_enabling_and_disabling_may_be_repeated(
    tables: TablePort, raw: RawTables, name: str
) -> None:
    create(tables, name)
    for change, enabled in ((tables.disable, False), (tables.enable, True)):
        for _ in range(2):
            change(name)
            assert tables.describe(name).enabled is raw.is_enabled(name) is enabled


def test_only_a_disabled_queue_is_deleted_and_its_rows_go_with_it(
    store: StorePort, raw: RawTables, name: str
) -> None:
    tables, log = store.tables, store.log(name)
    for _ in range(2):
        create(tables, name)
        assert put_at_last(log, 0)
        assert log.replace_record("r", None, b"1")
        with pytest.raises(QueueEnabledError):
            tables.delete(name)
        tables.disable(name)
        tables.delete(name)
        assert not raw.exists(name)


@pytest.mark.parametrize("enabled", [True, False])
def test_truncation_deletes_all_rows_and_keeps_the_table(
    store: StorePort, raw: RawTables, name: str, enabled: bool
) -> None:
    tables, log = store.tables, store.log(name)
    tables.create(name, 5, 3_600, ATTRIBUTES)
    before, regions = tables.describe(name), raw.regions(name)
    assert log.put_if_absent(4, 0, b"h", {b"t": b"1"})
    assert log.replace_record("r", None, b"1")
    if not enabled:
        tables.disable(name)
    tables.truncate(name)
    assert raw.rows(name) == {}
    assert tables.describe(name) == before
    assert [r.start_key for r in raw.regions(name)] == [r.start_key for r in regions]
    assert put_at_last(log, 4)


OPERATIONS: Mapping[str, Callable[[TablePort, str], object]] = {
    "describe": lambda tables, name: tables.describe(name),
    "alter": lambda tables, name: tables.alter(name, attributes={}),
    "enable": lambda tables, name: tables.enable(name),
    "disable": lambda tables, name: tables.disable(name),
    "delete": lambda tables, name: tables.delete(name),
    "truncate": lambda tables, name: tables.truncate(name),
}


def refused(tables: TablePort, name: str, error: type[HQueueError]) -> None:
    for operation in OPERATIONS.values():
        with pytest.raises(error) as caught:
            operation(tables, name)
        assert caught.value.queue == name


def test_what_is_not_there_is_refused(tables: TablePort, name: str) -> None:
    refused(tables, name, QueueNotFoundError)


def test_a_table_that_is_no_queue_is_refused_and_left_alone(
    tables: TablePort, raw: RawTables, name: str
) -> None:
    raw.create_plain(name)
    refused(tables, name, NotAQueueError)
    assert raw.is_enabled(name)


def lose_first(operation: str, fate: Fate) -> Callable[[str], Fate]:
    """Lose the first request of an operation, or its answer."""
    left = [fate]
    return lambda asked: left.pop() if asked == operation and left else Fate.PASS


@pytest.mark.in_memory_first
@pytest.mark.parametrize("fate", [Fate.LOSE_ANSWER, Fate.LOSE_REQUEST])
def test_an_operation_whose_first_try_was_lost_is_done_once(
    lossy: LossyWay,
    face: Callable[[TablePort], TablePort],
    raw: RawTables,
    name: str,
    fate: Fate,
) -> None:
    with contextlib.closing(lossy.store(gateway_retry_ms=1)) as store:
        tables = face(store.tables)
        steps: list[tuple[str, Callable[[], object]]] = [
            ("create", lambda: create(tables, name)),
            ("alter", lambda: tables.alter(name, ttl_seconds=7_200, attributes={})),
            ("disable", lambda: tables.disable(name)),
            ("enable", lambda: tables.enable(name)),
            ("truncate", lambda: tables.truncate(name)),
            ("describe", lambda: tables.describe(name)),
        ]
        for operation, step in steps:
            lossy.set_fate(lose_first(operation, fate))
            step()
        assert tables.describe(name).ttl_seconds == 7_200
        assert raw.is_enabled(name)
        tables.disable(name)
        lossy.set_fate(lose_first("delete", fate))
        tables.delete(name)
    assert not raw.exists(name)


def test_a_create_whose_request_was_lost_does_not_take_anothers_table_for_its_own(
    lossy: LossyWay, tables: TablePort, name: str
) -> None:
    def meanwhile(operation: str) -> Fate:
        if operation != "create" or name in [found.name for found in tables.list()]:
            return Fate.PASS
        tables.create(name, 1, None, {})
        return Fate.LOSE_REQUEST

    with contextlib.closing(lossy.store(gateway_retry_ms=1)) as store:
        lossy.set_fate(meanwhile)
        with pytest.raises(QueueExistsError):
            create(store.tables, name)
    assert tables.describe(name).partitions == 1


def test_an_operation_ends_when_its_bound_is_over(lossy: LossyWay, name: str) -> None:
    with contextlib.closing(lossy.store(operation_timeout_ms=400)) as store:
        lossy.set_fate(lambda operation: Fate.LOSE_REQUEST)
        began = time.monotonic()
        with pytest.raises(StoreUnavailableError):
            store.tables.describe(name)
        assert 0.4 <= time.monotonic() - began < 60


def test_a_closed_store_refuses_every_operation(backend: Backend, name: str) -> None:
    store = backend.store()
    store.close()
    for operation in OPERATIONS.values():
        with pytest.raises(ClosedError):
            operation(store.tables, name)
    with pytest.raises(ClosedError):
        store.tables.list()
