"""What every store of records of fields must do: everything that `FieldRecords` promises."""

from __future__ import annotations

import contextlib
import itertools
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest

from hqueue import ClosedError, InvalidInputError, Settings
from hqueue.hbase.native import NativeStore
from hqueue.hbase.thrift.gateway_store import GatewayStore
from hqueue.metadata.blobs import BlobRecords
from hqueue.metadata.fields import FieldChange, FieldRecord, FieldRecords, Fields
from hqueue.metadata.managers import MemoryFields, Rows
from hqueue.metadata.ports import ANY, NEW, VALUE_BYTES_MAX, MetadataStore, Version
from hqueue.store import StorePort
from hqueue.zookeeper import ZooKeeperNodes, ZooKeeperStore
from tests.support.backends import MemoryBackend
from tests.support.memory.cluster import MemoryCluster
from tests.support.memory.gateway import GatewayPair
from tests.support.memory.metadata import MemoryServer
from tests.support.memory.zookeeper import MemoryZooKeeper

SHOWN_IN_MEMORY = pytest.mark.thorough("the same over a ZooKeeper in memory is in `make check`")

FIELDS = {"state": b'{"x": 1}', "preferences": b'{"y": 2}'}
OTHERS = {"state": b'{"x": 3}', "preferences": b'{"y": 4}'}
LARGE = b'"' + b"x" * VALUE_BYTES_MAX + b'"'
VERSION_MAX_ON_ZOOKEEPER = 2**31 - 1

Open = Callable[[], FieldRecords]
Result = TypeVar("Result")


@pytest.fixture
def root() -> str:
    return f"/hqueue-{uuid.uuid4().hex[:12]}"


@pytest.fixture(
    params=[
        "memory",
        "blobs-in-memory",
        "blobs-zookeeper-in-memory",
        pytest.param("blobs-zookeeper", marks=[pytest.mark.servers, SHOWN_IN_MEMORY]),
        "rows-in-memory",
        "rows-gateways",
        pytest.param("rows-hbase", marks=pytest.mark.servers),
        pytest.param("rows-native", marks=pytest.mark.servers),
    ]
)
def open_fields(request: pytest.FixtureRequest, root: str) -> Iterator[Open]:
    """Opens the records as a process of its own does; all of a test see the same ones."""
    with contextlib.ExitStack() as stack:

        def blobs(session: MetadataStore) -> FieldRecords:
            stack.callback(session.close)
            return BlobRecords(session.records, VERSION_MAX_ON_ZOOKEEPER)

        def rows(store: StorePort) -> FieldRecords:
            stack.callback(store.close)
            return store.fields()

        def zookeeper(settings: Settings) -> Open:
            return lambda: blobs(ZooKeeperStore(settings))

        if request.param == "memory":
            fields = MemoryFields()
            yield lambda: fields
        elif request.param == "blobs-in-memory":
            memory = MemoryServer(session_timeout_ms=1_000)
            yield lambda: blobs(memory.open())
        elif request.param == "blobs-zookeeper-in-memory":
            server = stack.enter_context(MemoryZooKeeper())
            yield zookeeper(Settings(zookeeper=f"127.0.0.1:{server.port}", zookeeper_root=root))
        elif request.param == "blobs-zookeeper":
            yield zookeeper(request.getfixturevalue("server").settings(zookeeper_root=root))
        elif request.param == "rows-in-memory":
            backend = MemoryBackend()
            yield lambda: rows(backend.store())
        elif request.param == "rows-gateways":
            pair = stack.enter_context(contextlib.closing(GatewayPair(MemoryCluster())))
            yield lambda: rows(GatewayStore(pair.settings()))
        elif request.param == "rows-native":
            settings = request.getfixturevalue("server").settings(hbase="native", gateways=())
            yield lambda: rows(NativeStore(settings, ZooKeeperNodes(settings).read.asked))
        else:
            settings = request.getfixturevalue("server").settings()
            yield lambda: rows(GatewayStore(settings))


@pytest.fixture
def fields(open_fields: Open) -> FieldRecords:
    return open_fields()


def write(
    fields: FieldRecords,
    key: str,
    what: Fields = FIELDS,
    version: Version = NEW,
    *,
    whole: bool = True,
) -> Version | None:
    return fields.write({key: FieldChange(what, version, whole)})[key]


def create(fields: FieldRecords, key: str, what: Fields = FIELDS) -> Version:
    version = write(fields, key, what)
    assert version is not None
    return version


def read(fields: FieldRecords, key: str) -> FieldRecord | None:
    found = fields.read([key]).get(key)
    assert found is None or isinstance(found, FieldRecord)
    return found


