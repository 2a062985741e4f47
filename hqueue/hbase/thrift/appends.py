"""Writing to a queue's table, through Thrift2."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence

from hqueue.errors import Outcome, QueueDisabledError
from hqueue.format import rowkey
from hqueue.hbase.schema import (
    BATCH,
    LOG,
    MESSAGE,
    PROBE_ROW_PREFIX,
    RECORD,
    RECORD_ROW_PREFIX,
)
from hqueue.hbase.thrift.gateways import Gateways
from hqueue.hbase.thrift.headers import TableHeaders
from hqueue.hbase.thrift.idl import hbase2
from hqueue.hbase.thrift.locations import Locations
from hqueue.hbase.thrift.translation import present, reads_answer
from hqueue.rpc.transports import LARGE_BYTES
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock

__all__ = ["TableAppends"]

_PROBES = 3


class TableAppends(TableHeaders):
    """The log's `AppendPort`, and the `RecordPort`, on one table. Thread-safe."""

    def __init__(
        self,
        gateways: Gateways,
        table: str,
        locations: Locations,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__(gateways, table, locations)
        self._clock = clock

    def put_if_absent(
        self, partition: int, slot: int, header: bytes, cells: Mapping[bytes, bytes]
    ) -> bool:
        key = rowkey.encode(partition, slot)
        values = [hbase2.TColumnValue(LOG, BATCH, header)]
        values += [hbase2.TColumnValue(MESSAGE, topic, cell) for topic, cell in cells.items()]
        put = hbase2.TPut(key, values)
        bulk = max(map(len, cells.values()), default=0) >= LARGE_BYTES
        try:
            return bool(self._call("checkAndPut", key, key, LOG, BATCH, None, put, bulk=bulk))
        except QueueDisabledError as exc:
            # The gateway repeats requests by itself: one may have come in before that.
            exc.outcome = Outcome.UNKNOWN
            raise

    def delete_headers(self, partition: int, slots: Sequence[int], until_ms: int) -> None:
        column = hbase2.TColumn(family=LOG, qualifier=BATCH, timestamp=until_ms)
        deletes = [
            hbase2.TDelete(row=rowkey.encode(partition, slot), columns=[column]) for slot in slots
        ]
        self._call("deleteMultiple", deletes[0].row, deletes)

    def delete_row(self, partition: int, slot: int, topics: Iterable[bytes]) -> None:
        key = rowkey.encode(partition, slot)
        columns = [hbase2.TColumn(family=LOG, qualifier=BATCH)]
        columns += [hbase2.TColumn(family=MESSAGE, qualifier=topic) for topic in topics]
        self._call("deleteSingle", key, hbase2.TDelete(row=key, columns=columns))

    @reads_answer
    def record(self, name: str) -> bytes | None:
        key = RECORD_ROW_PREFIX + name.encode()
        column = hbase2.TColumn(family=LOG, qualifier=RECORD)
        answer = self._call("get", key, hbase2.TGet(row=key, columns=[column]))
        found = present(answer.columnValues)
        return present(found[0].value) if found else None

    def replace_record(self, name: str, old: bytes | None, new: bytes) -> bool:
        key = RECORD_ROW_PREFIX + name.encode()
        put = hbase2.TPut(key, [hbase2.TColumnValue(LOG, RECORD, new)])
        return bool(self._call("checkAndPut", key, key, LOG, RECORD, old, put))

    @reads_answer
    def clock_offset_ms(self) -> tuple[float, float]:
        key = PROBE_ROW_PREFIX + secrets.token_bytes(8)
        column = hbase2.TColumn(family=LOG, qualifier=BATCH)
        probe = hbase2.TPut(key, [hbase2.TColumnValue(LOG, BATCH, b"clock")])
        offsets: list[tuple[float, float]] = []
        for _ in range(_PROBES):
            sent_ms, wall_ms = self._clock.monotonic_ms(), self._clock.wall_ms()
            self._call("put", key, probe)
            half_ms = (self._clock.monotonic_ms() - sent_ms) / 2
            answer = self._call("get", key, hbase2.TGet(row=key, columns=[column]))
            # The server stamped the cell between sending and answering.
            stamp_ms = answer.columnValues[0].timestamp
            offsets.append((stamp_ms - (wall_ms + half_ms), half_ms))
        self._call("deleteSingle", key, hbase2.TDelete(row=key, columns=[column]))
        return min(offsets, key=lambda offset: offset[1])
