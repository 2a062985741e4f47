"""The registry of a cluster that writes into ZooKeeper where its servers are: HBase's nodes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, TypeVar

from google.protobuf.message import DecodeError

from hqueue.errors import Outcome, StoreUnavailableError
from hqueue.hbase.native.exchanges import Asking
from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.registry import Registry, address_of
from hqueue.runtime.steps import Wait
from hqueue.settings.addresses import Address

__all__ = ["ReadNode", "ZooKeeperRegistry"]

ReadNode = Callable[[str], Wait]
"""Asks for a node of ZooKeeper, by its absolute path: its data, or None if there is none. One
bounded try. Raises `StoreUnavailableError`, and `RequestRefusedError`."""

Result = TypeVar("Result")

_META = "meta-region-server"
_MASTER = "master"
_CLUSTER_ID = "hbaseid"
_ORIGIN = b"\xff"
_MAGIC = b"PBUF"
_LENGTH = struct.Struct(">I")


class ZooKeeperRegistry(Registry):
    """ZooKeeper's view of the cluster. Thread-safe.

    Args:
        read_node: reads a node.
        parent: the node below which HBase's lie.
    """

    def __init__(self, read_node: ReadNode, parent: str) -> None:
        super().__init__()
        self._read_node = read_node
        self._parent = parent.rstrip("/")

    def cluster_id(self) -> Asking[str]:
        return (yield from self._read(_CLUSTER_ID, pb.ClusterId, lambda s: str(s.cluster_id)))

    def _find_meta(self) -> Asking[Address]:
        return (yield from self._read(_META, pb.MetaRegionServer, lambda s: address_of(s.server)))

    def _find_master(self) -> Asking[Address]:
        return (yield from self._read(_MASTER, pb.Master, lambda s: address_of(s.master)))

    def _read(self, name: str, kind: Any, take: Callable[[Any], Result]) -> Asking[Result]:
        """What a node says.

        Raises:
            StoreUnavailableError: ZooKeeper gave no answer, or the node isn't there or is
                malformed.
        """
        path = f"{self._parent}/{name}"
        data: bytes | None = yield self._read_node(path)
        if data is None:
            raise StoreUnavailableError(
                "ZooKeeper lacks a node that HBase creates: check that HBase runs, and that the "
                "setting hbase_znode_parent is HBase's zookeeper.znode.parent",
                outcome=Outcome.NOT_APPLIED,
                path=path,
            )
        try:
            found = take(kind.FromString(_payload(data)))
            if not found:
                raise ValueError("the node is empty")
        except (DecodeError, ValueError) as exc:
            raise StoreUnavailableError(
                "a node of HBase in ZooKeeper is malformed",
                outcome=Outcome.NOT_APPLIED,
                path=path,
            ) from exc
        return found


def _payload(data: bytes) -> bytes:
    """What follows the name of a node's writer, and the mark of protobuf."""
    if data.startswith(_ORIGIN):
        if len(data) < 1 + _LENGTH.size:
            raise ValueError("the node's data is cut off")
        (length,) = _LENGTH.unpack_from(data, 1)
        data = data[1 + _LENGTH.size + length :]
    if not data.startswith(_MAGIC):
        raise ValueError("the node's data is not protobuf")
    return data[len(_MAGIC) :]
