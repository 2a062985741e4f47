"""The limits of updates: the same changes, built before, and sent without the library."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Mapping, Sequence

from kazoo.client import KazooClient

from hqueue import Settings
from hqueue.errors import HQueueError
from hqueue.hbase.native import NativeStore
from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.regions import Meta, RegionMap
from hqueue.hbase.native.servers import Servers
from hqueue.hbase.native.updates import UNDER_WAY_MAX, multis
from hqueue.hbase.native.zookeeper_registry import ZooKeeperRegistry
from hqueue.hbase.record_cells import encode, version_of
from hqueue.hbase.record_rows import RowUpdate
from hqueue.metadata.fields import FieldRecord, Fields
from hqueue.zookeeper import ZooKeeperNodes

__all__ = ["BarePuts", "BareSets"]

WAIT_S = 120.0
LASTS_MS_MAX = 3_600_000


class BarePuts:
    """Conditional puts of records' rows, natively: as many in a request as the library sends, and
    as many requests under way.

    Args:
        settings: where HBase is.
        rows: whose records are changed.
    """

    def __init__(self, settings: Settings, rows: Sequence[bytes]) -> None:
        settings = dataclasses.replace(settings, request_timeout_ms=LASTS_MS_MAX)
        self._table = settings.metadata_table
        self._servers = Servers(settings)
        registry = ZooKeeperRegistry(
            ZooKeeperNodes(settings).read.asked, settings.hbase_znode_parent
        )
        known = RegionMap(Meta(registry), self._table, 15_000)
        self._regions = self._servers.carry_out(known.regions())
        with contextlib.closing(
            NativeStore(settings, ZooKeeperNodes(settings).read.asked)
        ) as store:
            found = store.fields().read([row.decode() for row in rows])
        self._marks = {
            row: version_of(record.version)
            for row, record in zip(rows, (found[row.decode()] for row in rows), strict=True)
            if isinstance(record, FieldRecord)
        }

    def send(self, fields: Fields) -> float:
        """Change these fields of each record, as the library does; how many a second."""
        puts = [self._put(row, fields) for row in self._marks]
        placed = [(number, self._regions.of(put.key)) for number, put in enumerate(puts)]
        built = [batch.request for batch in multis(puts, placed)]
        start = time.perf_counter()
        answers = self._servers.ask_all(built, self._table, together_max=UNDER_WAY_MAX)
        rate = len(puts) / (time.perf_counter() - start)
        for answer in answers:
            assert not isinstance(answer, HQueueError), answer
            said = pb.MultiResponse.FromString(answer.message)
            assert all(each.processed for each in said.regionActionResult)
        return rate

    def _put(self, row: bytes, fields: Fields) -> RowUpdate:
        old = self._marks[row]
        self._marks[row] = new = old.next()
        return RowUpdate(row, old.cell, encode(new, fields, whole=False))


class BareSets:
    """Conditional sets of nodes by kazoo, all sent before any answer.

    Args:
        zookeeper: where to.
        versions: of the nodes that are changed.
    """

    def __init__(self, zookeeper: str, versions: Mapping[str, int]) -> None:
        self._client = KazooClient(zookeeper)
        self._client.start(WAIT_S)
        self._versions = dict(versions)

    def send(self, value: bytes) -> float:
        """Write this into each node; how many a second."""
        start = time.perf_counter()
        answers = {
            path: self._client.set_async(path, value, version)
            for path, version in self._versions.items()
        }
        for path, answer in answers.items():
            self._versions[path] = answer.get(timeout=WAIT_S).version
        return len(answers) / (time.perf_counter() - start)

    def close(self) -> None:
        self._client.stop()
        self._client.close()
