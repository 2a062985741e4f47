"""What records of fields on rows do when requests and answers get lost, and what their table is."""

from __future__ import annotations

import contextlib
import itertools
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from hqueue import Outcome, QueueExistsError, SettingsError, StoreUnavailableError
from hqueue.errors import UnsupportedFormatError
from hqueue.metadata.fields import FieldChange, FieldRecord, FieldRecords, Fields
from hqueue.metadata.ports import ANY, NEW, Version
from hqueue.store import StorePort
from tests.conformance.conftest import SHOWN_ON_SERVERS
from tests.support.backends import Backend, LossyWay
from tests.support.proxy import Fate
from tests.support.raw import RawTables
from tests.support.waiting import wait_for

pytestmark = pytest.mark.parametrize(
    "backend",
    [
        "memory",
        pytest.param("gateways", marks=SHOWN_ON_SERVERS),
        pytest.param("hbase", marks=pytest.mark.servers),
        pytest.param("native", marks=pytest.mark.servers),
    ],
    indirect=True,
)

TABLE = "hqueue_metadata"
CHANGES = {"check_and_put", "put_if_absent"}
"""Conditional puts, as stores in memory and those on HBase call them."""

LOCATE = "locate"
"""Asks where the row's region is: a change that doesn't come to know that is never sent."""

CREATIONS = {"create_records", "create"}


@pytest.fixture
def key() -> str:
    return f"/hqueue-{uuid.uuid4().hex[:12]}/a"


@pytest.fixture
def fields(store: StorePort) -> FieldRecords:
    """The records by a way on which nothing gets lost."""
    return store.fields()


@pytest.fixture
def way(lossy: LossyWay) -> Iterator[FieldRecords]:
    """The records by a way on which things get lost. Its table is there."""
    with contextlib.closing(lossy.store(gateway_retry_ms=1)) as store:
        store.fields().read(["/none"])
        yield store.fields()


def write(
    fields: FieldRecords, key: str, what: Fields, version: Version, *, whole: bool = True
) -> Version | None:
    return fields.write({key: FieldChange(what, version, whole)})[key]


def create(fields: FieldRecords, key: str) -> Version:
    version = write(fields, key, {"f": b"0"}, NEW)
    assert version is not None
    return version


def lose(number: int, fate: Fate, among: set[str] | None = None) -> Callable[[str], Fate]:
    """Lose one request, by its number from 0 on."""
    counted = itertools.count()

    def choose(operation: str) -> Fate:
        if among is not None and operation not in among:
            return Fate.PASS
        return fate if next(counted) == number else Fate.PASS

    return choose


@pytest.mark.in_memory_first
@pytest.mark.parametrize("fate", [Fate.LOSE_REQUEST, Fate.LOSE_ANSWER, Fate.HOLD])
def test_whichever_request_is_lost_each_change_is_made_once_and_said_so(
    lossy: LossyWay, way: FieldRecords, fields: FieldRecords, key: str, fate: Fate
) -> None:
    for number in range(0, 14, 4 if fate is Fate.HOLD else 1):
        each = f"{key}/{number}"
        lossy.set_fate(lose(number, fate))
        first = create(way, each)
        assert write(way, each, {"f": b"1"}, NEW) is None
        second = write(way, each, {"f": b"2", "g": b"3"}, first)
        assert second is not None
        third = write(way, each, {"f": b"4"}, ANY, whole=False)
        assert third is not None
        assert write(way, each, {"f": b"5"}, second) is None
        assert fields.read([each]) == {each: FieldRecord({"f": b"4", "g": b"3"}, third)}
        assert way.delete({each: third})[each]
        assert not way.delete({each: ANY})[each]
        fourth = create(way, each)
        assert way.delete({each: ANY})[each]
        assert len({first, second, third, fourth}) == 4
        lossy.set_fate(lambda operation: Fate.PASS)
        lossy.deliver()
        assert fields.read([each]) == {}
        assert write(fields, each, {"f": b"6"}, NEW) is not None


@pytest.mark.in_memory_first
@pytest.mark.parametrize("fate", [Fate.LOSE_REQUEST, Fate.LOSE_ANSWER, Fate.HOLD])
def test_a_change_that_was_lost_is_known_again_although_others_came_after_it(
    lossy: LossyWay, way: FieldRecords, fields: FieldRecords, key: str, fate: Fate
) -> None:
    known = create(fields, key)
    others = 5

    def meanwhile(operation: str) -> Fate:
        if operation not in CHANGES:
            for number in range(others):
                assert write(fields, key, {"other": b"%d" % number}, ANY) is not None
            lossy.set_fate(lambda operation: Fate.PASS)
            return Fate.PASS
        return fate

    lossy.set_fate(meanwhile)
    version = write(way, key, {"f": b"1"}, known)
    lossy.set_fate(lambda operation: Fate.PASS)
    lossy.deliver()
    assert (version is not None) == (fate is Fate.LOSE_ANSWER)
    record = fields.read([key])[key]
    assert isinstance(record, FieldRecord)
    assert record.fields == {"other": b"%d" % (others - 1)}
    assert record.version != version


