"""All that use a queue's metadata look for it in one store, and in one table."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for_all

import pytest

from hqueue import SettingsError, StoreUnavailableError
from hqueue.errors import Outcome, UnsupportedFormatError
from hqueue.message_id import MessageID
from hqueue.metadata.managers import (
    LogRange,
    MemoryFields,
    MetadataMigration,
    TopicMetadata,
    TopicMetadataDeletion,
    TopicPersistenceInfo,
    open_migration,
    open_topic_metadata,
)
from hqueue.metadata.managers.migration_state import (
    MigrationStateRecord,
    decode_migration_state,
    encode_migration_state,
)
from hqueue.metadata.ports import ANY, NEW, Record
from tests.support.interposed import Interposed
from tests.support.memory.metadata import MemoryServer, MemorySession
from tests.support.waiting import wait_for

QUEUE = "q"
WAIT_S = 60.0
STORES = ("zookeeper", "hbase", "memory")
INFO = TopicPersistenceInfo((LogRange(0, MessageID.parse("1700000000000-0")),))


class Cluster:
    """A ZooKeeper and a table; each process has settings of its own."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.server = MemoryServer(session_timeout_ms=60_000)
        self.rows = MemoryFields()

    def open(
        self, store: str, *, only: str | None = None, table: str = "a", wait_s: float = WAIT_S
    ) -> tuple[TopicMetadata, MemorySession]:
        session = self.server.open()
        metadata = open_topic_metadata(
            QUEUE,
            session=session,
            root=self.root,
            first=store,
            only=only,
            rows=lambda: self.rows,
            table=table,
            wait_s=wait_s,
        )
        return metadata, session

    def migration(self, store: str, table: str = "a") -> MetadataMigration:
        session = self.server.open()
        return open_migration(
            QUEUE,
            session=session,
            root=self.root,
            first=store,
            rows=lambda: self.rows,
            table=table,
        )

    def record(self, store: str) -> MigrationStateRecord:
        return MigrationStateRecord(self.server.open(), self.root, QUEUE, store, bound=False)


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Cluster:
    return Cluster(f"/{request.node.name}")


def write(metadata: TopicMetadata, topic: str) -> None:
    metadata.persistence.write_topic_persistence_info(topic, INFO, NEW).result(WAIT_S)


def uses(metadata: TopicMetadata) -> list[Callable[[], object]]:
    """What may be done with it: to read, to list, to change, to delete, to say where it is."""
    return [
        lambda: metadata.persistence.read_topic_persistence_info("t").result(WAIT_S),
        lambda: metadata.subscriptions.read_subscriptions("t").result(WAIT_S),
        lambda: list(metadata.persistence.topics()),
        lambda: list(metadata.entries()),
        lambda: metadata.store,
        lambda: write(metadata, "new"),
        lambda: metadata.ownership.delete_owner_info("t", ANY).result(WAIT_S),
        metadata.settle,
    ]


@pytest.mark.parametrize("first", STORES)
@pytest.mark.parametrize("second", STORES)
def test_where_the_first_hub_keeps_topics_no_other_store_is_used(
    cluster: Cluster, first: str, second: str
) -> None:
    hub, _ = cluster.open(first)
    hub.settle()
    other, _ = cluster.open(second)
    if second == first:
        write(other, "t")
        assert list(hub.persistence.topics()) == ["t"]
        return
    for use in uses(other):
        with pytest.raises(SettingsError, match="metadata_store") as caught:
            use()
        assert caught.value.facts["in_force"] == first
        assert caught.value.outcome is Outcome.NOT_APPLIED
    assert not list(hub.entries())


def test_a_change_says_it_as_well_as_a_hub_that_starts(cluster: Cluster) -> None:
    early, _ = cluster.open("zookeeper")
    assert list(early.persistence.topics()) == [], "nothing is there, and nobody said where"
    hub, _ = cluster.open("hbase")
    write(hub, "t")

    def is_refused() -> bool:
        try:
            return list(early.persistence.topics()) != []
        except SettingsError:
            return True

    wait_for(is_refused, "it learns of it while it is open")
    with pytest.raises(SettingsError):
        write(early, "u")
    early.close()
    with pytest.raises(SettingsError):
        early.settle()


def test_of_two_that_say_it_at_once_one_is_right_and_the_other_is_refused(
    cluster: Cluster,
) -> None:
    (zookeeper, one), (hbase, two) = cluster.open("zookeeper"), cluster.open("hbase")
    both_know_nothing = threading.Barrier(2)

    def waiting(
        create: Callable[[Mapping[str, bytes]], Mapping[str, Record]],
    ) -> Callable[[Mapping[str, bytes]], Mapping[str, Record]]:
        def created(values: Mapping[str, bytes]) -> Mapping[str, Record]:
            both_know_nothing.wait(WAIT_S)
            return create(values)

        return created

    for session in (one, two):
        session.records = Interposed(session.records, create=waiting(session.records.create))
    with ThreadPoolExecutor(2) as pool:
        said = [pool.submit(each.settle) for each in (zookeeper, hbase)]
        wait_for_all(said, WAIT_S)
    [error] = [each.exception() for each in said if each.exception() is not None]
    assert isinstance(error, SettingsError)


