"""What a program's stderr has of a ZooKeeper that is away: when that begins, and when it ends."""

from __future__ import annotations

import contextlib
import logging

import pytest

from hqueue import Settings
from hqueue.metadata.ports import SessionState
from hqueue.zookeeper import ZooKeeperStore
from tests.support.memory.zookeeper import MemoryZooKeeper
from tests.support.waiting import wait_for
from tests.support.zookeeper_faults import cut, zookeeper_proxy


def test_a_zookeeper_that_is_away_is_said_in_two_lines_however_often_it_is_tried(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    with (
        MemoryZooKeeper() as server,
        zookeeper_proxy(f"127.0.0.1:{server.port}") as proxy,
    ):
        at = f"127.0.0.1:{proxy.port}"
        settings = Settings(zookeeper=at, zookeeper_session_timeout_ms=20_000)
        with contextlib.closing(ZooKeeperStore(settings)) as store:
            store.session.members.primary(store.session.deadline())
            client = next(iter(store.session.members)).client
            with cut(proxy):
                wait_for(lambda: store.session.state is SessionState.SUSPENDED, "it is cut")
                tried: list[object] = []
                connect = client._connection._connect

                def counted(*given: object) -> object:
                    tried.append(given)
                    return connect(*given)

                client._connection._connect = counted
                wait_for(lambda: len(tried) >= 3, "it was tried again")
            wait_for(lambda: store.session.state is SessionState.CONNECTED, "it is back")
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2, said
    assert said[0] == f"the connection to ZooKeeper at {at} was lost"
    assert said[1].startswith(f"ZooKeeper at {at} answers again, after ")