def at_once(number: int, work: Callable[[int], Result]) -> list[Result]:
    with ThreadPoolExecutor(number) as pool:
        return list(pool.map(work, range(number)))


def test_what_was_created_is_read_with_its_version_and_what_is_not_there_is_left_out(
    fields: FieldRecords, root: str
) -> None:
    one, other = create(fields, f"{root}/a"), create(fields, f"{root}/b", OTHERS)
    assert fields.read([f"{root}/b", f"{root}/c", f"{root}/a"]) == {
        f"{root}/a": FieldRecord(FIELDS, one),
        f"{root}/b": FieldRecord(OTHERS, other),
    }
    assert fields.read([]) == {}
    assert fields.write({}) == {}
    assert fields.delete({}) == {}


def test_a_record_is_created_once(open_fields: Open, root: str) -> None:
    one, other = open_fields(), open_fields()
    version = create(one, f"{root}/a")
    assert write(other, f"{root}/a") is None
    assert write(other, f"{root}/a", OTHERS) is None
    assert read(one, f"{root}/a") == FieldRecord(FIELDS, version)


def test_a_write_needs_the_version_that_is_there_and_makes_another(
    open_fields: Open, root: str
) -> None:
    one, other = open_fields(), open_fields()
    key = f"{root}/a"
    versions = [create(one, key)]
    for number in range(12):
        version = write(one, key, {"f": b"%d" % number}, versions[-1])
        assert version is not None
        versions.append(version)
        for old in versions[:-1]:
            assert write(other, key, OTHERS, old) is None
            assert fields_deleted(other, key, old) is False
    assert len(set(versions)) == len(versions)
    assert read(other, key) == FieldRecord({"f": b"11"}, versions[-1])


def fields_deleted(fields: FieldRecords, key: str, version: Version) -> bool:
    return fields.delete({key: version})[key]


def test_any_version_is_written_but_not_where_there_is_no_record(
    fields: FieldRecords, root: str
) -> None:
    key = f"{root}/a"
    assert write(fields, key, FIELDS, ANY) is None
    assert read(fields, key) is None
    first = create(fields, key)
    second = write(fields, key, OTHERS, ANY)
    assert second not in (None, first)
    assert write(fields, key, FIELDS, first) is None
    assert fields_deleted(fields, key, ANY)
    assert write(fields, key, FIELDS, ANY) is None
    assert second is not None
    assert write(fields, key, FIELDS, second) is None
    assert read(fields, key) is None


@pytest.mark.parametrize("any_version", [False, True])
def test_a_whole_write_leaves_no_other_field_and_a_partial_one_all_others(
    fields: FieldRecords, root: str, any_version: bool
) -> None:
    key = f"{root}/a"
    version = create(fields, key)

    def change(what: Fields, *, whole: bool) -> Fields:
        nonlocal version
        made = write(fields, key, what, ANY if any_version else version, whole=whole)
        assert made is not None
        version = made
        record = read(fields, key)
        assert record is not None
        assert record.version == version
        return record.fields

    if fields.is_partial():
        new = {"state": b"5"}
        assert change(new, whole=False) == {**FIELDS, **new}
        assert change({"more": b"6"}, whole=False) == {**FIELDS, **new, "more": b"6"}
    assert change({"state": b"7"}, whole=True) == {"state": b"7"}
    if fields.is_partial():
        assert change({"more": b"8"}, whole=False) == {"state": b"7", "more": b"8"}
    assert fields_deleted(fields, key, version)
    assert write(fields, key, {"other": b"9"}) is not None
    record = read(fields, key)
    assert record is not None
    assert record.fields == {"other": b"9"}


def test_of_many_each_counts_on_its_own(fields: FieldRecords, root: str) -> None:
    keys = [f"{root}/{number}" for number in range(300)]
    versions = fields.write({key: FieldChange(FIELDS, NEW) for key in keys})
    assert None not in versions.values()
    known = {key: version for key, version in versions.items() if version is not None}
    moved = keys[::7]
    fields.write({key: FieldChange(OTHERS, known[key]) for key in moved})
    last = {"f": b"3"}
    written = fields.write({key: FieldChange(last, known[key]) for key in keys})
    assert [key for key, version in written.items() if version is None] == moved
    found = fields.read([*keys, f"{root}/none"])
    assert found.keys() == set(keys)
    for key, record in found.items():
        assert isinstance(record, FieldRecord)
        assert record.fields == (OTHERS if key in moved else last)
        assert written[key] in (None, record.version)
    gone = fields.delete({f"{root}/none": ANY, **{key: known[key] for key in keys[:9]}})
    assert set(gone.values()) == {False}
    gone = fields.delete({key: record.version for key, record in found.items()})  # type: ignore[union-attr]
    assert gone == dict.fromkeys(keys, True)
    assert fields.read(keys) == {}


