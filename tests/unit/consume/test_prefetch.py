"""Reading ahead: what is asked for when, and who frees what is held in the store."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hqueue.consume.decode import messages_of
from hqueue.consume.prefetch import FREE_S, PREFETCH_REQUESTS, Prefetcher
from hqueue.consume.scan import Scan
from hqueue.errors import RequestRefusedError
from hqueue.log import Batch
from tests.support.doubles import Rows
from tests.support.gated_rows import BOUND_S, Gate, GatedRows, filled, reader_of
from tests.support.waiting import wait_for


def prefetcher_of(rows: Rows, bytes_max: int = 1) -> Prefetcher:
    reader = reader_of(rows)
    return Prefetcher([reader.open(p, Scan(), bytes_max) for p in rows.rows], reader)


def values_of(answers: Iterator[list[Batch]]) -> dict[int, list[bytes]]:
    values: dict[int, list[bytes]] = {}
    for batches in answers:
        for batch in batches:
            values.setdefault(batch.partition, []).extend(m.value for m in messages_of(batch))
    return values


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=PREFETCH_REQUESTS + 3),
    st.sampled_from([1, 700, 10_000]),
)
def test_all_partitions_come_whole_and_in_order(batches: list[int], bytes_max: int) -> None:
    rows = GatedRows()
    expected = filled(rows, batches)
    assert values_of(prefetcher_of(rows, bytes_max)) == expected
    assert rows.reading_most <= PREFETCH_REQUESTS
    rows.wait_for_freed()


def test_nothing_is_asked_for_before_the_first_is_wanted() -> None:
    rows = GatedRows()
    filled(rows, [3, 3])
    prefetcher_of(rows)
    assert rows.gate.arrived == 0


def test_while_one_answer_is_used_the_next_ones_are_asked_for_and_no_more() -> None:
    rows = GatedRows(passes=1)
    expected = filled(rows, [9] * (PREFETCH_REQUESTS + 1))
    prefetcher = prefetcher_of(rows)
    threads = threading.active_count()
    taken: list[list[Batch]] = []
    taker = threading.Thread(target=lambda: taken.append(next(prefetcher)), daemon=True)
    taker.start()
    rows.gate.wait_for(PREFETCH_REQUESTS)
    # Whichever went first: now the first one's answer is there.
    rows.gate.let(PREFETCH_REQUESTS - 1)
    taker.join(BOUND_S)
    assert len(taken) == 1
    rows.gate.wait_for(PREFETCH_REQUESTS + 1)
    assert threading.active_count() <= threads + PREFETCH_REQUESTS
    rows.gate.let(1_000)
    del expected[0][0]
    assert values_of(prefetcher) == expected


def test_who_closes_during_a_request_does_not_wait_for_it_and_the_store_is_freed() -> None:
    rows = GatedRows(passes=2)
    filled(rows, [9, 9])
    prefetcher = prefetcher_of(rows)
    next(prefetcher)
    rows.gate.wait_for(3)
    prefetcher.close()
    assert rows.opened != rows.closed
    rows.gate.let(1_000)
    rows.wait_for_freed()
    assert list(prefetcher) == []


def test_an_error_is_given_to_the_taker_and_the_other_partitions_stay_readable() -> None:
    rows = GatedRows()
    filled(rows, [1, 1, 1])
    refused = [RequestRefusedError("no")]
    rows.failure = lambda method: refused.pop() if method == "read" and refused else None
    prefetcher = prefetcher_of(rows)
    answers = []
    with pytest.raises(RequestRefusedError):
        answers.extend(iter(prefetcher.__next__, None))
    answers.extend(prefetcher)
    assert len([batch for batches in answers for batch in batches]) == 2


def test_a_child_asks_again_for_what_its_parent_had_asked_for() -> None:
    rows = GatedRows(passes=2)
    expected = filled(rows, [5, 5, 5])
    prefetcher = prefetcher_of(rows)
    read = values_of(iter([next(prefetcher)]))
    rows.gate.wait_for(3)  # Others are on their way, in threads that a child does not have.
    rows.reading, parents_gate, rows.gate = Counter(), rows.gate, Gate(1_000)
    prefetcher.after_fork_in_child()
    for partition, values in values_of(prefetcher).items():
        read.setdefault(partition, []).extend(values)
    assert read == expected
    assert [reader.partition for reader in prefetcher.readers] == [0, 1, 2]
    parents_gate.let(1_000)


def test_a_child_that_only_closes_waits_for_nothing_and_leaves_its_parent_what_that_holds() -> None:
    rows = GatedRows()
    filled(rows, [9] * (PREFETCH_REQUESTS + 1))
    prefetcher = prefetcher_of(rows)
    next(prefetcher)
    wait_for(lambda: not prefetcher.asks, "what was asked for has come")
    assert prefetcher.holds
    child = os.fork()
    if not child:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(round(FREE_S / 2))
        prefetcher.close()
        os._exit(len(rows.closed))
    assert os.waitpid(child, 0)[1] == 0
    prefetcher.close()
    rows.wait_for_freed()
