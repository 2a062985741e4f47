"""Puts with an idempotency key: once, whatever process repeats them, and whenever."""

from __future__ import annotations

import contextlib
import datetime
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

import hqueue
from hqueue import (
    FencedError,
    IdempotencyKeyReusedError,
    InvalidInputError,
    Message,
    MessageID,
    Outcome,
    StoreUnavailableError,
    local,
)
from hqueue.errors import IdempotencyKeyTooOldError
from tests.support.backends import Backend, LossyWay
from tests.support.past import DAY_MS, put_in_the_past
from tests.support.proxy import Fate, Proxies
from tests.support.raw import RawTables

from .running import Program

pytestmark = pytest.mark.in_memory

MakeQueue = Callable[..., hqueue.Queue]
FRESH = ("a new process", "the same")


@pytest.fixture
def reopened(backend: Backend) -> Iterator[Callable[[hqueue.Queue], hqueue.Queue]]:
    """Opens a queue as another process does, which has seen nothing of it."""
    with contextlib.ExitStack() as stack:

        def reopen(queue: hqueue.Queue) -> hqueue.Queue:
            client = stack.enter_context(backend.connect())
            return client.queue(queue.name)

        yield reopen


def values(queue: hqueue.Queue) -> list[str]:
    return [m.value.decode() for m in queue.scan()]