def test_a_version_of_before_it_was_deleted_is_none_of_what_only_has_others_below_it(
    open_fields: Open, root: str
) -> None:
    first, other = open_fields(), open_fields()
    version = create(first, f"{root}/t")
    assert first.delete({f"{root}/t": version}) == {f"{root}/t": True}
    create(first, f"{root}/t/s")
    assert write(other, f"{root}/t", OTHERS, version) is None
    assert other.delete({f"{root}/t": version}) == {f"{root}/t": False}
    assert other.read([f"{root}/t"]) == {}


def test_only_the_version_that_is_known_is_deleted_and_once(
    fields: FieldRecords, root: str
) -> None:
    key = f"{root}/a"
    old = create(fields, key)
    known = write(fields, key, OTHERS, old)
    assert known is not None
    assert not fields_deleted(fields, key, old)
    assert not fields_deleted(fields, key, NEW)
    assert fields_deleted(fields, key, known)
    assert not fields_deleted(fields, key, known)
    assert not fields_deleted(fields, key, ANY)
    assert read(fields, key) is None


def test_of_many_that_write_at_once_each_version_is_won_by_one(
    open_fields: Open, root: str
) -> None:
    key = f"{root}/a"
    opened = [open_fields() for _ in range(4)]
    create(opened[0], key)

    def count(number: int) -> list[tuple[Version, Version]]:
        won: list[tuple[Version, Version]] = []
        while len(won) < 10:
            known = read(opened[number], key)
            assert known is not None
            version = write(opened[number], key, {"f": b"%d" % len(won)}, known.version)
            won += [] if version is None else [(known.version, version)]
        return won

    won = list(itertools.chain(*at_once(4, count)))
    assert len({before for before, _ in won}) == len({after for _, after in won}) == 40
    last = read(opened[0], key)
    assert last is not None
    assert last.version in {after for _, after in won} - {before for before, _ in won}


def test_of_many_that_create_or_delete_at_once_one_does(open_fields: Open, root: str) -> None:
    opened = [open_fields() for _ in range(4)]
    for number in range(8):
        key = f"{root}/{number % 2}"
        created = at_once(4, lambda n, key=key: write(opened[n], key, {"f": b"%d" % n}))  # type: ignore[misc]
        (winner,) = (n for n, version in enumerate(created) if version is not None)
        assert read(opened[0], key) == FieldRecord({"f": b"%d" % winner}, created[winner])  # type: ignore[arg-type]
        deleted = at_once(4, lambda n, key=key: fields_deleted(opened[n], key, ANY))  # type: ignore[misc]
        assert sorted(deleted) == [False, False, False, True]
        assert read(opened[0], key) is None


def test_parts_that_are_written_at_the_same_time_all_survive(open_fields: Open, root: str) -> None:
    one = open_fields()
    key = f"{root}/a"
    create(one, key)
    if not one.is_partial():
        with pytest.raises(InvalidInputError):
            one.write({key: FieldChange(FIELDS, ANY, whole=False)})
        return
    opened = [one, open_fields()]

    def update(number: int) -> None:
        for value in range(20):
            name = ("state", "preferences")[number]
            assert write(opened[number], key, {name: b"%d" % value}, ANY, whole=False) is not None
            found = read(opened[number], key)
            assert found is not None
            assert found.fields[name] == b"%d" % value

    at_once(2, update)
    record = read(one, key)
    assert record is not None
    assert record.fields == {"state": b"19", "preferences": b"19"}


def test_what_is_deleted_and_created_again_at_once_is_never_lost(
    fields: FieldRecords, root: str
) -> None:
    key = f"{root}/a"
    for number in range(60):
        version = create(fields, key, {"f": b"%d" % number})
        assert read(fields, key) == FieldRecord({"f": b"%d" % number}, version)
        if number % 3 == 0:
            changed = write(fields, key, OTHERS, version)
            assert changed is not None
            version = changed
        assert fields_deleted(fields, key, ANY if number % 2 else version)
        assert read(fields, key) is None


def test_of_two_that_create_and_delete_all_the_time_no_change_is_lost(
    open_fields: Open, root: str
) -> None:
    opened = [open_fields(), open_fields()]
    key = f"{root}/a"

    def change(number: int) -> int:
        there = 0
        for _ in range(25):
            there += write(opened[number], key) is not None
            there -= fields_deleted(opened[number], key, ANY)
        return there

    assert sum(at_once(2, change)) == (read(opened[0], key) is not None)


