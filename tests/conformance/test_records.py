"""What every store of versioned records must do."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from hqueue import ClosedError
from hqueue.metadata import MetadataStore
from hqueue.metadata.ports import ANY, NEW, Change, Record, Version

from .conftest import MetadataBackend

Open = Callable[[], MetadataStore]


@pytest.fixture
def root(metadata_backend: MetadataBackend) -> str:
    return metadata_backend.root


@pytest.fixture
def store(open_store: Open) -> MetadataStore:
    return open_store()


def create(store: MetadataStore, key: str, value: bytes = b"v") -> Record:
    return store.records.create({key: value})[key]


def write(store: MetadataStore, key: str, value: bytes, version: Version) -> Version | None:
    return store.records.write({key: Change(value, version)})[key]


def test_what_was_created_is_read_with_its_version_and_what_is_not_there_is_left_out(
    store: MetadataStore, root: str
) -> None:
    created = store.records.create({f"{root}/a": b"1", f"{root}/b": b"\x00\xff"})
    assert {key: record.value for key, record in created.items()} == {
        f"{root}/a": b"1",
        f"{root}/b": b"\x00\xff",
    }
    assert store.records.read([f"{root}/b", f"{root}/c", f"{root}/a"]) == created
    assert store.records.read([]) == {}


def test_a_record_that_exists_wins_over_one_to_be_created(store: MetadataStore, root: str) -> None:
    first = create(store, f"{root}/a", b"1")
    found = store.records.create({f"{root}/a": b"2", f"{root}/b": b"2"})
    assert found[f"{root}/a"] == first
    assert found[f"{root}/b"].value == b"2"


def test_a_write_needs_the_version_that_is_there_and_makes_the_next(
    open_store: Open, root: str
) -> None:
    one, other = open_store(), open_store()
    known = create(one, f"{root}/a")
    second = write(one, f"{root}/a", b"2", known.version)
    assert second not in (None, known.version)
    assert write(other, f"{root}/a", b"3", known.version) is None
    record = other.records.read([f"{root}/a"])[f"{root}/a"]
    assert (record.value, record.version) == (b"2", second)
    assert record.changed > known.changed


def test_what_another_wrote_is_not_taken_for_one_s_own_though_it_is_the_very_same(
    open_store: Open, root: str
) -> None:
    one, other = open_store(), open_store()
    known = create(one, f"{root}/a")
    assert write(one, f"{root}/a", b"2", known.version) is not None
    assert write(other, f"{root}/a", b"2", known.version) is None
    assert write(one, f"{root}/b", b"1", NEW) is not None
    assert write(other, f"{root}/b", b"1", NEW) is None


def test_a_new_record_is_written_only_where_there_is_none(store: MetadataStore, root: str) -> None:
    version = write(store, f"{root}/a/b/c", b"1", NEW)
    assert version is not None
    assert write(store, f"{root}/a/b/c", b"2", NEW) is None
    assert write(store, f"{root}/a/b/c", b"3", version) is not None
    assert store.records.read([f"{root}/a/b/c"])[f"{root}/a/b/c"].value == b"3"


def test_any_version_is_written_but_not_where_there_is_no_record(
    store: MetadataStore, root: str
) -> None:
    assert write(store, f"{root}/a", b"1", ANY) is None
    assert store.records.read([f"{root}/a"]) == {}
    known = create(store, f"{root}/a")
    written = write(store, f"{root}/a", b"2", ANY)
    assert written not in (None, known.version)
    assert write(store, f"{root}/a", b"3", known.version) is None


def test_of_many_writes_each_counts_on_its_own(store: MetadataStore, root: str) -> None:
    keys = [f"{root}/{number}" for number in range(600)]
    versions = {
        key: record.version
        for key, record in store.records.create(dict.fromkeys(keys, b"1")).items()
    }
    moved = keys[::7]
    store.records.write({key: Change(b"2", versions[key]) for key in moved})
    written = store.records.write({key: Change(b"3", versions[key]) for key in keys})
    assert [key for key, version in written.items() if version is None] == moved
    found = store.records.read(keys)
    assert {key for key in keys if found[key].value == b"2"} == set(moved)
    assert all(found[key].version == version for key, version in written.items() if version)


def test_of_many_that_write_at_once_each_version_is_won_by_one(open_store: Open, root: str) -> None:
    key = f"{root}/a"
    stores = [open_store() for _ in range(4)]
    create(stores[0], key)

    def count(number: int) -> list[Version]:
        won: list[Version] = []
        while len(won) < 20:
            known = stores[number].records.read([key])[key]
            version = write(stores[number], key, b"%d-%d" % (number, len(won)), known.version)
            won += [] if version is None else [version]
        return won

    with ThreadPoolExecutor(len(stores)) as pool:
        won = [version for versions in pool.map(count, range(4)) for version in versions]
    assert len(set(won)) == 80
    assert stores[0].records.read([key])[key].version in won


def test_only_the_version_that_is_known_is_deleted(store: MetadataStore, root: str) -> None:
    keys = [f"{root}/a", f"{root}/b", f"{root}/c"]
    first = store.records.create(dict.fromkeys(keys, b"1"))
    write(store, keys[0], b"2", ANY)
    versions = {keys[0]: first[keys[0]].version, keys[1]: first[keys[1]].version, keys[2]: ANY}
    assert set(store.records.delete({**versions, f"{root}/d": ANY})) == {keys[0]}
    assert list(store.records.read(keys)) == [keys[0]]
    assert not store.records.delete({keys[0]: ANY, keys[1]: ANY})
    assert store.records.read(keys) == {}


def test_what_was_deleted_and_created_again_is_seen_as_changed(
    store: MetadataStore, root: str
) -> None:
    first = create(store, f"{root}/a")
    store.records.delete({f"{root}/a": ANY})
    assert create(store, f"{root}/a").changed > first.changed


def test_what_has_a_record_below_it_stays(store: MetadataStore, root: str) -> None:
    create(store, f"{root}/a")
    create(store, f"{root}/a/b")
    assert set(store.records.delete({f"{root}/a": ANY})) == {f"{root}/a"}
    assert not store.records.delete({f"{root}/a/b": ANY})
    assert not store.records.delete({f"{root}/a": ANY})


def test_with_the_last_record_goes_what_leads_to_it_and_nothing_else(
    store: MetadataStore, root: str
) -> None:
    keys = [f"{root}/q/1/x", f"{root}/q/1/y", f"{root}/q/2/x"]
    store.records.create(dict.fromkeys(keys, b"v"))
    store.records.delete({keys[0]: ANY}, levels_above=2)
    assert sorted(store.records.keys(f"{root}/q", 1)) == [f"{root}/q/1", f"{root}/q/2"]
    store.records.delete({keys[1]: ANY}, levels_above=2)
    assert store.records.keys(f"{root}/q", 1) == [f"{root}/q/2"]
    store.records.delete({keys[2]: ANY}, levels_above=2)
    assert store.records.keys(root, 1) == []


def test_what_lies_below_a_prefix_is_listed_at_one_depth(store: MetadataStore, root: str) -> None:
    keys = [f"{root}/q/{number}/{name}" for number in range(3) for name in "xy"]
    created = store.records.create(dict.fromkeys(keys, b"v"))
    store.records.create({f"{root}/q2/0/x": b"v", f"{root}/q/0/x/deep": b"v"})
    assert store.records.list(f"{root}/q", 2) == created
    assert store.records.list(f"{root}/q/1", 1) == {key: created[key] for key in keys[2:4]}
    assert sorted(store.records.keys(f"{root}/q", 2)) == keys
    assert sorted(store.records.keys(root, 1)) == [f"{root}/q", f"{root}/q2"]
    assert store.records.list(f"{root}/none", 1) == {}
    assert list(store.records.keys(f"{root}/none", 2)) == []


def test_a_closed_store_does_nothing(store: MetadataStore, root: str) -> None:
    create(store, f"{root}/a")
    store.close()
    store.close()
    for operation in (
        lambda: store.records.read([f"{root}/a"]),
        lambda: store.records.list(root, 1),
        lambda: store.records.write({f"{root}/a": Change(b"2", ANY)}),
        lambda: store.records.delete({f"{root}/a": ANY}),
        lambda: store.ephemerals.claim({f"{root}/b": b"v"}),
        store.confirm,
    ):
        with pytest.raises(ClosedError):
            operation()
