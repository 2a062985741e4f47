"""Writers that stand still, are away, or know nothing of a move while it goes on."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

import pytest

from hqueue import Outcome, StoreUnavailableError
from hqueue.errors import BadVersionError, MetadataReadOnlyError, UnsupportedFormatError
from hqueue.message_id import MessageID
from hqueue.metadata.fields import FieldChange
from hqueue.metadata.managers import (
    LogRange,
    MemoryFields,
    MetadataLocation,
    MetadataMigration,
    MigrationState,
    Phase,
    Rows,
    SubscriptionData,
    SubscriptionPreferences,
    SubscriptionState,
    TopicMetadata,
    TopicPersistenceInfo,
    open_migration,
    open_topic_metadata,
)
from hqueue.metadata.managers.migration_state import (
    MigrationStateRecord,
    decode_migration_state,
    encode_migration_state,
)
from hqueue.metadata.managers.movable import MovableRecords
from hqueue.metadata.outcomes import PartlyDoneError, partly_done
from hqueue.metadata.ports import ANY, NEW, Change, Version
from hqueue.metadata.steps import Work
from hqueue.runtime.stepwise import stepwise
from tests.support.cancelling import AWAITS_MAX, each_await
from tests.support.memory.metadata import MemoryServer, MemorySession
from tests.support.waiting import wait_for

ROOT, QUEUE = "/hqueue", "q"
STATE_PATH = f"{ROOT}/regions/{QUEUE}/metadata/stage"
LAYOUT = Rows(ROOT, QUEUE)
WAIT_S = 120.0
INFO = TopicPersistenceInfo((LogRange(0, MessageID.parse("1700000000000-0")),))
STATE = SubscriptionState(MessageID.parse("1700000000000-0"))


class Standing(MemoryFields):
    """A store to which a change comes when it may: the process stands still before that."""

    def __init__(self) -> None:
        super().__init__()
        self.may_come = threading.Event()
        self.may_come.set()
        self.waits = threading.Event()
        self.silent = ""
        """The topic whose answer does not come."""

    @stepwise
    def write(self, changes: Mapping[str, FieldChange]) -> Work[dict[str, Version | None]]:
        self.waits.set()
        assert self.may_come.wait(WAIT_S)
        silent = {key for key in changes if self.silent and key.endswith(f"/{self.silent}")}
        heard = {key: changes[key] for key in changes.keys() - silent}
        answers = yield from super().write.steps(heard)
        if silent:
            error = StoreUnavailableError("no answer", outcome=Outcome.UNKNOWN)
            raise partly_done(error, answers | dict.fromkeys(silent, error))
        return answers


class Cluster:
    """A queue's metadata, which lies in HBase at first: writers, and who moves it."""

    def __init__(self) -> None:
        self.server = MemoryServer(session_timeout_ms=60_000)
        self.rows = Standing()
        self.session = self.server.open()

    def writer(self, wait_s: float = WAIT_S) -> tuple[TopicMetadata, MemorySession]:
        session = self.server.open()
        metadata = open_topic_metadata(
            QUEUE,
            session=session,
            root=ROOT,
            first="hbase",
            rows=lambda: self.rows,
            wait_s=wait_s,
        )
        return metadata, session

    @property
    def migration(self) -> MetadataMigration:
        return open_migration(
            QUEUE,
            session=self.server.open(),
            root=ROOT,
            first="hbase",
            rows=lambda: self.rows,
        )

    @property
    def record(self) -> MigrationStateRecord:
        return MigrationStateRecord(self.session, ROOT, QUEUE, "hbase")


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_what_comes_after_the_copy_is_unknown_and_not_in_force(cluster: Cluster) -> None:
    metadata, session = cluster.writer()
    write(metadata, "there", NEW).result(WAIT_S)
    cluster.rows.may_come.clear()
    cluster.rows.waits.clear()
    late = write(metadata, "late", NEW)
    assert cluster.rows.waits.wait(WAIT_S)
    session.expire()
    assert cluster.migration.move("zookeeper") == 1
    cluster.rows.may_come.set()
    with pytest.raises(StoreUnavailableError) as caught:
        late.result(WAIT_S)
    assert caught.value.outcome is Outcome.UNKNOWN
    assert topics(metadata) == ["there"]
    old, _ = cluster.writer()
    assert topics(old) == ["there"]
    write(metadata, "late", NEW).result(WAIT_S)
    assert cluster.migration.clear() == 2


def test_what_is_refused_where_it_does_not_lie_any_more_is_asked_for_again(
    cluster: Cluster,
) -> None:
    metadata, session = cluster.writer()
    version = write(metadata, "t", NEW).result(WAIT_S)
    cluster.rows.may_come.clear()
    cluster.rows.waits.clear()
    late = write(metadata, "t", NEW)
    assert cluster.rows.waits.wait(WAIT_S)
    session.expire()
    cluster.migration.move("zookeeper")
    other, _ = cluster.writer()
    other.persistence.delete_topic_persistence_info("t", ANY).result(WAIT_S)
    cluster.rows.may_come.set()
    assert late.result(WAIT_S) != version
    assert topics(other) == ["t"]


