"""Creating, describing, altering and deleting queues, compared with what the store itself says."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

import hqueue
from hqueue import Message
from tests.support.client_faces import FACES, client_by
from tests.support.raw import RawHBase, RawTables
from tests.support.waiting import wait_for

pytestmark = pytest.mark.in_memory_first

MakeQueue = Callable[..., hqueue.Queue]

ALL_ATTRIBUTES = {
    "hbase.hqueue.partitionsPerRegion": 4,
    "hbase.hregion.memstore.flush.size": 33_554_432,
    "hbase.hregion.majorcompaction": 86_400_000,
    "hbase.hstore.compaction.min": 16,
    "hbase.hstore.compaction.max": 32,
    "hbase.hqueue.compression": "GZ",
    "hbase.hstore.blockingStoreFiles": 77,
}


@pytest.fixture(params=FACES)
def client(request: pytest.FixtureRequest, client: hqueue.Client) -> Iterator[hqueue.Client]:
    """By each face of the administration."""
    with client_by(request.param, client) as face:
        yield face


def names(client: hqueue.Client) -> list[str]:
    return [description.name for description in client.list_queues()]


@pytest.fixture
def plain_table(raw: RawTables, queue_name: str) -> Iterator[str]:
    """A table that is not a queue, with a queue's families."""
    name = f"{queue_name}-plain"
    raw.create_plain(name)
    yield name
    raw.drop(name)


def test_every_attribute_of_alibabas_hqueue_is_set_in_hbase(
    make_queue: MakeQueue, hbase: RawHBase
) -> None:
    queue = make_queue(10, ttl=86_400, **ALL_ATTRIBUTES)
    table = hbase.table_attributes(queue.name)
    assert table["MEMSTORE_FLUSHSIZE"] == "33554432"
    assert table["hbase.hregion.majorcompaction"] == "86400000"
    assert table["hbase.hstore.compaction.min"] == "16"
    assert table["hbase.hstore.compaction.max"] == "32"
    assert table["hbase.hstore.blockingStoreFiles"] == "77"
    families = hbase.all_family_attributes(queue.name)
    assert set(families) == {"message", "log"}
    assert families["message"]["TTL"] == "86400"
    assert families["log"]["TTL"] == "2147483647", "headers never expire by themselves"
    assert [f["COMPRESSION"] for f in families.values()] == ["GZ", "GZ"]
    assert [f["VERSIONS"] for f in families.values()] == ["1", "1"]


def test_a_queue_can_ask_for_every_put_to_be_on_disk(
    make_queue: MakeQueue, hbase: RawHBase
) -> None:
    queue = make_queue(1, durability="fsync_wal")
    assert hbase.table_attributes(queue.name)["DURABILITY"] == "FSYNC_WAL"
    assert queue.describe().attributes["durability"] == "FSYNC_WAL"
    assert queue.put(hqueue.Message("topic", b"value"), partition=0)


def test_partitions_are_presharded_four_a_region_and_never_split(
    make_queue: MakeQueue, hbase: RawHBase
) -> None:
    queue = make_queue(10, partitions_per_region=4)
    regions = hbase.regions(queue.name)
    assert [r.start_key for r in regions] == [b"", b"\0\x04", b"\0\x08"]
    assert [r.end_key for r in regions] == [b"\0\x04", b"\0\x08", b""]
    table = hbase.table_attributes(queue.name)
    assert table["SPLIT_POLICY"].endswith(".DisabledRegionSplitPolicy")
    assert table["SPLIT_ENABLED"] == table["MERGE_ENABLED"] == "false"
    assert table["NORMALIZATION_ENABLED"] == "false"


def test_one_partition_a_region_is_the_default(make_queue: MakeQueue, raw: RawTables) -> None:
    queue = make_queue(3)
    assert [r.start_key for r in raw.regions(queue.name)] == [b"", b"\0\x01", b"\0\x02"]


