"""Where the cluster begins: the servers that ZooKeeper names."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError

from hqueue.errors import StoreUnavailableError
from hqueue.hbase.native.protocol import pb
from hqueue.settings.addresses import PORT_MAX, Address

__all__ = ["ReadNode", "Registry"]

ReadNode = Callable[[str], "bytes | None"]
"""Reads a node of ZooKeeper, by its absolute path; None if there is none. One bounded try. Raises
`StoreUnavailableError`."""

_META = "meta-region-server"
_MASTER = "master"
_ORIGIN = b"\xff"
_MAGIC = b"PBUF"
_LENGTH = struct.Struct(">I")


class Registry:
    """ZooKeeper's view of the cluster. Thread-safe.

    What was read is kept until it is doubted: so ZooKeeper may be away for a while.

    Args:
        read_node: reads a node.
        parent: the node below which HBase's lie.
    """

    def __init__(self, read_node: ReadNode, parent: str) -> None:
        self._read_node = read_node
        self._parent = parent.rstrip("/")
        self._known: dict[str, Address] = {}

    def meta(self) -> Address:
        """The region server that has ``hbase:meta``.

        Raises:
            StoreUnavailableError: ZooKeeper gave no answer, or names none.
        """
        return self._server(_META, pb.MetaRegionServer, "server")

    def master(self) -> Address:
        """The active master. Raises as `meta`."""
        return self._server(_MASTER, pb.Master, "master")

    def doubt_meta(self, address: Address) -> None:
        """Ask again before the next use, if this is what is known."""
        self._doubt(_META, address)

    def doubt_master(self, address: Address) -> None:
        """As `doubt_meta`."""
        self._doubt(_MASTER, address)

    def _doubt(self, name: str, address: Address) -> None:
        if self._known.get(name) == address:
            self._known.pop(name, None)

    def _server(self, name: str, message: Any, field: str) -> Address:
        known = self._known.get(name)
        if known is not None:
            return known
        path = f"{self._parent}/{name}"
        data = self._read_node(path)
        if data is None:
            raise StoreUnavailableError("ZooKeeper names no such server of HBase", path=path)
        try:
            server = getattr(message.FromString(_payload(data)), field)
            if not server.host_name or not 1 <= server.port <= PORT_MAX:
                raise ValueError("there is no address in it")
        except (DecodeError, ValueError) as exc:
            raise StoreUnavailableError(
                "a node of HBase's in ZooKeeper makes no sense", path=path
            ) from exc
        found = self._known[name] = Address(server.host_name, server.port)
        return found


def _payload(data: bytes) -> bytes:
    """What stands behind the name of who wrote a node, and what marks it as protobuf."""
    if data.startswith(_ORIGIN):
        if len(data) < 1 + _LENGTH.size:
            raise ValueError("it breaks off")
        (length,) = _LENGTH.unpack_from(data, 1)
        data = data[1 + _LENGTH.size + length :]
    if not data.startswith(_MAGIC):
        raise ValueError("it is no protobuf")
    return data[len(_MAGIC) :]
