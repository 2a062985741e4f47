"""Finding the place in a log that so many messages come before."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import pytest

from hqueue import Message
from hqueue.format import rowkey
from hqueue.format.cells import encode_bodies
from hqueue.format.header import encode_header
from hqueue.log.offsets import count_before, id_at
from hqueue.log.ports import Row
from hqueue.log.steps import Work
from hqueue.message_id import MessageID
from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline, drive

REQUESTS_MAX = 40


Result = TypeVar("Result")


class Headers:
    """A partition's headers, and how often they were asked for."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows
        self.requests = 0

    def newest(self, partition: int, at_or_below: int) -> Row | None:
        self.requests += 1
        return next((row for row in reversed(self.rows) if row.slot <= at_or_below), None)

    def headers(self, partition: int, start: int, limit: int) -> list[Row]:
        self.requests += 1
        return [row for row in self.rows if row.slot >= start][:limit]


def log_of(random_: random.Random) -> tuple[list[Row], list[int]]:
    """Batches that came in bursts and after long pauses, and the IDs of their messages."""
    rows, ids = [], []
    slot, now_ms = 0, 1_700_000_000_000
    for _ in range(random_.randrange(1, 60)):
        now_ms += random_.choice([0, 0, 1, 5, 1_000, 3_600_000])
        count, base = random_.randrange(1, 20), max(slot, now_ms << 15)
        bodies, key = encode_bodies([Message("t", b"")] * count), rowkey.encode(0, slot)
        header = encode_header(
            key, bodies, base=base, ordinal=len(ids), nonce=b"12345678", published_ms=now_ms
        )
        rows.append(Row(key, 0, slot, header, {}))
        ids += range(base, base + count)
        slot = base + count
    return rows, ids


def ask(decide: Callable[[Deadline], Work[Result]], headers: Headers) -> Result:
    deadline = Deadline(SYSTEM_CLOCK, 60_000)
    return drive(decide(deadline), headers, deadline)


@pytest.mark.parametrize("seed", range(40))
def test_the_id_at_an_ordinal_has_so_many_messages_before_it(seed: int) -> None:
    rows, ids = log_of(random.Random(seed))
    for ordinal in range(len(ids) + 3):
        headers = Headers(rows)
        found = ask(partial(id_at, 0, ordinal), headers)
        assert sum(i < found for i in ids) == min(ordinal, len(ids))
        assert headers.requests <= REQUESTS_MAX
        assert ask(partial(count_before, 0, found), headers) == min(ordinal, len(ids))


@pytest.mark.parametrize("seed", range(20))
def test_where_messages_were_collected_it_is_the_oldest_that_is_left(seed: int) -> None:
    random_ = random.Random(seed)
    rows, ids = log_of(random_)
    first = random_.randrange(len(rows))
    gone = sum(i < rows[first].slot for i in ids)
    for ordinal in range(len(ids) + 1):
        found = ask(partial(id_at, 0, ordinal), Headers(rows[first:]))
        assert sum(i < found for i in ids[gone:]) == max(0, ordinal - gone)


def test_in_an_empty_log_it_is_the_beginning() -> None:
    assert ask(partial(id_at, 0, 5), Headers([])) == MessageID(0)
