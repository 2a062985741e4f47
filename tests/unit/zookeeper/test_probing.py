"""What a client may do at ZooKeeper, and ZooKeeper's clock."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import hqueue
from hqueue.errors import StoreUnavailableError
from hqueue.zookeeper import probe
from tests.support.memory.zookeeper import MemoryZooKeeper


@pytest.fixture
def zookeeper() -> Iterator[MemoryZooKeeper]:
    with MemoryZooKeeper() as server:
        yield server


def settings_of(server: MemoryZooKeeper, root: str = "/a/b") -> hqueue.Settings:
    return hqueue.Settings(
        zookeeper=f"127.0.0.1:{server.port}", zookeeper_root=root, operation_timeout_ms=3_000
    )


def test_a_node_is_created_below_what_there_is_and_nothing_stays(
    zookeeper: MemoryZooKeeper,
) -> None:
    found = probe(settings_of(zookeeper))
    assert (found.path, found.acl, found.refused) == ("/", ("world:anyone:rwcda",), None)
    assert abs(found.ahead_ms) <= found.error_ms + 1
    assert probe(settings_of(zookeeper)).path == "/"
    assert zookeeper.sessions == 0


def test_the_clock_is_measured(zookeeper: MemoryZooKeeper) -> None:
    zookeeper.ahead_ms = -7_000
    found = probe(settings_of(zookeeper))
    assert found.ahead_ms == pytest.approx(-7_000, abs=found.error_ms + 1)


def test_a_refusal_is_found_and_its_path_is_named(zookeeper: MemoryZooKeeper) -> None:
    zookeeper.closed.add("")
    found = probe(settings_of(zookeeper))
    assert found.refused is not None
    assert "NoAuthError" in str(found.refused.facts["answer"])


def test_a_zookeeper_that_is_away_is_an_error(zookeeper: MemoryZooKeeper) -> None:
    away = settings_of(zookeeper)
    zookeeper.__exit__()
    with pytest.raises(StoreUnavailableError):
        probe(away)