CHANGE: Mapping[str, Callable[[FieldRecords, str, Version], object]] = {
    "write": lambda fields, key, version: write(fields, key, {"f": b"1"}, version),
    "delete": lambda fields, key, version: fields.delete({key: version}),
}


@pytest.mark.in_memory_first
@pytest.mark.parametrize(
    ("fate", "change"), [*itertools.product([Fate.LOSE_REQUEST, Fate.LOSE_ANSWER], CHANGE)]
)
def test_what_can_t_be_known_is_not_guessed(
    lossy: LossyWay, way: FieldRecords, fields: FieldRecords, fate: Fate, change: str
) -> None:
    def change_often(key: str) -> None:
        write(fields, key, {"other": b"1"}, NEW)
        for number in range(10):
            assert write(fields, key, {"other": b"%d" % number}, ANY) is not None

    def delete(key: str) -> None:
        write(fields, key, {"other": b"1"}, NEW)
        assert fields.delete({key: ANY})[key]

    def create_again(key: str) -> None:
        delete(key)
        create(fields, key)

    for others in (change_often, delete, create_again):
        key = f"/hqueue-{uuid.uuid4().hex[:12]}/a"
        known = create(fields, key)

        def meanwhile(
            operation: str, key: str = key, others: Callable[[str], None] = others
        ) -> Fate:
            if operation in CHANGES:
                return fate
            lossy.set_fate(lambda operation: Fate.PASS)
            others(key)
            return Fate.PASS

        lossy.set_fate(meanwhile)
        with pytest.raises(StoreUnavailableError) as caught:
            CHANGE[change](way, key, known)
        assert caught.value.outcome is Outcome.UNKNOWN


@pytest.mark.in_memory_first
@pytest.mark.parametrize(
    ("lost", "outcome"),
    [
        (
            lambda operation: Fate.PASS if operation == LOCATE else Fate.LOSE_REQUEST,
            Outcome.UNKNOWN,
        ),
        (
            lambda operation: Fate.PASS if operation == LOCATE else Fate.LOSE_ANSWER,
            Outcome.UNKNOWN,
        ),
        (
            lambda operation: Fate.PASS if operation in CHANGES else Fate.LOSE_REQUEST,
            Outcome.NOT_APPLIED,
        ),
    ],
)
def test_when_the_store_stays_away_the_outcome_says_whether_a_change_may_have_been_made(
    lossy: LossyWay,
    fields: FieldRecords,
    key: str,
    lost: Callable[[str], Fate],
    outcome: Outcome,
) -> None:
    known = create(fields, key)
    settings = {"gateway_retry_ms": 1, "operation_timeout_ms": 100}
    with contextlib.closing(lossy.store(**settings)) as store:
        way = store.fields()
        # So short a bound is at times too short for a store that answers, too.
        wait_for(lambda: _is_read(way, key), "it is read")
        lossy.set_fate(lost)
        version = ANY if outcome is Outcome.NOT_APPLIED else known
        for change in CHANGE.values():
            with pytest.raises(StoreUnavailableError) as caught:
                change(way, key, version)
            assert caught.value.outcome is outcome
        lossy.cut()
        with pytest.raises(StoreUnavailableError) as caught:
            write(way, key, {"f": b"1"}, known)
        assert caught.value.outcome is Outcome.NOT_APPLIED
        with pytest.raises(StoreUnavailableError):
            way.read([key])


def _is_read(way: FieldRecords, key: str) -> bool:
    try:
        return key in way.read([key])
    except StoreUnavailableError:
        return False


