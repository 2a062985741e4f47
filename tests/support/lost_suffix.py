"""Logs whose newest batches are gone, as after the loss of power of all servers."""

from __future__ import annotations

import time

import hqueue
from hqueue.format import rowkey
from hqueue.settings.limits import TAIL_TRUST_MS
from tests.support.raw import RawTables

__all__ = ["lose_suffix"]


def lose_suffix(raw: RawTables, queue: hqueue.Queue, batches: int, partition: int = 0) -> int:
    """Take the newest batches of a partition away, for as long as servers take to start at least.
    Returns how many messages are left.
    """
    begin, end = rowkey.encode(partition, 0), rowkey.encode(partition + 1, 0)
    rows = sorted(row for row in raw.rows(queue.name) if begin <= row < end)
    assert len(rows) >= batches, "the log has so many batches"
    for row in rows[len(rows) - batches :]:
        raw.delete_cells(queue.name, row)
    time.sleep(2 * TAIL_TRUST_MS / 1e3)
    return queue.offsets([partition])[0].count
