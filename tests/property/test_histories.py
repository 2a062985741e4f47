"""What a writer remembers of the chain: as much as reading it all would tell."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hqueue import Message
from hqueue.format.cells import encode_bodies
from hqueue.format.header import Bodies
from hqueue.log import history
from hqueue.log.history import History
from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline, drive
from tests.support.chain import Chain

NONCES = [bytes(8), bytes(7) + b"\1", b"\1" + bytes(7), b"\1" * 8, b"abcdefgh", b"efghabcd"]
"""Some that can be seen in the midst of others, one after another."""


def bodies_of(count: int) -> Bodies:
    return encode_bodies([Message("t", b"x")] * count)


def find(known: History, chain: Chain, nonce: bytes, since: int | None) -> int | None:
    deadline = Deadline(SYSTEM_CLOCK, 10_000)
    work = known.find(nonce, since, chain.end, deadline)
    found = drive(work, chain, deadline)
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
        known = History(0)
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
                appended[nonce] = chain.append(bodies_of(count), nonce)
                if kind == "own":
                    known.note(position, nonce, appended[nonce], bodies_of(count))


def test_each_header_is_read_once_and_those_of_its_own_appends_never() -> None:
    chain = Chain()
    known = History(0)
    for n in range(1_000):
        chain.append(bodies_of(1), b"other%03d" % n)
    for n in range(1_000):
        assert find(known, chain, b"mine %03d" % n, 3) is None
        position = chain.end
        known.note(
            position, b"mine %03d" % n, chain.append(bodies_of(1), b"mine %03d" % n), bodies_of(1)
        )
        assert known.end == chain.end
    assert chain.given <= 1_001
    assert all(find(known, chain, b"mine %03d" % n, 3) is not None for n in range(1_000))
    assert chain.given <= 1_001


@pytest.mark.parametrize("others", [0, 1, 4])
def test_what_a_truncation_took_is_not_found(others: int) -> None:
    chain = Chain()
    known = History(0)
    assert find(known, chain, b"mine 000", 0) is None
    position = chain.end
    known.note(position, b"mine 000", chain.append(bodies_of(1), b"mine 000"), bodies_of(1))
    assert find(known, chain, b"mine 000", 0) is not None
    chain.truncate(now=100)
    for n in range(others):
        chain.append(bodies_of(2), b"other%03d" % n)
    assert find(known, chain, b"mine 000", 0) is None
    assert known.end == chain.end