def test_a_description_says_what_was_given(client: hqueue.Client, make_queue: MakeQueue) -> None:
    queue = make_queue(10, ttl="12h", **ALL_ATTRIBUTES)
    description = client.describe_queue(queue.name)
    assert description == queue.describe()
    assert (description.partitions, description.ttl_seconds) == (10, 43_200)
    assert description.enabled is True
    assert description.attributes == {
        "partitions_per_region": 4,
        "memstore_flush_bytes": 33_554_432,
        "major_compaction_ms": 86_400_000,
        "compaction_files_min": 16,
        "compaction_files_max": 32,
        "compression": "GZ",
        "blocking_store_files": 77,
    }
    assert description.name in names(client)


def test_a_queue_for_ever_has_no_ttl(client: hqueue.Client, make_queue: MakeQueue) -> None:
    assert make_queue(ttl=None).describe().ttl_seconds is None


def test_alter_changes_what_is_given_and_nothing_else(
    client: hqueue.Client, make_queue: MakeQueue, hbase: RawHBase
) -> None:
    queue = make_queue(2, ttl=86_400, compaction_files_min=4, blocking_store_files=50)
    # What hqueue does not know of must survive as well.
    descriptor = hbase.descriptor(queue.name)
    descriptor.attributes[b"an.operators.own"] = b"kept"
    descriptor.attributes[b"DURABILITY"] = b"SYNC_WAL"
    for family in descriptor.columns:
        family.blockSize = 32_768
        family.bloomnFilterType = hbase.idl.TBloomFilterType.ROWCOL
        family.inMemory = True
        family.attributes |= {
            b"BLOCKSIZE": b"32768",
            b"BLOOMFILTER": b"ROWCOL",
            b"IN_MEMORY": b"true",
        }
    with hbase.thrift2() as thrift2:
        thrift2.modifyTable(descriptor)
    table, families = hbase.table_attributes(queue.name), hbase.all_family_attributes(queue.name)
    assert families["message"]["BLOCKSIZE"] == "32768"
    regions = hbase.regions(queue.name)

    now = client.alter_queue(queue.name, ttl="1h", blocking_store_files=60)

    assert (now.ttl_seconds, now.attributes["blocking_store_files"]) == (3_600, 60)
    table["hbase.hstore.blockingStoreFiles"] = "60"
    families["message"]["TTL"] = "3600"
    assert hbase.table_attributes(queue.name) == table
    assert hbase.all_family_attributes(queue.name) == families
    assert [r.start_key for r in hbase.regions(queue.name)] == [r.start_key for r in regions]


def test_alter_can_set_every_changeable_attribute_and_keeps_the_messages(
    client: hqueue.Client, make_queue: MakeQueue, hbase: RawHBase
) -> None:
    queue = make_queue(1, ttl=86_400)
    written = queue.put(Message("t", b"before"))
    changes = {k: v for k, v in ALL_ATTRIBUTES.items() if "partitionsPerRegion" not in k}
    client.alter_queue(queue.name, ttl=None, **changes)
    table = hbase.table_attributes(queue.name)
    assert table["MEMSTORE_FLUSHSIZE"] == "33554432"
    assert table["hbase.hstore.compaction.max"] == "32"
    families = hbase.all_family_attributes(queue.name)
    assert families["message"]["TTL"] == "2147483647"
    assert {f["COMPRESSION"] for f in families.values()} == {"GZ"}
    assert [m.id for m in queue.scan()] == [written]


def test_the_number_of_partitions_a_region_cannot_be_altered(
    client: hqueue.Client, make_queue: MakeQueue
) -> None:
    queue = make_queue(4)
    with pytest.raises(hqueue.InvalidInputError):
        client.alter_queue(queue.name, partitions_per_region=2)


