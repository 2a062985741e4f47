"""Writing to a queue's table."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence

from hqueue.errors import Outcome, StoreUnavailableError
from hqueue.format import rowkey
from hqueue.hbase.native.exchanges import Asking
from hqueue.hbase.native.faces import Via, carried_out
from hqueue.hbase.native.headers import HEADER, TableHeaders
from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.regions import RegionMap
from hqueue.hbase.native.requests import deletion, has_value
from hqueue.hbase.schema import (
    BATCH,
    LOG,
    MESSAGE,
    PROBE_ROW_PREFIX,
    RECORD,
    RECORD_ROW_PREFIX,
)
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock

__all__ = ["TableAppends"]

_PROBES = 3
_RECORD = pb.Column(family=LOG, qualifier=[RECORD])


class TableAppends(TableHeaders[Via]):
    """The log's `AppendPort`, and the `RecordPort`, on one table. Thread-safe."""

    def __init__(
        self, servers: Via, table: str, regions: RegionMap, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        super().__init__(servers, table, regions)
        self._clock = clock

    @carried_out
    def put_if_absent(
        self, partition: int, slot: int, header: bytes, cells: Mapping[bytes, bytes]
    ) -> Asking[bool]:
        key = rowkey.encode(partition, slot)
        values = [(LOG, BATCH, header)]
        values += [(MESSAGE, topic, cell) for topic, cell in cells.items()]
        return (yield from self._put(key, values, has_value(key, (LOG, BATCH), None)))

    @carried_out
    def delete_headers(self, partition: int, slots: Sequence[int], until_ms: int) -> Asking[None]:
        keys = [rowkey.encode(partition, slot) for slot in slots]
        yield from self._delete_all([deletion(key, [(LOG, BATCH)], until_ms) for key in keys])

    @carried_out
    def delete_row(self, partition: int, slot: int, topics: Iterable[bytes]) -> Asking[None]:
        key = rowkey.encode(partition, slot)
        columns = [(LOG, BATCH), *((MESSAGE, topic) for topic in topics)]
        yield from self._delete(key, deletion(key, columns))

    @carried_out
    def record(self, name: str) -> Asking[bytes | None]:
        cells = yield from self._get(RECORD_ROW_PREFIX + name.encode(), [_RECORD])
        return bytes(cells[0].value) if cells else None

    @carried_out
    def replace_record(self, name: str, old: bytes | None, new: bytes) -> Asking[bool]:
        key = RECORD_ROW_PREFIX + name.encode()
        condition = has_value(key, (LOG, RECORD), old)
        return (yield from self._put(key, [(LOG, RECORD, new)], condition))

    @carried_out
    def clock_offset_ms(self) -> Asking[tuple[float, float]]:
        key = PROBE_ROW_PREFIX + secrets.token_bytes(8)
        offsets: list[tuple[float, float]] = []
        for _ in range(_PROBES):
            sent_ms, wall_ms = self._clock.monotonic_ms(), self._clock.wall_ms()
            yield from self._put(key, [(LOG, BATCH, b"clock")])
            half_ms = (self._clock.monotonic_ms() - sent_ms) / 2
            cells = yield from self._get(key, [HEADER])
            if not cells:
                raise StoreUnavailableError(
                    "the region server's clock can't be measured",
                    outcome=Outcome.NOT_APPLIED,
                    queue=self._table,
                )
            # The server stamped the cell between sending and answering.
            offsets.append((cells[0].timestamp_ms - (wall_ms + half_ms), half_ms))
        yield from self._delete(key, deletion(key, [(LOG, BATCH)]))
        return min(offsets, key=lambda offset: offset[1])
