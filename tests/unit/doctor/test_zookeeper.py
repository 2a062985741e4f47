"""ZooKeeper: away, without rights, open to everybody, with another time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import hqueue
from hqueue.doctor import Finding, Level, Subject
from hqueue.doctor import zookeeper as checked
from hqueue.doctor.zookeeper import check_zookeeper, check_zookeeper_servers
from hqueue.errors import RequestRefusedError
from tests.support.memory.zookeeper import MemoryZooKeeper


@pytest.fixture
def zookeeper() -> Iterator[MemoryZooKeeper]:
    with MemoryZooKeeper() as server:
        yield server


def examined(server: MemoryZooKeeper, **given: Any) -> list[Finding]:
    settings = hqueue.Settings(
        zookeeper=f"127.0.0.1:{server.port}",
        operation_timeout_ms=2_000,
        connect_timeout_ms=1_000,
        **given,
    )
    subject = Subject(settings)
    return [*check_zookeeper_servers(subject), *check_zookeeper(subject)]


def test_one_that_answers_is_well(zookeeper: MemoryZooKeeper) -> None:
    found = examined(zookeeper)
    assert {each.level for each in found} == {Level.OK}
    assert [each.check for each in found] == ["zookeeper", "zookeeper", "clock"]


def test_one_that_is_away_is_wrong(zookeeper: MemoryZooKeeper) -> None:
    zookeeper.__exit__()
    found = examined(zookeeper)
    assert [each.level for each in found] == [Level.WRONG, Level.WRONG]
    assert "can't be reached" in found[0].found


def test_a_refusal_is_not_taken_for_a_server_that_is_away(
    zookeeper: MemoryZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: object) -> Any:
        raise RequestRefusedError("ZooKeeper's ACL does not let this session do that")

    monkeypatch.setattr(checked, "probe_zookeeper", refused)
    found = examined(zookeeper)[-1]
    assert "zookeeper_acl" in found.advice
    assert "runs" not in found.advice


def test_a_missing_right_is_wrong(zookeeper: MemoryZooKeeper) -> None:
    zookeeper.closed.add("")
    found = examined(zookeeper)[-1]
    assert found.level is Level.WRONG
    assert found.found.startswith("this client may not create nodes below /, whose ACL is world:")
    assert "secure-nodes" in found.advice


def test_open_nodes_are_warned_of_where_anything_is_secured(zookeeper: MemoryZooKeeper) -> None:
    with hqueue.connect(zookeeper=f"127.0.0.1:{zookeeper.port}", zookeeper_root="/a") as client:
        client.coordination.store.records.create({"/a": b"", "/a/b": b""})
    found = examined(zookeeper, hbase_tls=True, zookeeper_root="/a")
    [open_] = [each for each in found if each.level is Level.WARNING]
    assert open_.found == "anyone who reaches ZooKeeper may change /a, and 1 other nodes of 2"
    assert {each.level for each in examined(zookeeper, zookeeper_root="/a")} == {Level.OK}


@pytest.mark.parametrize(
    ("ahead_ms", "level"), [(-60_000, Level.WRONG), (2_000, Level.WARNING), (0, Level.OK)]
)
def test_another_time_is_named(zookeeper: MemoryZooKeeper, ahead_ms: int, level: Level) -> None:
    zookeeper.ahead_ms = ahead_ms
    found = examined(zookeeper)[-1]
    assert (found.check, found.level) == ("clock", level)
    assert ("behind" in found.found) == (ahead_ms < 0)