def test_an_attribute_that_an_operator_set_out_of_range_can_still_be_described(
    client: hqueue.Client, make_queue: MakeQueue, hbase: RawHBase
) -> None:
    queue = make_queue()
    descriptor = hbase.descriptor(queue.name)
    descriptor.attributes[b"hbase.hstore.blockingStoreFiles"] = b"1"
    with hbase.thrift2() as thrift2:
        thrift2.modifyTable(descriptor)
    assert client.describe_queue(queue.name).attributes["blocking_store_files"] in (1, "1")
    assert queue.name in names(client)


def test_disable_and_enable_switch_the_table_and_may_be_repeated(
    client: hqueue.Client, make_queue: MakeQueue, raw: RawTables
) -> None:
    queue = make_queue(2)
    written = queue.put(Message("t", b"kept"))
    for _ in range(2):
        client.disable_queue(queue.name)
        assert not raw.is_enabled(queue.name)
        assert client.describe_queue(queue.name).enabled is False
    for _ in range(2):
        client.enable_queue(queue.name)
        assert raw.is_enabled(queue.name)
    assert [m.id for m in queue.scan()] == [written]


def test_a_disabled_queue_refuses_put_and_scan_at_once(
    client: hqueue.Client, make_queue: MakeQueue
) -> None:
    queue = make_queue(2)
    queue.put(Message("t", b"kept"), partition=0)
    client.disable_queue(queue.name)
    fresh = client.queue(queue.name)
    operations: list[Callable[[], object]] = [
        lambda: fresh.put(Message("t", b"refused"), partition=1),
        lambda: list(queue.scan()),
        lambda: list(queue.scan(partition=0, start=1)),
        lambda: list(queue.scan(merge_sorted=True)),
    ]
    for operation in operations:
        began = time.monotonic()
        with pytest.raises(hqueue.errors.QueueDisabledError) as caught:
            operation()
        assert time.monotonic() - began < 10
        assert caught.value.outcome is hqueue.Outcome.NOT_APPLIED
        assert caught.value.queue == queue.name
    # This one knows the log's end and sends the put: the gateway may have tried it earlier.
    began = time.monotonic()
    with pytest.raises(hqueue.errors.QueueDisabledError) as caught:
        queue.put(Message("t", b"refused"), partition=0)
    assert time.monotonic() - began < 10
    client.enable_queue(queue.name)
    assert [m.value for m in queue.scan()] == [b"kept"]


def test_an_enabled_queue_is_not_deleted(
    client: hqueue.Client, make_queue: MakeQueue, raw: RawTables
) -> None:
    queue = make_queue()
    with pytest.raises(hqueue.errors.QueueEnabledError):
        client.delete_queue(queue.name)
    assert raw.is_enabled(queue.name)


def test_a_deleted_queue_is_gone_and_its_name_is_free(
    client: hqueue.Client, raw: RawTables, queue_name: str
) -> None:
    for _ in range(2):
        queue = client.create_queue(queue_name, partitions=1)
        assert list(queue.scan()) == []
        queue.put(Message("t", b"x"))
        client.disable_queue(queue_name)
        client.delete_queue(queue_name)
        assert not raw.exists(queue_name)
        assert queue_name not in names(client)
    operations: list[Callable[[], object]] = [
        lambda: queue.put(Message("t", b"x")),
        lambda: list(queue.scan()),
    ]
    for operation in operations:
        began = time.monotonic()
        with pytest.raises(hqueue.QueueNotFoundError) as caught:
            operation()
        assert time.monotonic() - began < 10
        assert caught.value.outcome is hqueue.Outcome.NOT_APPLIED


def test_a_name_that_exists_is_refused_and_the_queue_untouched(
    client: hqueue.Client, make_queue: MakeQueue, plain_table: str
) -> None:
    queue = make_queue(2)
    for name in (queue.name, plain_table):
        with pytest.raises(hqueue.QueueExistsError) as caught:
            client.create_queue(name, partitions=3)
        assert caught.value.queue == name
    assert client.describe_queue(queue.name).partitions == 2


