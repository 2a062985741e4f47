"""Logs as they would be if they had been written long ago."""

from __future__ import annotations

import time

import hqueue
from hqueue import Message
from hqueue.format import rowkey
from hqueue.format.cells import encode_bodies
from hqueue.format.header import encode_header
from tests.support.raw import RawTables

__all__ = ["DAY_MS", "put_in_the_past"]

DAY_MS = 86_400_000
NONCE = b"12345678"


def put_in_the_past(
    raw: RawTables,
    queue: hqueue.Queue,
    ages_ms: list[int],
    per_batch: int = 3,
    now_ms: int | None = None,
) -> list[int]:
    """Write a log of batches of such ages as an old writer would have left it.

    The cells carry the timestamps of then, so HBase expires the bodies by itself. Returns the
    batches' bases.
    """
    slot, ordinal, bases = 0, 0, []
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    for number, age_ms in enumerate(ages_ms):
        then_ms = now_ms - age_ms
        base = max(slot, then_ms << 15)
        bodies = encode_bodies([Message("t", b"%d" % number)] * per_batch)
        key = rowkey.encode(0, slot)
        header = encode_header(
            key, bodies, base=base, ordinal=ordinal, nonce=NONCE, published_ms=then_ms
        )
        cells = {b"log:batch": header}
        cells |= {b"message:" + topic: cell for topic, cell in bodies.cells.items()}
        raw.put(queue.name, key, cells, then_ms)
        bases.append(base)
        slot, ordinal = base + bodies.span, ordinal + bodies.count
    return bases