def test_what_lies_so_deep_below_a_prefix_is_found_by_key(fields: FieldRecords, root: str) -> None:
    keys = [f"{root}/q/{number:03}" for number in range(600)]
    beside = [f"{root}/q-/0", f"{root}/q0/0", f"{root}/p/0", f"{root}/q/300/deep", f"{root}/q"]
    if isinstance(fields, BlobRecords):
        keys = keys[::2]  # Each is several requests there.
    changes = {key: FieldChange({"f": key.encode()}, NEW) for key in keys}
    for key in keys:
        changes[key] = FieldChange({"f": b'"%s"' % key.encode()}, NEW)
    versions = fields.write({**changes, **{key: FieldChange(FIELDS, NEW) for key in beside}})
    found = list(fields.scan(f"{root}/q", 1))
    assert found == [(key, FieldRecord(changes[key].fields, versions[key])) for key in keys]  # type: ignore[arg-type]
    assert [key for key, _ in fields.scan(f"{root}/q", 2)] == [f"{root}/q/300/deep"]
    deep = [*keys, f"{root}/p/0", f"{root}/q-/0", f"{root}/q0/0"]
    assert [key for key, _ in fields.scan(root, 2)] == sorted(deep)
    assert list(fields.scan(f"{root}/none", 1)) == []
    scanning = fields.scan(f"{root}/q", 1)
    first, _ = next(scanning)
    fields.delete({keys[1]: ANY, keys[-1]: ANY})
    after = [key for key, _ in scanning]
    assert [first, *after][-1] in (keys[-2], keys[-1])
    assert [key for key, _ in fields.scan(f"{root}/q", 1)] == [keys[0], *keys[2:-1]]


def test_names_and_values_of_any_characters_are_kept(fields: FieldRecords, root: str) -> None:
    layout = Rows(root, "q")
    names = ["a/b", "ä€😀", " ", "%2F", "..", "a\x00b", "\x7f\ud7ff", "x" * 200, "a:b?*"]
    keys = [layout.subscription("t/ä", name) for name in names]
    value = {"f": '{"ä": "\\u0000€😀"}'.encode()}
    assert None not in fields.write({key: FieldChange(value, NEW) for key in keys}).values()
    found = dict(fields.scan(layout.subscriptions("t/ä"), 1))
    assert found == fields.read(keys)
    assert list(found) == sorted(keys)
    assert set(fields.delete(dict.fromkeys(keys, ANY)).values()) == {True}


def test_what_no_record_holds_and_versions_that_none_has_are_refused_before_anything_is_written(
    fields: FieldRecords, root: str
) -> None:
    known = create(fields, f"{root}/a")
    for allowed in (ANY, NEW, known):
        fields.check_version(allowed)
    with pytest.raises(InvalidInputError):
        fields.check_version(Version(-3))
    if not isinstance(fields, MemoryFields):
        for wrong in (Version(-3), Version(1 << 128)):
            with pytest.raises(InvalidInputError):
                fields.check_version(wrong)
        large = FieldChange({"f": LARGE}, NEW)
        changes = {f"{root}/b": FieldChange(FIELDS, NEW), f"{root}/c": large}
        with pytest.raises(InvalidInputError):
            fields.write(changes)
    assert fields.read([f"{root}/b", f"{root}/c"]) == {}


def test_a_record_may_be_large(fields: FieldRecords, root: str) -> None:
    large = {"f": LARGE[:1] + LARGE[: VALUE_BYTES_MAX - 2_000][1:] + LARGE[-1:]}
    create(fields, f"{root}/a", large)
    record = read(fields, f"{root}/a")
    assert record is not None
    assert record.fields == large
    assert [found.fields for _, found in fields.scan(root, 1)] == [large]  # type: ignore[union-attr]


def test_closed_records_do_nothing(open_fields: Open, root: str) -> None:
    fields = open_fields()
    close = getattr(fields, "close", None)
    if close is None:  # What these stand on is closed, and has a test of that.
        assert isinstance(fields, (BlobRecords, MemoryFields))
        return
    create(fields, f"{root}/a")
    close()
    for operation in (
        lambda: fields.read([f"{root}/a"]),
        lambda: list(fields.scan(root, 1)),
        lambda: fields.write({f"{root}/{n}": FieldChange(FIELDS, NEW) for n in range(5)}),
        lambda: fields.delete({f"{root}/a": ANY}),
    ):
        with pytest.raises(ClosedError):
            operation()
