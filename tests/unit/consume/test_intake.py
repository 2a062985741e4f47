"""Taking what comes in partitions that come and go: in order, bounded, and after errors."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from hqueue.consume.decode import messages_of
from hqueue.consume.intake import FetchedBatches, Intake
from hqueue.consume.prefetch import PREFETCH_REQUESTS
from hqueue.consume.queue_reader import QueueReader
from hqueue.consume.scan import Scan
from hqueue.errors import ClosedError, QueueDisabledError, RequestRefusedError
from hqueue.message_id import MessageID
from tests.support.gated_rows import BOUND_S, GatedRows, GatedStream, filled, reader_of
from tests.support.waiting import wait_for

WAIT_MS = BOUND_S * 1e3


@pytest.fixture
def intake() -> Iterator[Intake[str]]:
    made: Intake[str] = Intake(5)
    yield made
    made.close()


def add(intake: Intake[str], reader: QueueReader) -> None:
    for partition in range(reader.partitions):
        intake.add(f"p{partition}", reader, partition, Scan())


def take(intake: Intake[str], count: int) -> dict[str, list[bytes]]:
    """Take until there are so many messages."""
    values: dict[str, list[bytes]] = {}
    while sum(map(len, values.values())) < count:
        fetched = intake.take(WAIT_MS)
        assert fetched is not None
        for batch in fetched.batches:
            values.setdefault(fetched.key, []).extend(m.value for m in messages_of(batch))
    return values


def test_what_is_there_and_what_comes_is_taken_in_order(intake: Intake[str]) -> None:
    rows = GatedRows()
    expected = filled(rows, [5, 0, 9])
    add(intake, reader_of(rows))
    assert take(intake, 14) == {f"p{number}": values for number, values in expected.items()}
    rows.append(1, b"new")
    rows.append(2, b"newer")
    assert take(intake, 2) == {"p1": [b"new"], "p2": [b"newer"]}


def test_nothing_is_asked_for_when_nothing_is_taken_but_for_what_is_ahead(
    intake: Intake[str],
) -> None:
    rows = GatedRows()
    filled(rows, [20] * (PREFETCH_REQUESTS + 2))
    add(intake, reader_of(rows))
    assert rows.gate.arrived == 0
    assert intake.take(WAIT_MS) is not None
    wait_for(lambda: rows.reading.total() == 0, "what was asked for has come")
    assert rows.gate.arrived <= 2 * PREFETCH_REQUESTS
    assert rows.reading_most <= PREFETCH_REQUESTS


def test_what_is_removed_is_given_no_more_and_freed_though_a_request_is_under_way(
    intake: Intake[str],
) -> None:
    rows = GatedRows(passes=0)
    filled(rows, [3, 3])
    reader = reader_of(rows)
    add(intake, reader)
    assert intake.take(0) is None
    rows.gate.wait_for(2)
    intake.remove(["p0"])
    rows.gate.let(1_000)
    assert take(intake, 3) == {"p1": [b"1-0", b"1-1", b"1-2"]}
    assert intake.take(50) is None
    intake.add("p0", reader, 0, Scan(MessageID.from_int(2_000)))
    assert take(intake, 1) == {"p0": [b"0-2"]}
    intake.close()
    rows.wait_for_freed()


def test_an_error_is_raised_once_and_what_failed_is_asked_for_again(intake: Intake[str]) -> None:
    rows = GatedRows()
    filled(rows, [2, 2])
    refused = [RequestRefusedError("no")]
    rows.failure = lambda method: refused.pop() if method == "read" and refused else None
    add(intake, reader_of(rows))
    came: list[FetchedBatches[str]] = []
    errors: list[RequestRefusedError] = []
    while sum(len(fetched.batches) for fetched in came) < 4:
        try:
            fetched = intake.take(WAIT_MS)
            assert fetched is not None
            came.append(fetched)
        except RequestRefusedError as exc:
            errors.append(exc)
    assert len(errors) == 1
    assert sorted(fetched.key for fetched in came) == ["p0", "p0", "p1", "p1"]
    rows.append(0, b"later")
    assert take(intake, 1) == {"p0": [b"later"]}


def test_a_queue_that_is_disabled_for_a_while_is_waited_for(intake: Intake[str]) -> None:
    rows = GatedRows()
    filled(rows, [1])
    disabled = [QueueDisabledError("disabled")] * 3
    rows.failure = lambda method: disabled.pop() if method == "read" and disabled else None
    add(intake, reader_of(rows))
    assert take(intake, 1) == {"p0": [b"0-0"]}
    assert not disabled


def test_a_queue_that_stays_disabled_is_an_error_after_the_operations_bound(
    intake: Intake[str],
) -> None:
    rows = GatedRows()
    filled(rows, [1])
    rows.failure = lambda method: QueueDisabledError("disabled")
    add(intake, reader_of(rows, operation_timeout_ms=300))
    with pytest.raises(QueueDisabledError):
        take(intake, 1)


def test_who_waits_is_woken_and_who_comes_after_the_end_is_refused(intake: Intake[str]) -> None:
    rows = GatedRows()
    filled(rows, [0])
    reader = reader_of(rows)
    add(intake, reader)
    intake.wake()
    assert intake.take(WAIT_MS) is None
    assert "p0" in intake
    intake.close()
    assert "p0" not in intake
    with pytest.raises(ClosedError):
        intake.take(0)
    with pytest.raises(ClosedError):
        intake.add("p0", reader, 0, Scan())


def test_messages_that_are_gone_are_counted_from_an_ordinal_on(intake: Intake[str]) -> None:
    rows = GatedRows()
    filled(rows, [5])
    del rows.rows[0][:3]
    intake.add("p0", reader_of(rows), 0, Scan())
    first = intake.take(WAIT_MS)
    assert first is not None
    assert first.expired == 0
    intake.remove(["p0"])
    intake.add("p0", reader_of(rows), 0, Scan(MessageID.from_int(1)), 1)
    second = intake.take(WAIT_MS)
    assert second is not None
    assert (second.expired, second.ordinal) == (2, 4)


def test_nobody_waits_for_what_is_being_freed(
    intake: Intake[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = GatedRows()
    filled(rows, [20] * (PREFETCH_REQUESTS + 2))
    add(intake, reader_of(rows))
    assert intake.take(WAIT_MS) is not None
    # What is still asked for is freed by what asks.
    wait_for(lambda: not intake.asks, "what was asked for has come")
    frees, goes_on = threading.Event(), threading.Event()

    def free(stream: GatedStream) -> None:
        frees.set()
        goes_on.wait(BOUND_S)

    with ThreadPoolExecutor(2) as pool, monkeypatch.context() as patched:
        patched.setattr(GatedStream, "close", free)
        removed = pool.submit(intake.remove, ["p0", "p1"])
        try:
            assert frees.wait(BOUND_S)
            assert pool.submit(intake.take, WAIT_MS).result(BOUND_S / 2) is not None
            assert not removed.done()
        finally:
            goes_on.set()


def test_a_log_that_is_short_for_a_while_is_read_on_and_one_that_stays_so_is_reported(
    intake: Intake[str],
) -> None:
    """Of a server that lost the partition, and does not know yet, a log looks short."""
    rows = GatedRows()
    filled(rows, [4])
    known = rows.rows[0][-1]
    start = MessageID.from_int(known.slot + 1_000)
    rows.rows[0].remove(known)
    intake.add("p0", reader_of(rows, operation_timeout_ms=10**6), 0, Scan(start))
    assert intake.take(300) is None
    rows.rows[0].append(known)
    rows.append(0, b"new")
    assert take(intake, 1) == {"p0": [b"new"]}
    intake.remove(["p0"])
    del rows.rows[0][1:]
    intake.add("p0", reader_of(rows, operation_timeout_ms=100), 0, Scan(start))
    for _ in range(2):
        fetched = intake.take(WAIT_MS)
        assert fetched is not None
        assert fetched.short
        assert not fetched.batches
