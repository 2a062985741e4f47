"""Rows that the store can't read: readers get all before them; errors and findings name them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from hqueue import Message
from hqueue.errors import RowsUnreadableError
from hqueue.format import rowkey
from hqueue.format.cells import encode_bodies
from hqueue.log.ports import Row
from hqueue.log.reader import PartitionReader
from hqueue.log.skew import StoreClock
from hqueue.log.verify import Finding, PartitionVerifier
from hqueue.runtime.clock import Deadline, drive_each
from tests.fuzz.fuzz_store import Rows, SteppedClock
from tests.fuzz.log import chained
from tests.fuzz.rows import Stored

BOUND_MS = 20_000
COUNT = 12
BROKEN = 5


class Damaged(Rows):
    """Answers each request that touches some rows as HBase does whose files it can't read."""

    def __init__(self, rows: Sequence[Stored], headers: set[bytes], bodies: set[bytes]) -> None:
        super().__init__(rows)
        self._broken_headers, self._broken_bodies = headers, bodies

    def headers(self, partition: int, start: int, limit: int) -> list[Row]:
        return self._read(super().headers(partition, start, limit), self._broken_headers)

    def get(self, slots: Sequence[tuple[int, int]], topics: Iterable[str] | None) -> list[Row]:
        return self._read(super().get(slots, topics), self._broken_bodies)

    def page(
        self, first: bytes, beyond: bytes, rows: int, topics: Iterable[str] | None
    ) -> list[Row]:
        found = super().page(first, beyond, rows, topics)
        return self._read(found, self._broken_headers | self._broken_bodies)

    @staticmethod
    def _read(found: list[Row], broken: set[bytes]) -> list[Row]:
        if any(row.key in broken for row in found):
            raise RowsUnreadableError("damaged", answer="IOException: Could not seek")
        return found


@pytest.fixture
def rows() -> list[Stored]:
    return list(chained(0, [encode_bodies([Message("a", b"1")])] * COUNT))


def findings(port: Damaged, clock: SteppedClock) -> list[Finding]:
    verifier = PartitionVerifier(
        0, lambda: Deadline(clock, BOUND_MS), ttl_ms=None, now_ms=StoreClock(clock).now_ms
    )
    *_, result = drive_each(verifier.run(), port, clock)
    return result.findings


def test_a_header_that_the_store_cant_read_ends_the_verification_and_is_named(
    rows: list[Stored],
) -> None:
    clock = SteppedClock(1_700_000_000_000)
    (found,) = findings(Damaged(rows, {rows[BROKEN].key}, set()), clock)
    assert found.row == rows[BROKEN].key.hex()
    assert "can't read it: IOException: Could not seek" in found.problem
    assert "any further" in found.problem


def test_the_first_header_is_named_where_the_log_begins(rows: list[Stored]) -> None:
    (found,) = findings(Damaged(rows, {rows[0].key}, set()), SteppedClock(1_700_000_000_000))
    assert found.row == rowkey.encode(0, 0).hex()


def test_each_body_that_the_store_cant_read_is_named_within_one_bound(rows: list[Stored]) -> None:
    clock = SteppedClock(1_700_000_000_000)
    broken = {row.key for row in rows[BROKEN : BROKEN + 3]}
    found = findings(Damaged(rows, set(), broken), clock)
    assert [each.row for each in found] == sorted(key.hex() for key in broken)
    assert clock.monotonic_ms() < 2 * BOUND_MS


def test_a_reader_gets_all_before_and_its_error_names_the_row(rows: list[Stored]) -> None:
    clock = SteppedClock(1_700_000_000_000)
    port = Damaged(rows, {rows[BROKEN].key}, set())
    reader = PartitionReader(0, port, clock=clock)
    read = 0
    while read < BROKEN:
        read += len(reader.read(Deadline(clock, BOUND_MS)))
    with pytest.raises(RowsUnreadableError) as caught:
        reader.read(Deadline(clock, BOUND_MS))
    assert read == BROKEN
    assert caught.value.row == rows[BROKEN].key.hex()
    assert reader.next_slot == rowkey.decode(rows[BROKEN].key)
