"""Owners' records that are there for as long as a hub's session."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from hqueue.errors import BadVersionError, NoTopicOwnerInfoError, UnsupportedFormatError
from hqueue.metadata import MetadataStore
from hqueue.metadata.managers import (
    Pipeline,
    PresentRecords,
    TopicOwnershipManager,
    Tree,
    Versioned,
)
from hqueue.metadata.ports import ANY, NEW, Change, Version
from hqueue.zookeeper import ZooKeeperStore
from tests.support.metadata_kinds import owner
from tests.support.waiting import wait_for

from .conftest import OVER_FEW_METADATA_STORES, MetadataBackend

pytestmark = OVER_FEW_METADATA_STORES

Open = Callable[[], MetadataStore]


@pytest.fixture
def layout(metadata_backend: MetadataBackend) -> Tree:
    return Tree(metadata_backend.root, "q")


def hub(store: MetadataStore, layout: Tree) -> TopicOwnershipManager:
    return TopicOwnershipManager(Pipeline(PresentRecords(store), 20), layout)


def test_of_many_that_want_to_own_a_topic_one_does(open_store: Open, layout: Tree) -> None:
    hubs = [hub(open_store(), layout) for _ in range(4)]

    def own(number: int) -> list[str]:
        won = []
        for topic in map(str, range(20)):
            try:
                hubs[number % 4].write_owner_info(topic, owner(number), NEW).result()
                won.append(topic)
            except BadVersionError:
                continue
        return won

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(own, range(8)))
    assert sorted(topic for each in won for topic in each) == sorted(map(str, range(20)))
    for number, topics in enumerate(won):
        for topic in topics:
            read = hubs[0].read_owner_info(topic).result()
            assert read is not None
            assert read.value == owner(number)


def test_a_topic_is_free_when_its_owner_s_session_ends(
    metadata_backend: MetadataBackend, open_store: Open, layout: Tree
) -> None:
    stores = [open_store(), open_store()]
    one, other = (hub(store, layout) for store in stores)
    one.write_owner_info("t", owner(1), NEW).result()
    with pytest.raises(BadVersionError):
        other.write_owner_info("t", owner(2), NEW).result()
    metadata_backend.expire(stores[0])
    wait_for(lambda: other.read_owner_info("t").result() is None, "it has no owner")
    version = other.write_owner_info("t", owner(2), NEW).result()
    one.write_owner_info("u", owner(1), NEW).result()
    stores[0].close()
    wait_for(lambda: other.read_owner_info("u").result() is None, "the other has no owner")
    assert other.read_owner_info("t").result() == Versioned(owner(2), version)


def test_a_hub_owns_a_topic_again_that_it_left(open_store: Open, layout: Tree) -> None:
    one = hub(open_store(), layout)
    for number in range(5):
        version = one.write_owner_info("t", owner(number), NEW).result()
        with pytest.raises(BadVersionError):
            one.write_owner_info("t", owner(9), NEW).result()
        one.delete_owner_info("t", version).result()
        with pytest.raises(NoTopicOwnerInfoError):
            one.delete_owner_info("t", ANY).result()


def test_another_hub_takes_the_owner_s_record_away_by_its_version(
    open_store: Open, layout: Tree
) -> None:
    stores = [open_store(), open_store()]
    one, other = (hub(store, layout) for store in stores)
    one.write_owner_info("t", owner(1), NEW).result()
    read = other.read_owner_info("t").result()
    assert read is not None
    other.delete_owner_info("t", read.version).result()
    version = other.write_owner_info("t", owner(2), NEW).result()
    with pytest.raises(BadVersionError):
        one.write_owner_info("t", owner(1), NEW).result()
    stores[0].close()  # It is not the first one's any more.
    assert other.read_owner_info("t").result() == Versioned(owner(2), version)


def test_what_was_left_takes_up_no_room_in_a_session(open_store: Open, layout: Tree) -> None:
    store = open_store()
    one = hub(store, layout)
    for number in range(60):
        topic = f"{number}" * 20
        version = one.write_owner_info(topic, owner(1), NEW).result()
        one.delete_owner_info(topic, version).result()
    if isinstance(store, ZooKeeperStore):
        assert set(store.session.members._allocation.bytes_by_session) == {0}


def test_what_another_has_takes_up_no_room_in_a_session(open_store: Open, layout: Tree) -> None:
    holder, store = open_store(), open_store()
    for number in range(30):
        hub(holder, layout).write_owner_info(f"{number}" * 20, owner(1), NEW).result()
        with pytest.raises(BadVersionError):
            hub(store, layout).write_owner_info(f"{number}" * 20, owner(2), NEW).result()
    if isinstance(store, ZooKeeperStore):
        assert set(store.session.members._allocation.bytes_by_session) == {0}


def test_what_stands_in_an_owner_s_place_is_told_from_an_owner(
    open_store: Open, layout: Tree
) -> None:
    store = open_store()
    one = hub(store, layout)
    one.write_owner_info("t", owner(1), NEW).result()
    store.records.write({layout.owner("t"): Change(b"host:1", ANY)})
    with pytest.raises(UnsupportedFormatError):
        one.read_owner_info("t").result()
    with pytest.raises(BadVersionError):
        one.write_owner_info("t", owner(2), NEW).result()
    one.delete_owner_info("t", ANY).result()
    one.write_owner_info("t", owner(2), NEW).result()


def test_a_forked_child_goes_on_with_a_session_of_its_own(
    open_store: Open, layout: Tree, metadata_backend: MetadataBackend
) -> None:
    store = open_store()
    if not isinstance(store, ZooKeeperStore):
        return
    one = hub(store, layout)
    one.write_owner_info("t", owner(1), NEW).result()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            one.write_owner_info("u", owner(2), NEW).result(30)
            read = one.read_owner_info("t").result(30)
            code = 0 if read is not None and read.value == owner(1) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert one.read_owner_info("t").result() is not None


def test_a_version_of_an_owner_is_no_later_owner_s(
    metadata_backend: MetadataBackend, open_store: Open, layout: Tree
) -> None:
    """One hub stands still between reading an owner's record and changing it."""
    stores = [open_store() for _ in range(3)]
    gone, later, standing = (hub(store, layout) for store in stores)
    read, nodes = set(), set()
    for number in range(3):
        version = gone.write_owner_info("t", owner(number), NEW).result()
        found = standing.read_owner_info("t").result()
        assert found == Versioned(owner(number), version)
        nodes.add(stores[2].records.read([layout.owner("t")])[layout.owner("t")].version)
        read.add(version)
        metadata_backend.expire(stores[0])
        wait_for(lambda: later.read_owner_info("t").result() is None, "it has no owner")
    assert (len(read), len(nodes)) == (3, 1), "the store counts from the beginning, and is not seen"
    current = later.write_owner_info("t", owner(9), NEW).result()
    for version in read:
        with pytest.raises(BadVersionError):
            standing.write_owner_info("t", owner(1), version).result()
        with pytest.raises(BadVersionError):
            standing.delete_owner_info("t", version).result()
    assert later.read_owner_info("t").result() == Versioned(owner(9), current)
    changed = later.write_owner_info("t", owner(9), current).result()
    assert changed not in read | {current}
    later.delete_owner_info("t", changed).result()
    assert later.read_owner_info("t").result() is None


