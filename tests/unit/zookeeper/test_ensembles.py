"""An ensemble of ZooKeeper's servers, one of which is cut off: a session outlives that."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from kazoo.handlers.threading import SequentialThreadingHandler

from hqueue import Settings
from hqueue.zookeeper import ZooKeeperStore
from tests.support.memory.zookeeper import MemoryZooKeeper

SESSION_MS = 9_000


@pytest.mark.parametrize(("servers", "bound_s"), [(1, 9.0), (3, 1.0)])
def test_a_try_to_connect_leaves_time_for_the_other_servers(
    monkeypatch: pytest.MonkeyPatch, servers: int, bound_s: float
) -> None:
    bounds: list[float] = []
    connect = SequentialThreadingHandler.create_connection

    def recorded(handler: Any, address: Any, timeout: float, **given: Any) -> Any:
        bounds.append(timeout)
        return connect(handler, address, timeout=timeout, **given)

    monkeypatch.setattr(SequentialThreadingHandler, "create_connection", recorded)
    with MemoryZooKeeper() as server:
        ensemble = ",".join([f"127.0.0.1:{server.port}"] * servers)
        settings = Settings(zookeeper=ensemble, zookeeper_session_timeout_ms=SESSION_MS)
        with contextlib.closing(ZooKeeperStore(settings)) as store:
            store.session.members.primary(store.session.deadline())
    assert bounds == [pytest.approx(bound_s)] * len(bounds)
    assert bounds
