"""Topics' metadata on the command line: shown, taken out, taken in, and checked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import hqueue
from hqueue import MessageID
from hqueue.metadata import Address
from hqueue.metadata.managers import (
    HubInfo,
    LogRange,
    SubscriptionData,
    SubscriptionPreferences,
    SubscriptionState,
    TopicACL,
    TopicMetadata,
    TopicPersistenceInfo,
)
from hqueue.metadata.ports import ANY, NEW
from tests.acceptance.commands import Run

pytestmark = pytest.mark.in_memory

WAIT_S = 60.0
FIRST, LAST = MessageID.parse("1700000000000-0"), MessageID.parse("1700000000000-9")
RANGES = (LogRange(0, FIRST, LAST, 1), LogRange(1, FIRST, None, 2))
INFO = TopicPersistenceInfo(RANGES, TopicACL(publish=["loader-*"]))
DATA = SubscriptionData(
    SubscriptionPreferences(message_bound=10, application={"über": "ß"}),
    SubscriptionState(LAST),
)
OWNER = HubInfo(Address("127.0.0.1", 4_080), "first start")
TOPICS = ("a/b c", "t")


@pytest.fixture(
    params=[
        "hbase",
        pytest.param(
            "zookeeper", marks=pytest.mark.thorough("on HBase the same is in `make check`")
        ),
    ]
)
def metadata(
    request: pytest.FixtureRequest, client: hqueue.Client, queue_name: str
) -> Iterator[TopicMetadata]:
    """Two topics with an owner, ranges and two subscriptions each."""
    with client.topic_metadata(queue_name, store=request.param) as opened:
        asked = []
        for topic in TOPICS:
            asked += [
                opened.persistence.write_topic_persistence_info(topic, INFO, NEW),
                opened.ownership.write_owner_info(topic, OWNER, NEW),
                opened.subscriptions.create_subscription_data(topic, "s1", DATA),
                opened.subscriptions.create_subscription_data(topic, "s/2", DATA),
            ]
        for future in asked:
            future.result(WAIT_S)
        yield opened


def other_of(store: str) -> str:
    return "hbase" if store == "zookeeper" else "zookeeper"


def test_records_are_listed(run: Run, metadata: TopicMetadata, queue_name: str) -> None:
    there = ("metadata", "list", queue_name, "--store", metadata.store)
    ended = run(*there)
    assert ended.code == 0, ended.err
    listed = sorted(tuple(line.split("\t")[:3]) for line in ended.lines)
    assert listed == sorted(
        line
        for topic in ("a%2Fb%20c", "t")
        for line in (
            ("persistence", topic, "-"),
            ("ownership", topic, "-"),
            ("subscription", topic, "s1"),
            ("subscription", topic, "s%2F2"),
        )
    )
    owners = run(*there, "--kind", "ownership", "--json")
    assert [json.loads(line)["topic"] for line in owners.lines] == [*TOPICS]
    assert run(*there, "--kind", "colour").code == 2
    assert run("metadata", "list", queue_name, "--store", "paper").code == 2


def test_a_topics_records_are_shown(run: Run, metadata: TopicMetadata, queue_name: str) -> None:
    store = ("--store", metadata.store)
    shown = [*map(json.loads, run("metadata", "get", queue_name, "t", *store).lines)]
    assert [each["kind"] for each in shown] == [
        "persistence",
        "ownership",
        "subscription",
        "subscription",
    ]
    assert shown[1]["owner"]["incarnation"] == OWNER.incarnation
    one = json.loads(run("metadata", "get", queue_name, "t", "s1", *store).out)
    assert one["preferences"]["application"] == {"über": "ß"}
    nothing = run("metadata", "get", queue_name, "nosuch", *store)
    assert (nothing.code, nothing.out) == (1, b"")


@pytest.mark.in_memory_first
def test_what_one_store_exports_another_imports(
    run: Run, metadata: TopicMetadata, client: hqueue.Client, queue_name: str, tmp_path: Path
) -> None:
    other_store = other_of(metadata.store)
    exported = run("metadata", "export", queue_name, "--store", metadata.store)
    assert (exported.code, len(exported.lines)) == (0, 8), exported.err
    check = ("metadata", "verify", queue_name, "--store", metadata.store, "--against", other_store)
    assert run(*check).code == 5
    assert len(run(*check, "--json").lines) == 6, "owners are the hubs' matter"
    file = tmp_path / "records"
    file.write_bytes(exported.out)
    into = ("metadata", "import", "--store", other_store)
    first = run(*into, str(file))
    assert first.code == 0, first.err
    assert "6 created, 0 unchanged, 0 overwritten, 2 skipped" in first.err
    assert run(*check).code == 0
    assert "0 created, 6 unchanged" in run(*into, stdin=exported.out).err
    with client.topic_metadata(queue_name, store=other_store) as other:
        moved = other.subscriptions.read_subscription_data("t", "s/2").result(WAIT_S)
        assert moved is not None
        assert moved.value == DATA
        assert other.persistence.write_topic_persistence_info(
            "t", TopicPersistenceInfo(RANGES[1:]), ANY
        ).result(WAIT_S)
        ended = run(*check, "--json")
        assert ended.code == 5
        [differs] = map(json.loads, ended.lines)
        assert (differs["kind"], differs["topic"]) == ("persistence", "t")
        refused = run(*into, str(file))
        assert (refused.code, "topic='t'" in refused.err) == (1, True)
        assert "5 unchanged" in refused.err
        assert run(*into, str(file), "--overwrite").code == 0
        assert run(*check).code == 0
        other.subscriptions.delete_subscription_data("t", "s1", ANY).result(WAIT_S)
        backwards = run("metadata", "verify", queue_name, "--store", other_store,
                        "--against", metadata.store, "--json")  # fmt: skip
        [missing] = map(json.loads, backwards.lines)
        assert (missing["subscriber"], missing["problem"]) == (
            "s1",
            f"it is in {metadata.store} only",
        )


def test_lines_that_are_no_records_are_named_and_stop_nothing(
    run: Run, queue_name: str, client: hqueue.Client
) -> None:
    good = {"kind": "persistence", "queue": queue_name, "topic": "t",
            "ranges": {"version": 1, "ranges": []}}  # fmt: skip
    lines = [
        b"no JSON",
        b"[]",
        b'{"kind": "colour"}',
        json.dumps({**good, "topic": 3}).encode(),
        json.dumps({**good, "topic": "u", "ranges": {"version": 2}}).encode(),
        json.dumps({**good, "topic": ""}).encode(),
        json.dumps({**good, "queue": "no/queue"}).encode(),
        json.dumps({"kind": "subscription", "queue": queue_name, "topic": "t"}).encode(),
        b'"' + b"x" * (4 * 1024 * 1024) + b'"',
        json.dumps(good).encode(),
    ]
    ended = run("metadata", "import", "--store", "zookeeper", stdin=b"\n".join(lines))
    assert ended.code == 1
    assert "1 created" in ended.err
    assert "9 refused" in ended.err
    for number in (1, 2, 3, 4, 5, 7, 8, 9):
        assert f"[line={number}" in ended.err, ended.err
    with client.topic_metadata(queue_name, store="zookeeper") as metadata:
        found = metadata.persistence.read_topic_persistence_info("t").result(WAIT_S)
        assert found is not None
        assert found.value == TopicPersistenceInfo()
    elsewhere = run("metadata", "import", "--store", "zookeeper", "--queue", queue_name,
                    stdin=json.dumps({**good, "queue": "other"}).encode())  # fmt: skip
    assert "1 unchanged" in elsewhere.err
    assert run("metadata", "import", "/no/such/file").code == 2


def test_corrupt_records_are_named_and_stop_nothing(
    run: Run, client: hqueue.Client, queue_name: str
) -> None:
    with client.topic_metadata(queue_name, store="zookeeper") as metadata:
        metadata.persistence.write_topic_persistence_info("good", INFO, NEW).result(WAIT_S)
    coordination = client.coordination
    region = f"{coordination.paths.root}/regions/{queue_name}/topics"
    coordination.store.records.create({f"{region}/bad": b'{"version": 9}', f"{region}/x%20": b"?"})
    for command in ("export", "list"):
        ended = run("metadata", command, queue_name, "--store", "zookeeper")
        assert (ended.code, len(ended.lines)) == (5, 1)
        assert f"{region}/bad" in ended.err
    checked = run("metadata", "verify", queue_name, "--store", "zookeeper", "--json")
    assert checked.code == 5
    assert {json.loads(line)["path"] for line in checked.lines} == {
        f"{region}/bad",
        f"{region}/x%20",
    }
    compared = run("metadata", "verify", queue_name, "--against", "hbase", "--json")
    assert len(compared.lines) == 3, "what can't be read is named once"
    assert run("metadata", "get", queue_name, "bad", "--store", "zookeeper").code == 5


def test_hubs_are_listed(run: Run, client: hqueue.Client, queue_name: str) -> None:
    assert run("metadata", "hubs", queue_name).lines == []
    with client.topic_metadata(queue_name) as metadata:
        registered = metadata.hubs.register(OWNER, 3)
        assert run("metadata", "hubs", queue_name).lines == ["127.0.0.1:4080\tfirst start\t3"]
        [shown] = map(json.loads, run("metadata", "hubs", queue_name, "--json").lines)
        assert shown == {"address": "127.0.0.1:4080", "incarnation": "first start", "load": 3}
        registered.close()
