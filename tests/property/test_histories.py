"""What a writer remembers of the chain: as much as reading it all would tell."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hqueue import Message
from hqueue.format import encode_bodies, encode_header, rowkey
from hqueue.log import LogPosition, history
from hqueue.log.history import History
from hqueue.log.ports import Row
from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline

NONCES = [bytes(8), bytes(7) + b"\1", b"\1" + bytes(7), b"\1" * 8, b"abcdefgh", b"efghabcd"]
"""Some that can be seen in the midst of others, one after another."""


class Chain:
    """A partition's headers, as a port that counts the rows it gives."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.given = 0
        self.end = LogPosition(0, 0)
        self.now = 0

    def truncate(self, now: int) -> None:
        """Take all away; what comes has later IDs."""
        self.rows, self.end, self.now = [], LogPosition(0, 0), now

    def append(self, nonce: bytes, count: int) -> int:
        slot, ordinal = self.end
        bodies = encode_bodies([Message("t", b"x")] * count)
        key = rowkey.encode(0, slot)
        base = max(slot, self.now) + 3
        header = encode_header(key, bodies, base=base, ordinal=ordinal, nonce=nonce, published_ms=1)
        self.rows.append(Row(key, 0, slot, header, {}))
        self.end = LogPosition(base + count, ordinal + count)
        return base

    def newest(self, partition: int, at_or_below: int) -> Row | None:
        at = bisect_right(self.rows, at_or_below, key=lambda row: row.slot)
        return self.rows[at - 1] if at else None

    def headers(self, partition: int, start: int, limit: int) -> list[Row]:
        at = bisect_left(self.rows, start, key=lambda row: row.slot)
        self.given += len(self.rows[at : at + limit])
        return self.rows[at : at + limit]


def find(known: History, chain: Chain, nonce: bytes, since: int | None) -> int | None:
    found = known.find(nonce, since, chain.end, Deadline(SYSTEM_CLOCK, 10_000))
    return None if found is None else found.base


steps = st.lists(
    st.tuples(
        st.sampled_from(["others", "own", "search", "search all"]),
        st.sampled_from(NONCES),
        st.integers(1, 4),
        st.integers(0, 100),
    ),
    max_size=60,
)


@given(steps, st.sampled_from([2, 7, 1 << 18]), st.sampled_from([1, 3, 500]))
def test_a_search_finds_what_was_appended_since_its_beginning(
    steps: list[tuple[str, bytes, int, int]], remembered: int, walked: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history, "REMEMBERED_MAX", remembered)
        patch.setattr(history, "WALKED_HEADERS", walked)
        chain = Chain()
        known = History(0, chain)
        appended: dict[bytes, int] = {}
        for kind, nonce, count, since in steps:
            if kind in ("search", "search all"):
                found = find(known, chain, nonce, since if kind == "search" else None)
                base = appended.get(nonce)
                if base is None:
                    assert found is None
                elif kind == "search all" or base + 1 > since:
                    assert found == base
                else:  # It may be remembered nevertheless.
                    assert found in (None, base)
                assert found is not None or known.end == chain.end
            elif nonce not in appended:
                position = chain.end
                appended[nonce] = chain.append(nonce, count)
                if kind == "own":
                    bodies = encode_bodies([Message("t", b"x")] * count)
                    known.note(position, nonce, appended[nonce], bodies)


def test_each_header_is_read_once_and_those_of_its_own_appends_never() -> None:
    chain = Chain()
    known = History(0, chain)
    bodies = encode_bodies([Message("t", b"x")])
    for n in range(1_000):
        chain.append(b"other%03d" % n, 1)
    for n in range(1_000):
        assert find(known, chain, b"mine %03d" % n, 3) is None
        position = chain.end
        known.note(position, b"mine %03d" % n, chain.append(b"mine %03d" % n, 1), bodies)
        assert known.end == chain.end
    assert chain.given <= 1_001
    assert all(find(known, chain, b"mine %03d" % n, 3) is not None for n in range(1_000))
    assert chain.given <= 1_001


@pytest.mark.parametrize("others", [0, 1, 4])
def test_what_a_truncation_took_is_not_found(others: int) -> None:
    chain = Chain()
    known = History(0, chain)
    assert find(known, chain, b"mine 000", 0) is None
    position = chain.end
    known.note(
        position, b"mine 000", chain.append(b"mine 000", 1), encode_bodies([Message("t", b"x")])
    )
    assert find(known, chain, b"mine 000", 0) is not None
    chain.truncate(now=100)
    for n in range(others):
        chain.append(b"other%03d" % n, 2)
    assert find(known, chain, b"mine 000", 0) is None
    assert known.end == chain.end
