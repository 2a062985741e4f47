"""Topics' metadata, moved to another store on the command line."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator

import pytest

import hqueue
from hqueue import MessageID
from hqueue.metadata.managers import LogRange, TopicMetadata, TopicPersistenceInfo
from hqueue.metadata.ports import NEW
from tests.acceptance.commands import Run, Start
from tests.support.waiting import wait_for

WAIT_S = 60.0
INFO = TopicPersistenceInfo((LogRange(0, MessageID.parse("1700000000000-0")),))
TOPICS = ("a/b c", "t")
MANY = [f"t{number}" for number in range(2_000)]


@pytest.fixture
def metadata(client: hqueue.Client, queue_name: str) -> Iterator[TopicMetadata]:
    """What a hub has open, with two records."""
    client.create_queue(queue_name, partitions=1)
    with client.topic_metadata(queue_name) as opened:
        write(opened, TOPICS)
        yield opened
    client.delete_queue(queue_name, force=True)


@pytest.mark.in_memory_first
def test_metadata_is_moved_and_what_was_left_is_cleared(
    run: Run, metadata: TopicMetadata, queue_name: str
) -> None:
    migrate = ("metadata", "migrate", queue_name)
    [before] = map(json.loads, run(*migrate).lines)
    assert (before["location"]["store"], before["phase"], before["old_copies"]) == (
        "zookeeper",
        "stable",
        [],
    )
    moved = run(*migrate, "--to", "hbase")
    assert moved.code == 0, moved.err
    assert f"{queue_name}: in force in hbase, 2 records moved." in moved.err
    [after] = map(json.loads, run(*migrate).lines)
    assert (after["location"]["store"], after["old_copies"]) == (
        "hbase",
        [{"store": "zookeeper", "number": 0}],
    )
    check = ("metadata", "verify", queue_name, "--against")
    agreed = run(*check, "zookeeper")
    assert (agreed.code, agreed.out) == (0, b""), agreed.err
    assert run(*check, "hbase").code == 2, "that is where it is"
    assert len(run("metadata", "list", queue_name).lines) == 2
    wait_for(lambda: metadata.store == "hbase", "the hub knows")
    write(metadata, ["new"])
    assert run(*check, "zookeeper").code == 5
    assert "0 records moved" in run(*migrate, "--to", "hbase").err
    cleared = run(*migrate, "--clear")
    assert (cleared.code, "2 records deleted" in cleared.err) == (0, True)
    assert run("metadata", "list", queue_name, "--store", "zookeeper").lines == []
    assert len(run("metadata", "list", queue_name).lines) == 3
    assert "No move is under way." in run(*migrate, "--abandon").err


@pytest.mark.in_memory_first
@pytest.mark.parametrize("given", [(), ("--to", "hbase"), ("--abandon",), ("--clear",)])
def test_a_queue_that_is_not_there_is_named_and_nothing_is_written(
    run: Run, client: hqueue.Client, given: tuple[str, ...]
) -> None:
    ended = run("metadata", "migrate", "nosuch", *given)
    assert (ended.code, ended.out) == (1, b"")
    assert "there is no such queue" in ended.err
    assert client.metadata_migration("nosuch").state().location == ("zookeeper", 0)


@pytest.mark.in_memory_first
def test_what_cannot_be_read_is_not_left_behind(
    run: Run, metadata: TopicMetadata, client: hqueue.Client, queue_name: str
) -> None:
    region = f"{client.coordination.paths.root}/regions/{queue_name}/topics"
    client.coordination.store.records.create({f"{region}/bad": b'{"version": 9}'})
    refused = run("metadata", "migrate", queue_name, "--to", "hbase")
    assert (refused.code, f"{region}/bad" in refused.err) == (5, True)
    [state] = map(json.loads, run("metadata", "migrate", queue_name).lines)
    assert (state["location"]["store"], state["phase"]) == ("zookeeper", "stable")
    write(metadata, ["new"])


@pytest.mark.thorough("a client that is closed in the middle is moved again in `make check`")
def test_a_command_that_is_killed_is_called_again_or_abandoned(
    server: object, start: Start, run: Run, metadata: TopicMetadata, queue_name: str
) -> None:
    write(metadata, MANY)
    migrate = ("metadata", "migrate", queue_name)

    def kill_while(step: str) -> None:
        running = start(*migrate, "--to", "hbase")
        while running.error_line() != f"{step} …":
            pass
        running.kill()

    for step in ("copying", "comparing"):
        kill_while(step)
        [state] = map(json.loads, run(*migrate).lines)
        assert (state["location"]["store"], state["phase"]) == ("zookeeper", step)
        waiting = metadata.persistence.write_topic_persistence_info(step, INFO, NEW)
        wrong = run(*migrate, "--to", "zookeeper")
        assert (wrong.code, "target='hbase'" in wrong.err) == (2, True)
        assert run(*migrate, "--abandon").code == 0
        assert waiting.result(WAIT_S) >= 0
    for number, code in ((signal.SIGTERM, 143), (signal.SIGHUP, 129)):
        running = start(*migrate, "--to", "hbase")
        while running.error_line() != "comparing …":
            pass
        running.signal(number)
        assert running.end().code == code
        [state] = map(json.loads, run(*migrate).lines)
        assert (state["location"]["store"], state["phase"]) == ("zookeeper", "stable"), "abandoned"
    kill_while("copying")
    again = run(*migrate, "--to", "hbase")
    assert again.code == 0, again.err
    assert f"{len(MANY) + 4:,} records moved" in again.err
    assert run("metadata", "verify", queue_name, "--against", "zookeeper").code == 0
    cleared = run(*migrate, "--clear")
    assert cleared.code == 0, cleared.err
    assert run("metadata", "verify", queue_name).code == 0
    assert len(run("metadata", "list", queue_name).lines) == len(MANY) + 4


def write(metadata: TopicMetadata, topics: tuple[str, ...] | list[str]) -> None:
    asked = [
        metadata.persistence.write_topic_persistence_info(topic, INFO, NEW) for topic in topics
    ]
    for future in asked:
        future.result(WAIT_S)