def test_every_operation_on_a_missing_queue_says_so(client: hqueue.Client, queue_name: str) -> None:
    for operation in (
        client.queue,
        client.describe_queue,
        client.alter_queue,
        client.enable_queue,
        client.disable_queue,
        client.delete_queue,
        client.truncate_queue,
        client.locations,
    ):
        with pytest.raises(hqueue.QueueNotFoundError) as caught:
            operation(queue_name)
        assert caught.value.queue == queue_name


def test_a_table_that_is_not_a_queue_is_refused_and_left_alone(
    client: hqueue.Client, raw: RawTables, plain_table: str
) -> None:
    for operation in (
        client.queue,
        client.describe_queue,
        client.alter_queue,
        client.enable_queue,
        client.disable_queue,
        client.delete_queue,
        client.truncate_queue,
        client.locations,
    ):
        with pytest.raises(hqueue.errors.NotAQueueError) as caught:
            operation(plain_table)
        assert caught.value.queue == plain_table
        assert plain_table in str(caught.value)
    assert raw.is_enabled(plain_table)
    assert plain_table not in names(client)


def test_every_partition_has_the_location_that_hbase_gives_its_region(
    client: hqueue.Client, make_queue: MakeQueue, raw: RawTables
) -> None:
    queue = make_queue(7, partitions_per_region=3)
    (server,) = {(r.host, r.port) for r in raw.regions(queue.name)}
    assert [(p.partition, p.host, p.port) for p in client.locations(queue.name)] == [
        (partition, *server) for partition in range(7)
    ]


def test_a_namespace_is_part_of_the_name(client: hqueue.Client, raw: RawTables) -> None:
    namespace = "hqueue_test_namespace"
    name = f"{namespace}:events"
    with pytest.raises(hqueue.HQueueError) as caught:
        client.create_queue(name, partitions=1)
    assert caught.value.outcome is hqueue.Outcome.NOT_APPLIED
    raw.create_namespace(namespace)
    queue = client.create_queue(name, partitions=2)
    try:
        written = queue.put([Message("t", b"a"), Message("u", b"b")], partition=1)
        assert [m.id for m in queue.scan()] == list(written)
        assert name in names(client)
        assert len(client.locations(name)) == 2
    finally:
        client.disable_queue(name)
        client.delete_queue(name)
        raw.delete_namespace(namespace)


def test_a_name_with_the_default_namespace_is_the_one_without_it(
    client: hqueue.Client, queue_name: str
) -> None:
    full = f"default:{queue_name}"
    assert client.create_queue(full, partitions=2).name == queue_name
    queue = client.queue(full)
    assert queue.name == queue_name
    assert client.describe_queue(full).name == queue_name
    assert client.alter_queue(full, ttl="3d").name == queue_name
    client.truncate_queue(full)
    client.add_subscriber(full, "s")
    assert {each.subscriber for each in client.list_subscribers(queue_name)} == {"s"}
    assert set(client.seek_subscriber(full, "s", "latest")) == {0, 1}
    client.delete_subscriber(full, "s")
    assert len(client.locations(full)) == 2
    with client.topic_metadata(full) as metadata:
        assert metadata.persistence.read_topic_persistence_info("t").result() is None
    queue.put(hqueue.Message("t", b"v"), partition=0)
    with hqueue.Consumer(full, group=queue_name, client=client) as consumer:
        assert consumer.subscription() == {queue_name}
        wait_for(lambda: consumer.poll(100), "its message is handed out")
        consumer.commit()
        assert set(consumer.committed([(full, 0)])) == {(queue_name, 0)}
    assert set(client.reset_group(queue_name, full, "earliest")) == {0, 1}
    described = client.describe_group(queue_name, queue=full)
    assert {each.queue for each in described.partitions} == {queue_name}
    client.delete_group(queue_name, queue=full)
    client.disable_queue(full)
    client.enable_queue(full)
    client.disable_queue(full)
    client.delete_queue(full)
    assert queue_name not in {each.name for each in client.list_queues()}
