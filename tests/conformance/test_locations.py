"""What every store must say of where partitions are served: what `LocationPort` promises."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from hqueue import PartitionLocation, StoreUnavailableError
from hqueue.store import StorePort
from tests.support.backends import LossyWay, MemoryBackend
from tests.support.proxy import Fate
from tests.support.raw import RawTables


@pytest.fixture
def name(store: StorePort, queue_name: str) -> Iterator[str]:
    """A queue of seven partitions, three a region."""
    store.tables.create(queue_name, 7, None, {"partitions_per_region": 3})
    yield queue_name
    store.tables.disable(queue_name)
    store.tables.delete(queue_name)


def test_each_partition_is_where_its_region_is(store: StorePort, raw: RawTables, name: str) -> None:
    regions = raw.regions(name)
    assert len(regions) == 3
    assert store.locations.locate(name, 7) == [
        PartitionLocation(partition, regions[partition // 3].host, regions[partition // 3].port)
        for partition in range(7)
    ]


def test_a_region_that_moves_takes_its_partitions_along() -> None:
    # Only a cluster can move one: that HBase's are located then is in `test_cluster`.
    backend = MemoryBackend()
    store = backend.store()
    store.tables.create("q", 7, None, {"partitions_per_region": 3})
    before = store.locations.locate("q", 7)
    backend.raw.move("q", 1, "elsewhere", 7)
    moved = {3, 4, 5}
    for was, now in zip(before, store.locations.locate("q", 7), strict=True):
        there = PartitionLocation(was.partition, "elsewhere", 7)
        assert now == (there if was.partition in moved else was)


def test_a_missing_queue_is_nowhere(store: StorePort, queue_name: str) -> None:
    with pytest.raises(StoreUnavailableError):
        store.locations.locate(queue_name, 1)


def test_it_is_asked_once(lossy: LossyWay, name: str) -> None:
    with contextlib.closing(lossy.store()) as store:
        lossy.set_fate(lambda operation: Fate.LOSE_REQUEST)
        with pytest.raises(StoreUnavailableError):
            store.locations.locate(name, 7)