def test_of_several_changes_it_is_known_what_came_of_each_after_a_move_too(
    cluster: Cluster,
) -> None:
    metadata, _ = cluster.writer()
    for store in ("zookeeper", "hbase"):
        cluster.migration.move(store)
    cluster.rows.silent = "b"
    records = records_of(metadata)
    keys = [LAYOUT.ranges(topic) for topic in "ab"]
    with pytest.raises(PartlyDoneError) as caught:
        records.write(dict.fromkeys(keys, FieldChange({"ranges": b"[]"}, NEW)))
    assert caught.value.outcome is Outcome.UNKNOWN
    done, lost = (caught.value.answers[key] for key in keys)
    assert isinstance(lost, StoreUnavailableError)
    assert records.delete({keys[0]: done, keys[1]: ANY}) == {keys[0]: True, keys[1]: False}


def test_a_session_that_ends_harms_no_change_while_nothing_is_moved(cluster: Cluster) -> None:
    metadata, session = cluster.writer()
    cluster.rows.may_come.clear()
    late = write(metadata, "t", NEW)
    assert cluster.rows.waits.wait(WAIT_S)
    session.expire()
    cluster.rows.may_come.set()
    version = late.result(WAIT_S)
    assert write(metadata, "t", version).result(WAIT_S) != version


def test_a_change_that_is_under_way_is_waited_for(cluster: Cluster) -> None:
    metadata, _ = cluster.writer()
    cluster.rows.may_come.clear()
    late = write(metadata, "t", NEW)
    assert cluster.rows.waits.wait(WAIT_S)
    with pytest.raises(StoreUnavailableError) as caught:
        cluster.migration.move("zookeeper", drain_ms=50)
    assert len(caught.value.writers) == 1  # type: ignore[arg-type]
    state = cluster.migration.state()
    assert (state.phase, state.location) == (Phase.STABLE, MetadataLocation("hbase", 0))
    moved: list[int] = []
    moving = threading.Thread(target=lambda: moved.append(cluster.migration.move("zookeeper")))
    moving.start()
    wait_for(lambda: cluster.migration.state().phase is Phase.DRAINING, "it drains")
    cluster.rows.may_come.set()
    late.result(WAIT_S)
    moving.join(WAIT_S)
    assert moved == [1]


def test_a_move_waits_for_nobody_who_is_idle_or_was_closed(cluster: Cluster) -> None:
    idle, _ = cluster.writer()
    reader, _ = cluster.writer()
    closed, _ = cluster.writer()
    write(idle, "a", NEW).result(WAIT_S)
    write(closed, "b", NEW).result(WAIT_S)
    assert topics(reader) == ["a", "b"]
    assert len(cluster.record.writers()) == 2
    cluster.rows.may_come.clear()
    cluster.rows.waits.clear()
    last = write(closed, "c", NEW)
    assert cluster.rows.waits.wait(WAIT_S)
    closed.close()
    assert len(cluster.record.writers()) == 1
    cluster.rows.may_come.set()
    last.result(WAIT_S)
    assert cluster.migration.move("zookeeper") == 3
    for each in (idle, reader):
        wait_for(lambda metadata=each: metadata.store == "zookeeper", "it is known")
        assert topics(each) == ["a", "b", "c"]


def test_what_a_closed_writer_has_under_way_is_not_waited_for(cluster: Cluster) -> None:
    closed, _ = cluster.writer()
    write(closed, "t", NEW).result(WAIT_S)
    cluster.rows.may_come.clear()
    cluster.rows.waits.clear()
    late = write(closed, "late", NEW)
    assert cluster.rows.waits.wait(WAIT_S)
    closed.close()
    assert cluster.migration.move("zookeeper") == 1
    cluster.rows.may_come.set()
    with pytest.raises(StoreUnavailableError) as caught:
        late.result(WAIT_S)
    assert caught.value.outcome is Outcome.UNKNOWN
    fresh, _ = cluster.writer()
    assert topics(fresh) == ["t"]


def test_a_change_waits_for_a_move_no_longer_than_an_operation_may_take(cluster: Cluster) -> None:
    patient, _ = cluster.writer()
    hasty, _ = cluster.writer(wait_s=0.05)
    write(patient, "t", NEW).result(WAIT_S)
    waiting = []

    def ask(step: str, records: int) -> None:
        if step == "comparing" and not records:
            waiting.append(write(patient, "u", NEW))
            with pytest.raises(MetadataReadOnlyError) as caught:
                write(hasty, "v", NEW).result(WAIT_S)
            assert caught.value.outcome is Outcome.NOT_APPLIED
            assert topics(hasty) == ["t"], "reads are answered all the time"

    cluster.migration.move("zookeeper", on_progress=ask)
    waiting[0].result(WAIT_S)
    fresh, _ = cluster.writer()
    assert topics(fresh) == ["t", "u"]