def test_owners_that_an_earlier_release_wrote_are_changed_by_their_versions(
    open_store: Open, layout: Tree
) -> None:
    old, new = open_store(), open_store()
    value = b'{"version": 1, "writer": "00", "owner": {"version": 1, "address": "host0:4080", '
    value += b'"incarnation": "start-0"}}'
    old.ephemerals.create({layout.owner("t"): value})
    owning = hub(new, layout)
    wait_for(lambda: owning.read_owner_info("t").result(), "it is there")
    found = owning.read_owner_info("t").result()
    assert found is not None
    assert found.version == 0
    with pytest.raises(BadVersionError):
        owning.delete_owner_info("t", Version(1)).result()
    changed = owning.write_owner_info("t", owner(2), found.version).result()
    owning.delete_owner_info("t", changed).result()
    version = owning.write_owner_info("t", owner(1), NEW).result()
    assert version not in (found.version, changed)
    with pytest.raises(BadVersionError):
        owning.delete_owner_info("t", found.version).result()
    owning.delete_owner_info("t", version).result()
    old.ephemerals.create({layout.owner("t"): value})
    wait_for(lambda: owning.read_owner_info("t").result(), "it is there, in the same generation")
    with pytest.raises(BadVersionError):
        owning.delete_owner_info("t", Version(0)).result()
    owning.delete_owner_info("t", ANY).result()