@pytest.mark.in_memory_first
def test_of_many_changes_those_whose_answers_are_lost_are_made_once_too(
    lossy: LossyWay, way: FieldRecords, fields: FieldRecords, key: str
) -> None:
    counted = itertools.count()
    fates = [Fate.PASS, Fate.PASS, Fate.LOSE_ANSWER, Fate.PASS, Fate.LOSE_REQUEST]
    lossy.set_fate(lambda operation: fates[next(counted) // 2 % len(fates)])
    keys = [f"{key}/{number}" for number in range(20)]
    made = way.write({each: FieldChange({"f": b"1"}, NEW) for each in keys})
    assert None not in made.values()
    assert dict(way.scan(key, 1)) == way.read(keys) == fields.read(keys)
    gone = way.delete({each: version for each, version in made.items() if version is not None})
    assert gone == dict.fromkeys(keys, True)
    assert fields.read(keys) == {}


# The table


CORRUPT = ({b"r:v": b"short"}, {b"r:v": b"\0" * 18}, {b"r:w": b""}, {b"r:.f": b"1"})


def test_a_row_that_can_t_be_read_names_itself_and_stops_nothing_else(
    fields: FieldRecords, raw: RawTables, key: str
) -> None:
    keys = [f"{key}/{number}" for number in range(8)]
    fields.write({each: FieldChange({"f": b"1"}, NEW) for each in keys})
    wrong = dict(zip(keys[::2], CORRUPT, strict=True))
    for each, cells in wrong.items():
        raw.put(TABLE, each.encode(), cells)
    alone = f"{key}/9"
    raw.put(TABLE, alone.encode(), {b"r:.f": b"12345678{}"})
    for found in (fields.read([*keys, alone]), dict(fields.scan(key, 1))):
        assert found.keys() == {*keys, alone}
        for each, record in found.items():
            assert isinstance(record, FieldRecord) == (each in keys[1::2])
            if isinstance(record, UnsupportedFormatError):
                assert record.path == each
    for each in [*wrong, alone]:
        assert fields.delete({each: ANY})[each]
    assert fields.read([*wrong, alone]) == {}
    for each in [*wrong, alone]:
        create(fields, each)


def test_a_row_whose_key_is_no_text_is_named_as_well(
    fields: FieldRecords, raw: RawTables, key: str
) -> None:
    create(fields, f"{key}/b")
    raw.put(TABLE, key.encode() + b"/\xff", {b"r:v": b"short"})
    found = dict(fields.scan(key, 1))
    assert isinstance(found[f"{key}/b"], FieldRecord)
    assert isinstance(found[f"{key}/\\xff"], UnsupportedFormatError)


@pytest.fixture
def table(raw: RawTables) -> Iterator[str]:
    """A name that is free, also after the test."""
    name = f"metadata-{uuid.uuid4().hex[:12]}"
    yield name
    if raw.exists(name):
        raw.drop(name)


@pytest.mark.in_memory_first
@pytest.mark.parametrize("fate", [Fate.PASS, Fate.LOSE_REQUEST, Fate.LOSE_ANSWER])
def test_the_table_is_created_by_one_of_those_that_need_it_first(
    backend: Backend, lossy: LossyWay, raw: RawTables, table: str, fate: Fate
) -> None:
    key = "/r/a"
    with contextlib.ExitStack() as stack:
        settings = {"metadata_table": table, "gateway_retry_ms": 1}
        stores = [lossy.store(**settings), *(backend.store(**settings) for _ in range(3))]
        for each in stores:
            stack.callback(each.close)
        lossy.set_fate(lose(0, fate, CREATIONS))
        assert not raw.exists(table)
        with ThreadPoolExecutor(4) as pool:
            made = list(
                pool.map(lambda store: write(store.fields(), key, {"f": b"1"}, NEW), stores)
            )
        assert sum(version is not None for version in made) == 1
        assert len(raw.rows(table)) == 1
        assert table not in [queue.name for queue in stores[0].tables.list()]
        with pytest.raises(QueueExistsError):
            stores[0].tables.create(table, 1, None, {})


def test_a_table_of_another_kind_is_refused_and_left_alone(
    backend: Backend, raw: RawTables, table: str, key: str
) -> None:
    with contextlib.closing(backend.store(metadata_table=table)) as store:
        for is_queue in (True, False):
            if is_queue:
                store.tables.create(table, 1, None, {})
            else:
                raw.create_plain(table)
            for request in (
                lambda: store.fields().read([key]),
                lambda: write(store.fields(), key, {"f": b"1"}, NEW),
                lambda: store.fields().delete({key: ANY}),
                lambda: list(store.fields().scan("/", 1)),
            ):
                with pytest.raises(SettingsError) as caught:
                    request()
                assert caught.value.metadata_table == table
            assert raw.rows(table) == {}
            raw.drop(table)


def test_a_row_goes_with_its_record(fields: FieldRecords, raw: RawTables, key: str) -> None:
    known = create(fields, key)
    assert key.encode() in raw.rows(TABLE)
    assert fields.delete({key: known})[key]
    assert key.encode() not in raw.rows(TABLE)