def test_an_update_of_a_part_is_refused_where_it_was_moved_to_a_store_without(
    cluster: Cluster,
) -> None:
    metadata, _ = cluster.writer()
    whole = SubscriptionData(SubscriptionPreferences(), STATE)
    metadata.subscriptions.create_subscription_data("t", "s", whole).result(WAIT_S)
    asked = []

    def update(step: str, records: int) -> None:
        if step == "comparing" and not records:
            part = SubscriptionData(state=STATE)
            asked.append(metadata.subscriptions.update_subscription_data("t", "s", part, ANY))

    cluster.migration.move("zookeeper", on_progress=update)
    with pytest.raises(MetadataReadOnlyError) as caught:
        asked[0].result(WAIT_S)
    assert caught.value.outcome is Outcome.NOT_APPLIED


def test_a_change_that_is_cut_at_any_await_is_under_way_no_more(cluster: Cluster) -> None:
    """As at the end of an event loop, which cancels its tasks."""
    places = itertools.cycle(("zookeeper", "hbase"))
    metadata, _ = cluster.writer()
    records, key = records_of(metadata), LAYOUT.ranges("t")

    async def once(cut: Callable[..., Any]) -> None:
        await cut(records.write.in_loop({key: FieldChange({"ranges": b"[]"}, ANY)}))
        await cut(records.delete.in_loop({key: ANY}))
        await cluster.migration.move.in_loop(next(places), drain_ms=10_000)

    async def cut_at_each() -> None:
        assert 1 < await each_await(once) < AWAITS_MAX

    asyncio.run(asyncio.wait_for(cut_at_each(), WAIT_S))
    write(metadata, "t", NEW).result(WAIT_S)


def test_a_forked_child_is_another_writer(cluster: Cluster) -> None:
    metadata, _ = cluster.writer()
    write(metadata, "t", NEW).result(WAIT_S)
    fence = metadata._fence
    fence.after_fork_in_child()
    write(metadata, "u", NEW).result(WAIT_S)
    assert len(cluster.record.writers()) == 2


def test_of_two_changes_of_the_migration_state_one_counts(cluster: Cluster) -> None:
    record = cluster.record
    state, version = record.read()
    assert (state, version) == (record.first, NEW)
    record.change(state.begun("zookeeper"), version)
    with pytest.raises(BadVersionError):
        record.change(state.begun("zookeeper"), version)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b'{"version": 2}',
        b'{"version": 1, "number": -1, "phase": "stable", "home": ["hbase", 0], "copy": null, '
        b'"left": []}',
        b'{"version": 1, "number": 1, "phase": "odd", "home": ["hbase", 0], "copy": null, '
        b'"left": []}',
        b'{"version": 1, "number": 1, "phase": "stable", "home": [5, 0], "copy": null, "left": []}',
        b'{"version": 1, "number": 1, "phase": "stable", "home": ["hbase", 0], "copy": null, '
        b'"left": [["hbase"]]}',
    ],
)
def test_an_unreadable_migration_state_stops_all_and_is_named(
    cluster: Cluster, data: bytes
) -> None:
    metadata, _ = cluster.writer()
    version = write(metadata, "t", NEW).result(WAIT_S)
    assert cluster.session.records.write({STATE_PATH: Change(data, ANY)})[STATE_PATH] is not None
    asked: list[Callable[[], object]] = [
        lambda: write(metadata, "t", version).result(WAIT_S),
        lambda: cluster.migration.move("zookeeper"),
        lambda: topics(cluster.writer()[0]),
    ]

    def names_it() -> bool:
        try:
            asked[0]()
        except UnsupportedFormatError as exc:
            return exc.path == STATE_PATH and exc.outcome is Outcome.NOT_APPLIED
        except BadVersionError:
            pass  # It was not seen before the change.
        return False

    wait_for(names_it, "it is seen")
    for ask in asked[1:]:
        with pytest.raises(UnsupportedFormatError) as caught:
            ask()
        assert caught.value.path == STATE_PATH


def test_a_migration_state_is_these_bytes() -> None:
    golden = (
        b'{"version": 1, "number": 7, "phase": "draining", "home": ["hbase", 3], '
        b'"copy": ["zookeeper", 6], "left": [["zookeeper", 0]], "by": "000000000000"}'
    )
    left = (MetadataLocation("zookeeper", 0),)
    state = MigrationState(
        7, Phase.DRAINING, MetadataLocation("hbase", 3), MetadataLocation("zookeeper", 6), left
    )
    assert decode_migration_state(golden, "") == state
    own = encode_migration_state(state)
    assert own[: own.index(b'"by"')] == golden[: golden.index(b'"by"')]


def write(metadata: TopicMetadata, topic: str, version: Version) -> Future[Version]:
    return metadata.persistence.write_topic_persistence_info(topic, INFO, version)


def records_of(metadata: TopicMetadata) -> MovableRecords:
    """The records below the managers."""
    return metadata._records


def topics(metadata: TopicMetadata) -> list[str]:
    return sorted(metadata.persistence.topics())
