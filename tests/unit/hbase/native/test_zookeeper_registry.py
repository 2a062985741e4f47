"""Malformed nodes of HBase in ZooKeeper."""

from __future__ import annotations

import pytest

from hqueue import Outcome, Settings, StoreUnavailableError
from hqueue.hbase.native.servers import Servers
from hqueue.hbase.native.zookeeper_registry import ZooKeeperRegistry
from tests.support.registries import AskedRegistry, reading


@pytest.mark.parametrize("node", [b"", b"x", b"\xff", b"\xff\0\0\0\x09ab", b"PBUF", b"PBUF\xff"])
def test_a_node_that_makes_no_sense_says_nothing(node: bytes) -> None:
    servers = Servers(Settings())
    registry = AskedRegistry(servers, ZooKeeperRegistry(reading(lambda path: node), "/hbase"))
    for ask in (registry.meta, registry.master, registry.cluster_id):
        with pytest.raises(StoreUnavailableError) as caught:
            ask()
        assert caught.value.outcome is Outcome.NOT_APPLIED
