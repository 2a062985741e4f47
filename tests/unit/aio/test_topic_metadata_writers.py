"""The writers that a program's topic metadata leaves: none for which a move waits in vain."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
from collections.abc import Iterator

import pytest

import hqueue
import hqueue.aio
from hqueue.aio.client import blocking_client
from hqueue.errors import Outcome, StoreUnavailableError
from hqueue.metadata.managers.migration_state import (
    MigrationStateRecord,
    encode_acknowledgement,
)
from hqueue.metadata.ports import NEW
from tests.support.backends import MemoryBackend
from tests.support.metadata_kinds import ranges
from tests.support.waiting import wait_for


@pytest.fixture
def client() -> Iterator[hqueue.aio.Client]:
    with MemoryBackend().connect() as blocking:
        blocking.create_queue("q", partitions=1)
        yield hqueue.aio.Client(blocking)


def writers(client: hqueue.Client) -> dict[str, int]:
    coordination = client.coordination
    record = MigrationStateRecord(coordination.store, coordination.paths.root, "q", "zookeeper")
    return record.writers()


async def write(metadata: hqueue.aio.TopicMetadata, topic: str) -> None:
    await metadata.persistence.write_topic_persistence_info(topic, ranges(1), NEW)


def test_a_move_closes_the_writers_whose_loops_were_closed(client: hqueue.aio.Client) -> None:
    metadata = client.topic_metadata("q")

    async def move(to: str) -> int:
        return await client.metadata_migration("q").move(to, drain_ms=5_000)

    for number, to in enumerate(("hbase", "zookeeper", "hbase")):
        asyncio.run(write(metadata, f"t{number}"))
        assert asyncio.run(move(to)) == number + 1
    asyncio.run(write(metadata, "last"))
    blocking = blocking_client(client)
    assert blocking.metadata_migration("q").move("zookeeper", drain_ms=5_000) == 4
    asyncio.run(metadata.close())


def test_a_dropped_access_in_a_loop_leaves_no_writer(client: hqueue.aio.Client) -> None:
    blocking = blocking_client(client)

    async def use() -> None:
        await write(client.topic_metadata("q"), "t")

    def forget() -> None:
        asyncio.run(use())
        gc.collect()

    with pytest.warns(ResourceWarning, match="topics' metadata was never closed"):
        forget()
    wait_for(lambda: not writers(blocking), "its writer leaves")


def test_a_dropped_access_of_threads_leaves_no_writer_and_what_it_gave_out_works(
    client: hqueue.aio.Client,
) -> None:
    blocking = blocking_client(client)
    kept = [blocking.topic_metadata("q")]
    persistence = kept[0].persistence
    persistence.write_topic_persistence_info("t", ranges(1), NEW).result(20)
    assert len(writers(blocking)) == 1

    def forget() -> None:
        kept.clear()
        gc.collect()

    with pytest.warns(ResourceWarning, match="topics' metadata was never closed"):
        forget()
    wait_for(lambda: not writers(blocking), "its writer leaves")
    persistence.write_topic_persistence_info("u", ranges(1), NEW).result(20)
    assert blocking.metadata_migration("q").move("hbase", drain_ms=0) == 2


def test_an_access_that_changed_nothing_is_dropped_in_silence(
    client: hqueue.aio.Client, recwarn: pytest.WarningsRecorder
) -> None:
    assert blocking_client(client).topic_metadata("q").store == "zookeeper"
    gc.collect()
    assert not [each for each in recwarn if issubclass(each.category, ResourceWarning)]


def test_writers_that_do_not_answer_are_counted_and_named(client: hqueue.aio.Client) -> None:
    blocking = blocking_client(client)
    coordination = blocking.coordination
    record = MigrationStateRecord(coordination.store, coordination.paths.root, "q", "zookeeper")
    mute = {record.writer(f"host-{number}-ab"): encode_acknowledgement(0) for number in (1, 2)}
    coordination.store.records.create(mute)
    with blocking.topic_metadata("q") as metadata:
        metadata.persistence.write_topic_persistence_info("t", ranges(1), NEW).result(20)
        (own,) = writers(blocking).keys() - {"host-1-ab", "host-2-ab"}
        assert own.startswith(f"{socket.gethostname()}-{os.getpid()}-")
        with pytest.raises(StoreUnavailableError, match="2 of 3 hubs") as caught:
            blocking.metadata_migration("q").move("hbase", drain_ms=500)
    assert caught.value.outcome is Outcome.NOT_APPLIED
    assert caught.value.facts["writers"] == ["host-1-ab", "host-2-ab"]
