"""What every store must say of how much room queues take: what `SizePort` promises."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator

import pytest

import hqueue
from hqueue import Message, SettingsError, StoreUnavailableError
from hqueue.errors import QueueDisabledError
from hqueue.store import StorePort
from hqueue.typing import RegionSize
from tests.support.backends import LossyWay
from tests.support.proxy import Fate
from tests.support.raw import RawHBase, RawTables
from tests.support.waiting import wait_for


@pytest.fixture
def name(store: StorePort, queue_name: str) -> Iterator[str]:
    """A queue of seven partitions, three a region."""
    store.tables.create(queue_name, 7, None, {"partitions_per_region": 3})
    yield queue_name
    with contextlib.suppress(QueueDisabledError):
        store.tables.disable(queue_name)
    store.tables.delete(queue_name)


def sizes_of(store: StorePort, name: str) -> list[RegionSize] | None:
    """The sizes; None where the store can't say them."""
    return None if store.sizes is None else store.sizes.sizes(name, 7)


def test_each_region_names_its_partitions(store: StorePort, raw: RawTables, name: str) -> None:
    sizes = sizes_of(store, name)
    if sizes is None:
        return
    assert len(raw.regions(name)) == 3
    held = [(each.first_partition, each.last_partition) for each in sizes]
    assert held == [(0, 2), (3, 5), (6, 6)]
    assert all(each.stored_bytes >= 0 and each.memory_bytes >= 0 for each in sizes)


def test_a_region_grows_by_what_is_put(
    make_queue: Callable[..., hqueue.Queue], client: hqueue.Client, raw: RawTables
) -> None:
    queue = make_queue(partitions=2)
    if client.settings.hbase == "gateways":
        with pytest.raises(SettingsError, match="native"):
            client.region_sizes(queue.name)
        return
    value = random.Random(1).randbytes(1024 * 1024)  # It can't be compressed.
    for _ in range(4):
        queue.put(Message("t", value), partition=1)

    def grown() -> bool:
        empty, full = client.region_sizes(queue.name)
        assert (empty.first_partition, empty.last_partition) == (0, 0)
        assert empty.stored_bytes == 0
        size = full.stored_bytes + full.memory_bytes
        # HBase counts in whole MiB, and keeps some bytes beside each cell.
        return len(value) * 3 <= size <= len(value) * 4 * 2

    wait_for(grown, "the region has the size of its messages")
    client.disable_queue(queue.name)  # A region that is closed is flushed.
    client.enable_queue(queue.name)
    wait_for(grown, "the region has its size again")
    if isinstance(raw, RawHBase):
        size = client.region_sizes(queue.name)[1]
        assert size.memory_bytes == 0
        assert size.stored_bytes >= len(value)


def test_a_disabled_queue_has_no_sizes(
    make_queue: Callable[..., hqueue.Queue], client: hqueue.Client
) -> None:
    queue = make_queue(partitions=1)
    client.disable_queue(queue.name)
    with pytest.raises(QueueDisabledError):
        client.region_sizes(queue.name)


def test_a_missing_queue_has_no_sizes(store: StorePort, queue_name: str) -> None:
    if store.sizes is not None:
        with pytest.raises(StoreUnavailableError):
            store.sizes.sizes(queue_name, 1)


def test_it_is_asked_once(lossy: LossyWay, name: str) -> None:
    with contextlib.closing(lossy.store()) as store:
        lossy.set_fate(lambda operation: Fate.LOSE_REQUEST)
        if store.sizes is not None:
            with pytest.raises(StoreUnavailableError):
                store.sizes.sizes(name, 7)
