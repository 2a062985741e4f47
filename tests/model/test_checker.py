"""The checker finds what it is there to find: histories with a planted fault each."""

from __future__ import annotations

import pytest

from hqueue.format import rowkey
from hqueue.format.header import encode_header

from .checker import Given, Ledger, ViolationError
from .participants import bodies_of, nonce_of

TIME_MS = 1_000
BASE = TIME_MS << 15


def header(
    name: str, index: int, slot: int, ordinal: int, *, base: int | None = None, count: int = 2
) -> bytes:
    nonce = nonce_of(name, index)
    return encode_header(
        rowkey.encode(0, slot),
        bodies_of(nonce, count),
        base=max(slot, BASE) if base is None else base,
        ordinal=ordinal,
        nonce=nonce,
        published_ms=TIME_MS,
    )


@pytest.fixture
def ledger() -> Ledger:
    """Two batches of two messages each, by one writer."""
    ledger = Ledger()
    ledger.written("w1", 0, header("w1", 0, 0, 0))
    ledger.written("w1", BASE + 2, header("w1", 1, BASE + 2, 2))
    return ledger


def given(index: int, base: int, ordinal: int, name: str = "w1") -> Given:
    return Given(nonce_of(name, index), base, ordinal, base, base + 2)


def test_a_good_history_passes(ledger: Ledger) -> None:
    ledger.returned("w1", nonce_of("w1", 0), BASE, 2, BASE + 2)
    ledger.returned("w1", nonce_of("w1", 1), BASE + 2, 2, BASE + 4)
    ledger.gave("r", given(0, BASE, 0))
    ledger.gave("r", given(1, BASE + 2, 2))
    ledger.check_outcomes()
    ledger.check_orphans([0, BASE + 2])
    ledger.check_reader("r", start=0, cursor=BASE + 4, readable=[0, BASE + 2], expired=0)


def test_a_batch_outside_the_chain(ledger: Ledger) -> None:
    with pytest.raises(ViolationError, match="outside the chain"):
        ledger.written("w2", BASE + 9, header("w2", 0, BASE + 9, 4))


def test_a_wrong_ordinal(ledger: Ledger) -> None:
    with pytest.raises(ViolationError, match="outside the chain"):
        ledger.written("w2", BASE + 4, header("w2", 0, BASE + 4, 5))


def test_ids_that_go_back(ledger: Ledger) -> None:
    with pytest.raises(ViolationError, match="IDs went back"):
        ledger.written("w2", BASE + 4, header("w2", 0, BASE + 4, 4, base=BASE))


def test_ids_that_do_not_carry_the_time(ledger: Ledger) -> None:
    with pytest.raises(ViolationError, match="do not carry the time"):
        ledger.written("w2", BASE + 4, header("w2", 0, BASE + 4, 4, base=BASE + 70))


def test_a_batch_written_twice(ledger: Ledger) -> None:
    with pytest.raises(ViolationError, match="in the log twice"):
        ledger.written("w1", BASE + 4, header("w1", 0, BASE + 4, 4))


def test_a_batch_that_is_lost() -> None:
    with pytest.raises(ViolationError, match="is in the log, and it is not"):
        Ledger().returned("w1", nonce_of("w1", 0), BASE, 2, BASE + 2)


def test_wrong_ids_returned(ledger: Ledger) -> None:
    with pytest.raises(ViolationError, match="learned other IDs"):
        ledger.returned("w1", nonce_of("w1", 0), BASE + 1, 2, BASE + 3)


def test_an_append_that_was_not_applied_and_was(ledger: Ledger) -> None:
    ledger.raised("w1", nonce_of("w1", 1), "not applied")
    with pytest.raises(ViolationError, match="is not applied, and it was"):
        ledger.check_outcomes()


def test_an_outcome_that_need_not_be_unknown(ledger: Ledger) -> None:
    ledger.raised("w1", nonce_of("w1", 7), "unknown")
    with pytest.raises(ViolationError, match="never sent"):
        ledger.check_outcomes()


def test_appends_out_of_order(ledger: Ledger) -> None:
    ledger.written("w2", BASE + 4, header("w2", 1, BASE + 4, 4))
    ledger.written("w2", BASE + 6, header("w2", 0, BASE + 6, 6))
    with pytest.raises(ViolationError, match="reordered"):
        ledger.check_outcomes()


def test_the_newest_header_deleted(ledger: Ledger) -> None:
    ledger.header_deleted(0)
    with pytest.raises(ViolationError, match="newest header"):
        ledger.header_deleted(BASE + 2)


def test_a_link_deleted(ledger: Ledger) -> None:
    with pytest.raises(ViolationError, match="taken out of the chain"):
        ledger.row_deleted(0)


def test_an_orphan_that_stays() -> None:
    ledger = Ledger(orphans_allowed=True)
    ledger.written("w1", 0, header("w1", 0, 0, 0))
    ledger.written("w2", BASE + 9, header("w2", 0, BASE + 9, 4))
    with pytest.raises(ViolationError, match="stayed"):
        ledger.check_orphans([0, BASE + 9])


def test_a_message_given_twice(ledger: Ledger) -> None:
    ledger.gave("r", given(0, BASE, 0))
    with pytest.raises(ViolationError, match="again"):
        ledger.gave("r", given(0, BASE, 0))


def test_messages_given_in_another_order(ledger: Ledger) -> None:
    ledger.gave("r", given(1, BASE + 2, 2))
    with pytest.raises(ViolationError, match="again, or an older one"):
        ledger.gave("r", given(0, BASE, 0))


def test_a_message_given_that_nobody_wrote(ledger: Ledger) -> None:
    with pytest.raises(ViolationError, match="not in the log"):
        ledger.gave("r", given(0, BASE, 0, name="w9"))


def test_a_message_behind_a_cursor(ledger: Ledger) -> None:
    ledger.gave("r", given(1, BASE + 2, 2))
    with pytest.raises(ViolationError, match="never gave"):
        ledger.check_reader("r", start=0, cursor=BASE + 4, readable=[0, BASE + 2], expired=2)


def test_expired_messages_that_are_not_counted(ledger: Ledger) -> None:
    ledger.written("w1", BASE + 4, header("w1", 2, BASE + 4, 4))
    ledger.gave("r", given(0, BASE, 0))
    ledger.gave("r", given(2, BASE + 4, 4))
    with pytest.raises(ViolationError, match="without a word"):
        ledger.check_reader("r", start=0, cursor=BASE + 6, readable=[0, BASE + 4], expired=0)


def test_expired_messages_that_there_were_not(ledger: Ledger) -> None:
    with pytest.raises(ViolationError, match="counted"):
        ledger.check_reader("r", start=0, cursor=BASE + 4, readable=[], expired=5)


def test_after_a_truncation_a_nonce_may_come_again(ledger: Ledger) -> None:
    ledger.truncated()
    ledger.written("w1", 0, header("w1", 0, 0, 0))
    assert ledger.end() == (BASE + 2, 2)
