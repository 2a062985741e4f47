"""Replication of queues to another cluster, as HBase's shell sets it up: by the master's calls."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from hqueue.hbase.native import NativeStore
from hqueue.hbase.native.master import Master
from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.protocol.idl import load
from hqueue.local import LocalServer
from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline
from hqueue.runtime.stepwise import OnPorts, stepwise
from hqueue.zookeeper import ZooKeeperNodes

__all__ = ["Replication"]

PEER = "standby"
TIMEOUT_MS = 60_000

replication_pb = load(
    """
    syntax = "proto2";
    package hbase.pb;

    message TableName {
      required bytes namespace = 1;
      required bytes qualifier = 2;
    }

    message TableCF {
      optional TableName table_name = 1;
      repeated bytes families = 2;
    }

    message ReplicationPeer {
      optional string clusterkey = 1;
      repeated TableCF table_cfs = 5;
      optional bool replicate_all = 8;
      optional bool serial = 11;
    }

    message ReplicationState {
      enum State {
        ENABLED = 0;
        DISABLED = 1;
      }
      required State state = 1;
    }

    message AddReplicationPeerRequest {
      required string peer_id = 1;
      required ReplicationPeer peer_config = 2;
      required ReplicationState peer_state = 3;
    }

    message PeerRequest {
      required string peer_id = 1;
    }

    message RegionSpecifier {
      enum RegionSpecifierType {
        ENCODED_REGION_NAME = 2;
      }
      required RegionSpecifierType type = 1;
      required bytes value = 2;
    }

    message MoveRegionRequest {
      required RegionSpecifier region = 1;
    }
    """,
    "replication.proto",
)


class Replication(OnPorts):
    """Sets up and switches the replication from one server to another.

    Args:
        server: whose queues are replicated.
        standby: where to.
    """

    def __init__(self, server: LocalServer, standby: LocalServer) -> None:
        self._standby = standby
        settings = server.settings(hbase="native", gateways=())
        nodes = ZooKeeperNodes(settings)
        self._store = NativeStore(settings, nodes.read.asked)
        super().__init__(self._store._servers, self._store._async_servers, SYSTEM_CLOCK)
        self._master = Master(self._store._servers, self._store._registry)

    def close(self) -> None:
        self._store.close()

    def set_scope(self, queue: str) -> None:
        """As ``alter 'queue', {NAME => 'log', REPLICATION_SCOPE => 1}, {NAME => 'message', …}``."""
        self._alter(queue)

    def add_peer(self, *queues: str, serial: bool, peer: str = PEER) -> None:
        """As ``add_peer 'standby', CLUSTER_KEY => …, SERIAL => …, TABLE_CFS => …``."""
        zookeeper = self._standby.settings().zookeeper
        names = [
            replication_pb["TableName"](namespace=b"default", qualifier=queue.encode())
            for queue in queues
        ]
        config = replication_pb["ReplicationPeer"](
            clusterkey=f"{zookeeper}:/hbase",
            table_cfs=[replication_pb["TableCF"](table_name=name) for name in names],
            replicate_all=False,
            serial=serial,
        )
        request = replication_pb["AddReplicationPeerRequest"](
            peer_id=peer,
            peer_config=config,
            peer_state=replication_pb["ReplicationState"](state=0),
        )
        self._procedure("AddReplicationPeer", request)

    def enable_peer(self, peer: str = PEER) -> None:
        self._procedure("EnableReplicationPeer", replication_pb["PeerRequest"](peer_id=peer))

    def disable_peer(self, peer: str = PEER) -> None:
        self._procedure("DisableReplicationPeer", replication_pb["PeerRequest"](peer_id=peer))

    def remove_peer(self, peer: str = PEER) -> None:
        self._procedure("RemoveReplicationPeer", replication_pb["PeerRequest"](peer_id=peer))

    @stepwise
    def move(self, region: bytes) -> Any:
        """Move the region of this name to another server, which the master draws."""
        encoded = region.rstrip(b".").rpartition(b".")[2]
        request = replication_pb["MoveRegionRequest"](
            region=replication_pb["RegionSpecifier"](type=2, value=encoded)
        )
        deadline = Deadline(SYSTEM_CLOCK, TIMEOUT_MS)
        return (
            yield from self._master.ask("MoveRegion", request, pb.CreateTableResponse, "", deadline)
        )

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Holds back what is written meanwhile."""
        self.disable_peer()
        try:
            yield
        finally:
            self.enable_peer()

    @stepwise
    def _alter(self, queue: str) -> Any:
        deadline = Deadline(SYSTEM_CLOCK, TIMEOUT_MS)
        tables = self._store.tables
        schema = yield from tables._get(queue, deadline)
        for family in schema.column_families:
            kept = [pair for pair in family.attributes if pair.first != b"REPLICATION_SCOPE"]
            del family.attributes[:]
            family.attributes.extend(kept)
            family.attributes.add(first=b"REPLICATION_SCOPE", second=b"1")
        yield from tables._modification(queue, schema)(deadline)

    @stepwise
    def _procedure(self, method: str, request: Any) -> Any:
        deadline = Deadline(SYSTEM_CLOCK, TIMEOUT_MS)
        answer = yield from self._master.ask(method, request, pb.CreateTableResponse, "", deadline)
        asked = pb.GetProcedureResultRequest(proc_id=answer.proc_id)
        while True:
            result = yield from self._master.ask(
                "getProcedureResult", asked, pb.GetProcedureResultResponse, "", deadline
            )
            if result.state == pb.GetProcedureResultResponse.FINISHED:
                assert not result.HasField("exception"), result.exception
                return