@pytest.mark.in_memory_first
@pytest.mark.parametrize("by", FRESH)
def test_a_repeated_put_returns_the_ids_of_the_first(
    make_queue: MakeQueue, reopened: Callable[[hqueue.Queue], hqueue.Queue], by: str
) -> None:
    queue = make_queue(3)
    since = MessageID(time.time_ns() // 1_000_000)
    batch = [Message("a", b"1"), Message("b", b"2"), Message("a", b"3")]
    first = queue.put(batch, partition=1, idempotency_key="job/1", since=since)
    one = queue.put(Message("a", b"4"), key="user", idempotency_key=b"\xff", since=since)
    queue.put(Message("other", b"5"), partition=1)
    again = queue if by == "the same" else reopened(queue)
    moments = (since, None, since.datetime, since.timestamp, again.claim_epoch("work"), first[0])
    for moment in moments:
        assert again.put(batch, partition=1, idempotency_key="job/1", since=moment) == first
        assert again.put(batch, partition=1, idempotency_key=b"job/1", since=moment) == list(first)
    assert again.put(Message("a", b"4"), key="user", idempotency_key=b"\xff", since=since) == one
    assert sorted(values(queue)) == ["1", "2", "3", "4", "5"]


def test_a_record_batch_and_its_messages_are_the_same_under_an_idempotency_key(
    make_queue: MakeQueue,
) -> None:
    queue = make_queue()
    rows = [("a", b"1"), ("b", b"2"), ("a", b"3")]
    arrow = pa.record_batch(
        {"topic": [topic for topic, _ in rows], "value": [value for _, value in rows]}
    )
    first = queue.put(arrow, partition=0, idempotency_key="t")
    assert queue.put([Message(*row) for row in rows], partition=0, idempotency_key="t") == first
    assert values(queue) == ["1", "2", "3"]


def test_the_same_idempotency_key_in_another_partition_is_another_put(
    make_queue: MakeQueue,
) -> None:
    queue = make_queue(2)
    for partition in (0, 1, 0, 1):
        queue.put(Message("a", b"1"), partition=partition, idempotency_key="t")
    assert values(queue) == ["1", "1"]


@pytest.mark.parametrize("by", FRESH)
def test_an_idempotency_key_with_other_messages_is_refused(
    make_queue: MakeQueue, reopened: Callable[[hqueue.Queue], hqueue.Queue], by: str
) -> None:
    queue = make_queue()
    queue.put([Message("a", b"1"), Message("a", b"2")], partition=0, idempotency_key="t")
    again = queue if by == "the same" else reopened(queue)
    for other in ([("a", b"1")], [("a", b"2"), ("a", b"1")], [("a", b"1"), ("b", b"2")]):
        with pytest.raises(IdempotencyKeyReusedError) as caught:
            again.put([Message(*row) for row in other], partition=0, idempotency_key="t")
        assert caught.value.outcome is Outcome.NOT_APPLIED
        assert caught.value.facts == {"count": len(other), "count_before": 2}
    assert values(queue) == ["1", "2"]


@pytest.mark.in_memory_first
def test_an_idempotency_key_that_another_put_a_moment_ago_stands_for_its_messages(
    make_queue: MakeQueue, reopened: Callable[[hqueue.Queue], hqueue.Queue]
) -> None:
    queue = make_queue()
    other = reopened(queue)
    for n in range(3):
        # The one that comes second knows the log's end as it was before the first.
        other.put(Message("a", b"before"), partition=0, idempotency_key=f"before {n}")
        first = queue.put(Message("a", b"%d" % n), partition=0, idempotency_key=f"{n}")
        if n == 1:
            again = other.put(Message("a", b"%d" % n), partition=0, idempotency_key=f"{n}")
            assert again == first
        else:
            with pytest.raises(IdempotencyKeyReusedError) as caught:
                other.put(Message("a", b"another"), partition=0, idempotency_key=f"{n}")
            assert caught.value.outcome is Outcome.NOT_APPLIED
    assert values(queue) == ["before", "0", "before", "1", "before", "2"]


def test_what_is_no_idempotency_key_is_refused_before_anything_is_sent(
    make_queue: MakeQueue,
) -> None:
    queue = make_queue(2)
    message = Message("a", b"1")
    for wrong in ("", b"", 7, ["t"]):
        with pytest.raises(InvalidInputError, match="an idempotency key must be"):
            queue.put(message, partition=0, idempotency_key=wrong)  # type: ignore[call-overload]
    with pytest.raises(InvalidInputError, match="needs a partition or a key"):
        queue.put(message, idempotency_key="t")
    with pytest.raises(InvalidInputError, match="give the key"):
        queue.put(message, partition=0, since=0)
    with pytest.raises(InvalidInputError, match="time zone"):
        queue.put(message, partition=0, idempotency_key="t", since=datetime.datetime(2024, 1, 1))
    for name, number in (("", 0), ("a b", 0), ("work", -1), ("work", True), ("work", 2**63)):
        with pytest.raises(InvalidInputError):
            queue.claim_epoch(name, number)
    assert values(queue) == []


@pytest.mark.in_memory_first
@pytest.mark.parametrize("fate", [Fate.LOSE_ANSWER, Fate.LOSE_REQUEST, Fate.HOLD])
def test_a_put_that_failed_is_finished_by_repeating_it(
    lossy: LossyWay,
    make_queue: MakeQueue,
    reopened: Callable[[hqueue.Queue], hqueue.Queue],
    fate: Fate,
) -> None:
    queue = make_queue()
    with lossy.connect(request_timeout_ms=500, operation_timeout_ms=1_500) as client:
        behind = client.queue(queue.name)
        behind.put(Message("a", b"0"), partition=0, idempotency_key="0")
        sent: list[str] = []

        def cut_off(method: str) -> Fate:
            """The put has this fate, and nothing after it comes through."""
            if not sent and method != "put_if_absent":
                return Fate.PASS
            sent.append(method)
            return fate if len(sent) == 1 else Fate.LOSE_REQUEST

        lossy.set_fate(cut_off)
        with pytest.raises(StoreUnavailableError) as caught:
            behind.put(Message("a", b"1"), partition=0, idempotency_key="1")
        assert caught.value.outcome is Outcome.UNKNOWN
        successor = reopened(queue).put(Message("a", b"1"), partition=0, idempotency_key="1")
        lossy.deliver()  # What was held comes now, behind the successor.
        lossy.set_fate(lambda _: Fate.PASS)
        assert behind.put(Message("a", b"1"), partition=0, idempotency_key="1") == successor
    assert values(queue) == ["0", "1"]


@pytest.mark.thorough("a dozen processes, 15 s")
@pytest.mark.in_memory_first
def test_a_program_that_is_killed_and_started_again_puts_each_batch_once(
    make_queue: MakeQueue, process_environment: dict[str, str]
) -> None:
    queue = make_queue(3)
    batches = 120
    told: dict[int, str] = {}
    for kill_after in (0, 1, 7, 30, 31, 80, None):
        with Program("put_once", queue.name, "w", batches, environment=process_environment) as run:
            run.await_ready()
            run.begin()
            lines = run.lines() if kill_after is None else run.lines(kill_after)
            for n, line in enumerate(lines):
                assert told.setdefault(n, line) == line, "a repeated put has the first one's IDs"
    assert len(told) == batches
    expected = [f"{n}:{k}" for n in range(batches) for k in range(n % 4 + 1)]
    found = values(queue)
    assert sorted(found) == sorted(expected)
    for partition in range(3):
        numbers = [int(m.value.decode().partition(":")[0]) for m in queue.scan(partition=partition)]
        assert numbers == sorted(numbers), "in the order of the first puts"


@pytest.mark.in_memory_first
def test_processes_that_put_the_same_at_once_put_it_once(
    make_queue: MakeQueue, process_environment: dict[str, str]
) -> None:
    queue = make_queue(2)
    with contextlib.ExitStack() as stack:
        programs = [
            stack.enter_context(
                Program("put_once", queue.name, "w", 60, environment=process_environment)
            )
            for _ in range(3)
        ]
        for program in programs:
            program.await_ready()
        for program in programs:
            program.begin()
        results = [program.result() for program in programs]
    assert results[0] == results[1] == results[2]
    assert len(values(queue)) == sum(n % 4 + 1 for n in range(60))


@pytest.mark.in_memory_first
def test_a_process_that_stood_still_finds_what_its_successor_put(
    make_queue: MakeQueue, process_environment: dict[str, str]
) -> None:
    queue = make_queue(2)
    with contextlib.ExitStack() as stack:
        zombie, successor = (
            stack.enter_context(
                Program("put_once", queue.name, "w", 60, environment=process_environment)
            )
            for _ in range(2)
        )
        zombie.await_ready()
        successor.await_ready()
        zombie.begin()
        started = list(zombie.lines(10))
        with zombie.paused():
            successor.begin()
            whole = successor.result()
        assert started + zombie.result() == whole
    assert len(values(queue)) == sum(n % 4 + 1 for n in range(60))


@pytest.mark.in_memory_first
def test_threads_that_put_the_same_idempotency_key_put_it_once(make_queue: MakeQueue) -> None:
    queue = make_queue(2)
    with ThreadPoolExecutor(8) as pool:
        jobs = [
            pool.submit(queue.put, Message("a", b"%d" % n), partition=n % 2, idempotency_key=str(n))
            for n in range(20)
            for _ in range(4)
        ]
        ids = [job.result() for job in jobs]
    assert all(len(set(ids[at : at + 4])) == 1 for at in range(0, 80, 4))
    assert sorted(map(int, values(queue))) == list(range(20))


def test_a_search_over_collected_headers_is_refused(make_queue: MakeQueue, raw: RawTables) -> None:
    queue = make_queue(ttl="1d")
    bases = put_in_the_past(raw, queue, [9 * DAY_MS, 8 * DAY_MS, 7 * DAY_MS, 1_000])
    first = sorted(key for key in raw.rows(queue.name) if key[0] != 0xFF)[0]
    raw.delete_cells(queue.name, first)
    with pytest.raises(IdempotencyKeyTooOldError) as caught:
        queue.put(
            Message("a", b"1"), partition=0, idempotency_key="t", since=MessageID.from_int(bases[0])
        )
    assert caught.value.outcome is Outcome.NOT_APPLIED
    assert values(queue) == ["3"] * 3
    since = MessageID.from_int(bases[2])
    ids = {
        queue.put(Message("a", b"1"), partition=0, idempotency_key="t", since=moment)
        for moment in (since, None)
    }
    assert len(ids) == 1
    assert values(queue) == ["3"] * 3 + ["1"]


@pytest.mark.in_memory_first
def test_a_search_walks_through_many_headers_once(
    server: local.LocalServer, make_queue: MakeQueue
) -> None:
    queue = make_queue()
    for n in range(1_203):
        queue.put(Message("a", b"%d" % n), partition=0)
    with Proxies(server) as proxies, hqueue.connect(proxies.settings()) as client:
        behind = client.queue(queue.name)
        behind.put(Message("a", b"0"), partition=0, idempotency_key="0")
        walked = proxies.answer_bytes
        assert walked > 1_203 * 50
        for n in range(10):
            behind.put(Message("a", b"%d" % n), partition=0, idempotency_key=str(n))
            queue.put(Message("a", b"another's"), partition=0)
        assert proxies.answer_bytes - walked < walked / 20, "only what is new"
    assert len(list(queue.scan())) == 1_203 + 10 + 10


@pytest.mark.in_memory_first
def test_a_truncated_queue_takes_the_idempotency_keys_with_it(
    client: hqueue.Client, make_queue: MakeQueue
) -> None:
    queue = make_queue()
    since = queue.claim_epoch("work")
    before = queue.put(Message("a", b"1"), partition=0, idempotency_key="t", since=since)
    client.truncate_queue(queue.name)
    after = queue.put(Message("a", b"1"), partition=0, idempotency_key="t", since=since)
    assert after > before
    assert queue.put(Message("a", b"1"), partition=0, idempotency_key="t", since=since) == after
    assert queue.claim_epoch("work") > since
    assert values(queue) == ["1"]


@pytest.mark.in_memory_first
def test_an_epoch_is_claimed_once_and_the_next_one_fences_it(
    make_queue: MakeQueue, reopened: Callable[[hqueue.Queue], hqueue.Queue]
) -> None:
    queue = make_queue()
    other = reopened(queue)
    first = queue.claim_epoch("work", 3)
    assert other.claim_epoch("work", 3) == first == queue.claim_epoch("work", 3)
    assert other.claim_epoch("another") >= first
    second = other.claim_epoch("work", 4)
    assert second >= first
    with pytest.raises(FencedError):
        queue.claim_epoch("work", 3)
    assert queue.claim_epoch("work", 4) == second


@pytest.mark.in_memory_first
def test_threads_that_claim_an_epoch_at_once_get_the_same(make_queue: MakeQueue) -> None:
    queue = make_queue()
    with ThreadPoolExecutor(8) as pool:
        for number in range(5):
            started = list(pool.map(lambda _: queue.claim_epoch("work", number), range(8)))  # noqa: B023
            assert len(set(started)) == 1
    assert list(queue.scan()) == []
