"""Changes that need another record: what every metadata store must do with their guards."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hqueue.metadata import MetadataStore
from hqueue.metadata.ports import ANY, Change, Guard, Version

from .conftest import OVER_FEW_METADATA_STORES, MetadataBackend

pytestmark = OVER_FEW_METADATA_STORES


@pytest.fixture
def root(metadata_backend: MetadataBackend) -> str:
    return metadata_backend.root


def test_a_guard_of_another_version_keeps_a_change_from_being_made(
    open_store: Callable[[], MetadataStore], root: str
) -> None:
    store = open_store()
    guard, key, other = f"{root}/guard", f"{root}/a", f"{root}/b"
    store.records.create({guard: b"", key: b"1", other: b"1"})
    store.records.write({guard: Change(b"", ANY)})
    right, wrong = Guard(guard, Version(1)), Guard(guard, Version(0))
    changes = {key: Change(b"2", Version(0)), other: Change(b"2", Version(0))}
    assert store.records.write(changes, {key: wrong}) == {key: None, other: 1}
    assert store.records.write({key: changes[key]}, {key: right}) == {key: 1}
    assert store.records.write({key: changes[key]}, {key: right}) == {key: None}
    missing = {key: Guard(f"{root}/none", Version(0))}
    assert store.records.write({key: Change(b"3", Version(1))}, missing) == {key: None}
    there = store.records.read([guard, key, other])
    assert {each: record.value for each, record in there.items()} == {
        guard: b"",
        key: b"2",
        other: b"2",
    }
    assert there[guard].version == 1, "it is compared, and not written"
    assert store.records.remove({key: Version(1)}, {key: wrong}) == {key: False}
    assert store.records.remove({key: Version(1)}, {key: right}) == {key: True}
    assert store.records.read([key]) == {}


def test_a_guard_of_a_registration_is_written_with_it_or_nothing_is(
    open_store: Callable[[], MetadataStore], root: str
) -> None:
    store = open_store()
    guard, keys = f"{root}/guard", [f"{root}/{name}" for name in "abc"]
    store.records.create({guard: b""})
    first = Guard(guard, Version(0))
    assert store.ephemerals.create({keys[0]: b"1"}, {keys[0]: first}) == {keys[0]: 0}
    assert store.ephemerals.create({keys[1]: b"1"}, {keys[1]: first}) == {keys[1]: None}
    second = Guard(guard, Version(1))
    assert store.ephemerals.create({keys[0]: b"1"}, {keys[0]: second}) == {keys[0]: None}
    both = store.ephemerals.create(dict.fromkeys(keys[1:], b"1"), dict.fromkeys(keys[1:], second))
    assert sorted(both.values(), key=str) == [0, None]
    assert store.records.read([guard])[guard].version == 2
    assert len(store.records.read(keys)) == 2