def test_after_a_move_the_setting_counts_no_more_and_the_move_needs_no_right_one(
    cluster: Cluster,
) -> None:
    hub, _ = cluster.open("zookeeper")
    write(hub, "t")
    assert cluster.migration("hbase").move("hbase") == 1
    for setting in STORES:
        metadata, _ = cluster.open(setting)
        metadata.settle()
        assert (metadata.store, list(metadata.persistence.topics())) == ("hbase", ["t"])


def test_a_store_that_is_named_is_looked_into_and_filled_whatever_is_in_force(
    cluster: Cluster,
) -> None:
    filling, _ = cluster.open("zookeeper", only="hbase")
    write(filling, "t")
    hub, _ = cluster.open("hbase")
    hub.settle()
    assert list(hub.persistence.topics()) == ["t"]
    looking, _ = cluster.open("zookeeper", only="zookeeper")
    assert list(looking.persistence.topics()) == []


def test_of_a_store_in_hbase_one_table_is_used(cluster: Cluster) -> None:
    hub, _ = cluster.open("hbase", table="a")
    hub.settle()
    other, _ = cluster.open("hbase", table="b")
    for use in uses(other):
        with pytest.raises(SettingsError, match="metadata_table") as caught:
            use()
        assert caught.value.facts["in_force"] == "a"
    with pytest.raises(SettingsError):
        cluster.migration("hbase", "b").move("zookeeper")
    with pytest.raises(SettingsError):
        list(cluster.open("hbase", only="hbase", table="b")[0].entries())


def test_nothing_is_moved_into_a_table_that_a_hub_would_not_find(cluster: Cluster) -> None:
    hub, session = cluster.open("zookeeper", table="b")
    write(hub, "t")
    migration = cluster.migration("zookeeper", "a")
    with pytest.raises(StoreUnavailableError, match="writers"):
        migration.move("hbase", drain_ms=200)
    assert migration.state().location.store == "zookeeper"
    write(hub, "u")
    with pytest.raises(SettingsError, match="metadata_table"):
        cluster.migration("zookeeper", "b").clear()
    hub.close()
    session.close()
    assert migration.move("hbase") == 2
    assert migration.state().table == "a"
    late, _ = cluster.open("zookeeper", table="b")
    with pytest.raises(SettingsError, match="metadata_table"):
        late.settle()
    right, _ = cluster.open("zookeeper", table="a")
    assert sorted(right.persistence.topics()) == ["t", "u"]
    migration.move("zookeeper")
    migration.clear()
    assert migration.state().table is None, "nothing is there any more"
    assert cluster.migration("zookeeper", "b").move("hbase") == 2


def test_what_was_in_memory_has_ended_with_its_processes(cluster: Cluster) -> None:
    hub, session = cluster.open("memory")
    hub.settle()
    with pytest.raises(SettingsError):
        cluster.open("zookeeper")[0].settle()
    with pytest.raises(SettingsError):
        cluster.migration("zookeeper").move("hbase")
    hub.close()
    session.close()
    later, _ = cluster.open("zookeeper")
    later.settle()
    assert later.store == "zookeeper"
    with pytest.raises(SettingsError):
        cluster.open("memory")[0].settle()


def test_a_queue_that_is_deleted_leaves_the_choice_to_the_next_of_its_name(
    cluster: Cluster,
) -> None:
    hub, _ = cluster.open("zookeeper")
    write(hub, "t")
    hub.close()
    session = cluster.server.open()
    TopicMetadataDeletion(session, cluster.root, lambda: cluster.rows).delete(QUEUE)
    assert session.records.keys(f"{cluster.root}/regions/{QUEUE}", 1) == []
    cluster.open("hbase")[0].settle()


def test_a_migration_state_that_cannot_be_read_keeps_no_queue_from_being_deleted(
    cluster: Cluster,
) -> None:
    session = cluster.server.open()
    path = f"{cluster.root}/regions/{QUEUE}/metadata/stage"
    session.records.create({path: b"what is this"})
    TopicMetadataDeletion(session, cluster.root, lambda: cluster.rows).delete(QUEUE)
    assert list(session.records.read([path])) == [path]
    with pytest.raises(UnsupportedFormatError):
        cluster.open("hbase")[0].settle()


def test_the_first_migration_state_is_these_bytes(cluster: Cluster) -> None:
    golden = (
        b'{"version": 1, "number": 0, "phase": "stable", "home": ["hbase", 0], "copy": null, '
        b'"left": [], "table": "a", "by": "000000000000"}'
    )
    cluster.open("hbase")[0].settle()
    state, _ = cluster.record("hbase").read()
    assert decode_migration_state(golden, "") == state
    assert encode_migration_state(state)[:-14] == golden[:-14]
