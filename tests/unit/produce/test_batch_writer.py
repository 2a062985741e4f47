"""Who writes a producer's batches: tasks of the process's loop, threads for what may block, and
those that wait where nothing else does.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hqueue.errors import (
    BufferFullError,
    HQueueError,
    InvalidInputError,
    StoreUnavailableError,
)
from hqueue.message_id import MessageID, MessageIDs
from hqueue.produce import batch_writer
from hqueue.produce.buffer import BatchingBuffer
from hqueue.produce.delivery import Delivery, PendingBatch
from hqueue.runtime import ending
from hqueue.runtime.alarm import needed_loop
from tests.support.interrupting import each_interruption, each_line
from tests.support.waiting import wait_for

LONG_MS = 60_000
SOON_S = 30.0


class Log:
    """Notes what is written, where, and how much at a time."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.threads: set[str] = set()
        self.together: Counter[int | None] = Counter()
        self.most = 0
        self.failure: BaseException | None = None
        self.going_on: asyncio.Event | None = None

    def write(self, batch: PendingBatch[int]) -> MessageIDs:
        self.threads.add(threading.current_thread().name)
        self.values += [value for _, value, _, _ in batch.taken]
        return MessageIDs(1 + len(self.values) - len(batch.taken), len(batch.taken))

    async def write_in_loop(self, batch: PendingBatch[int]) -> MessageIDs:
        self.together[batch.target] += 1
        assert batch.target is None or self.together[batch.target] == 1
        self.most = max(self.most, self.together.total())
        try:
            await asyncio.sleep(0.001)
            if self.going_on is not None:
                await self.going_on.wait()
            if self.failure is not None:
                raise self.failure
            return self.write(batch)
        finally:
            self.together[batch.target] -= 1

    def buffer(self, targets: int = 4, **options: Any) -> BatchingBuffer[int]:
        return BatchingBuffer(self.write, targets, write_in_loop=self.write_in_loop, **options)


def test_tasks_write_each_target_s_batches_in_order_and_so_many_at_a_time() -> None:
    log = Log()
    before = set(threading.enumerate())
    buffer = log.buffer(8, linger_ms=0, appends_max=3, batch_messages_max=2)
    for n in range(200):
        buffer.take("t", b"%d" % n, None, n % 8, None)
    assert buffer.flush(SOON_S)
    for target in range(8):
        own = [int(value) for value in log.values if int(value) % 8 == target]
        assert own == list(range(target, 200, 8))
    assert log.threads == {"hqueue-loop"}
    assert 1 < log.most <= 3
    begun = {each.name for each in set(threading.enumerate()) - before}
    assert begun <= {"hqueue-loop", "hqueue-loop-call"}
    assert buffer.close(SOON_S)


def test_what_lingers_is_written_in_its_time_and_a_flush_writes_at_once() -> None:
    log = Log()
    buffer = log.buffer(linger_ms=30)
    assert buffer.take("t", b"1", None, 0, None).result(SOON_S)
    buffer = log.buffer(linger_ms=LONG_MS)
    waiting = buffer.take("t", b"2", None, 0, None)
    assert not waiting.done()
    assert buffer.flush(SOON_S)
    assert log.values == [b"1", b"2"]
    assert buffer.close(SOON_S)


@pytest.mark.parametrize(
    "failure", [StoreUnavailableError("away"), ValueError("no"), SystemExit(3)]
)
def test_whatever_writing_raises_reaches_the_senders_and_later_batches_go_on(
    failure: BaseException,
) -> None:
    log, called = Log(), list[object]()
    log.failure = failure
    buffer = log.buffer(linger_ms=0)
    lost = buffer.take("t", b"1", None, 0, lambda *answer: called.append(answer))
    assert lost.exception(SOON_S) is failure
    assert buffer.flush(SOON_S)
    assert called == [(None, failure)]
    log.failure = None
    assert buffer.take("t", b"2", None, 0, None).result(SOON_S)
    assert buffer.close(SOON_S)


def test_callbacks_run_in_threads_before_the_next_batch_of_their_target_and_may_raise() -> None:
    log, going_on = Log(), threading.Event()
    order: list[tuple[str, object]] = []

    def block(message_id: object, error: object) -> None:
        order.append((threading.current_thread().name, message_id))
        assert going_on.wait(SOON_S)
        raise SystemExit(4)

    buffer = log.buffer(linger_ms=0)
    first = buffer.take("t", b"1", None, 0, block)
    assert first.result(SOON_S)
    wait_for(lambda: order, "it is called back")
    second = buffer.take("t", b"2", None, 0, None)
    other = buffer.take("t", b"other", None, 1, None)
    assert other.result(SOON_S), "a callback that blocks holds up its own target alone"
    assert not second.done()
    assert not buffer.flush(0.01)
    going_on.set()
    assert second.result(SOON_S)
    assert buffer.close(SOON_S)
    assert [thread for thread, _ in order] == ["hqueue-producer"]


def test_a_callback_can_t_wait_for_its_own_producer() -> None:
    log, asked = Log(), list[str]()

    def ask(*_: object) -> None:
        try:
            buffer.flush()
        except InvalidInputError as exc:
            asked.append(str(exc))

    buffer = log.buffer(linger_ms=0)
    buffer.take("t", b"1", None, 0, ask)
    assert buffer.flush(SOON_S)
    assert len(asked) == 1
    assert buffer.close(SOON_S)


def test_when_the_process_ends_those_that_wait_write_and_what_is_under_way_is_finished() -> None:
    log, called = Log(), list[str]()
    log.going_on = asyncio.Event()
    buffer = log.buffer(linger_ms=0)
    under_way = buffer.take(
        "t", b"1", None, 0, lambda *_: called.append(threading.current_thread().name)
    )
    wait_for(lambda: log.together[0], "the loop writes it")
    buffer.take("t", b"behind it", None, 0, None)
    other = buffer.take("t", b"2", None, 1, None)
    wait_for(lambda: log.together[1], "and the other one")
    loop, go_on = needed_loop(), log.going_on
    threading.Timer(0.1, lambda: loop.call(go_on.set)).start()
    buffer.at_end()
    assert under_way.done()
    assert other.done()
    assert called
    assert sorted(log.values) == [b"1", b"2", b"behind it"]
    log.threads.clear()
    assert buffer.take("t", b"3", None, 0, None).done()
    assert log.threads == {threading.current_thread().name}
    assert buffer.close()


def test_at_the_end_no_more_is_under_way_at_a_time_than_before() -> None:
    log = Log()
    log.going_on = asyncio.Event()
    buffer = log.buffer(1, linger_ms=0)
    buffer.take("t", b"1", None, None, None)
    wait_for(lambda: log.together[None], "the loop writes it")
    loop, go_on = needed_loop(), log.going_on
    threading.Timer(0.1, lambda: loop.call(go_on.set)).start()
    buffer.at_end()
    for n in range(2, 5):
        buffer.take("t", b"%d" % n, None, None, None)
    assert log.values == [b"1", b"2", b"3", b"4"]
    assert buffer.close()


@pytest.mark.parametrize("each_place", [each_interruption, each_line])
def test_senders_that_are_interrupted_anywhere_leave_nothing_that_is_never_written(
    each_place: Any,
) -> None:
    log = Log()
    buffer = log.buffer(linger_ms=0)

    def send_and_wait() -> None:
        buffer.take("t", b"x", None, 0, None)
        buffer.flush(SOON_S)

    for place in each_place(send_and_wait):
        assert buffer.take("t", b"after", None, 0, None).result(SOON_S), place
        assert buffer.flush(SOON_S), place
    assert buffer.close(SOON_S)


@pytest.mark.parametrize("each_place", [each_interruption, each_line])
@pytest.mark.parametrize("in_callback", [False, True])
def test_one_that_waits_when_the_process_ends_and_is_interrupted_anywhere_leaves_all_to_the_next(
    each_place: Any, in_callback: bool
) -> None:
    log = Log()
    buffer = log.buffer(linger_ms=LONG_MS)
    buffer.writer.leave_to_waiters()
    called: Counter[int] = Counter()
    places = 0

    def note(number: int) -> None:
        called[number] += 1

    def take(number: int) -> Any:
        call = (lambda *answer: note(number)) if in_callback else None
        return buffer.take("t", b"%d" % number, None, number % 2, call)

    sent = [take(0), take(1)]
    for place in each_place(lambda: buffer.flush(SOON_S)):
        places += 1
        assert buffer.flush(SOON_S), place
        assert all(each.done() for each in sent), place
        assert not buffer.holds_any()
        sent += [take(len(sent)), take(len(sent) + 1)]
    assert buffer.close(SOON_S)
    assert places > 20
    assert max(Counter(log.values).values()) == 1
    if in_callback:
        assert set(called.values()) == {1}
        assert len(called) > len(sent) * 3 // 4, "all but the one that was interrupted itself"


@pytest.mark.parametrize("each_place", [each_interruption, each_line])
@pytest.mark.parametrize("waits_for_a_thread", [False, True])
def test_a_batch_is_one_s_to_write_where_its_taker_was_interrupted(
    each_place: Any, waits_for_a_thread: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log()
    buffers: list[BatchingBuffer[int]] = []
    seen: list[bool] = []

    def begin() -> None:
        """Have two batches wait to be written when the process ends."""
        linger_ms = 0 if waits_for_a_thread else LONG_MS
        buffer: BatchingBuffer[int] = BatchingBuffer(log.write, 4, linger_ms=linger_ms)
        buffers.append(buffer)
        writer = buffer.writer
        put_right = writer._put_right

        def put(batch: PendingBatch[Any]) -> None:
            lists = (*buffer.waiting, *writer.chores)
            seen.append(batch in lists and not writer.changed.is_held())
            put_right(batch)

        monkeypatch.setattr(writer, "_hire", lambda: None)
        monkeypatch.setattr(writer, "_put_right", put)
        for target in range(2):
            buffer.take("t", b"%d" % (2 * len(buffers) + target), None, target, None)
        if waits_for_a_thread:
            wait_for(lambda: len(writer.chores) == 2, "they wait for a thread")
        writer.leave_to_waiters()

    begin()
    for place in each_place(lambda: buffers[-1].flush(SOON_S)):
        buffer = buffers[-1]
        assert not any(seen), f"{place}: others could take a batch that is taken by half"
        assert not set(buffer.writer.chores) & set(buffer.waiting), place
        assert buffer.flush(SOON_S), place
        assert not buffer.waiting, place
        assert buffer.close(SOON_S)
        begin()
    assert seen
    assert buffers[-1].close(SOON_S)
    assert max(Counter(log.values).values()) == 1


def test_what_is_left_of_a_batch_by_a_thread_that_was_interrupted_is_done_though_nobody_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log, called = Log(), list[object]()
    buffer = log.buffer(1, linger_ms=0)
    writer = buffer.writer

    def refuse(*_: object) -> None:
        raise HQueueError("no more threads")

    async def no_thread(*_: object) -> None: ...

    def interrupted(_: object) -> None:
        wait_for(lambda: not writer.asks_again, "no thread is asked for, as nothing is left to do")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(writer._pool, "submit", refuse)
        patch.setattr(batch_writer, "in_thread", no_thread)
        patch.setattr(writer, "_do", interrupted)
        first = buffer.take("t", b"1", None, 0, lambda *answer: called.append(answer))
        wait_for(lambda: writer.has_no_thread, "no thread is there for the callback")
        with pytest.raises(KeyboardInterrupt):
            buffer.flush(SOON_S)
    assert buffer.take("t", b"2", None, 0, None).result(SOON_S)
    assert called == [(first.result(SOON_S), None)]
    assert buffer.close(SOON_S)


@pytest.mark.parametrize("each_place", [each_interruption, each_line])
@pytest.mark.parametrize(
    "options", [{"linger_ms": LONG_MS}, {"linger_ms": 0, "buffer_bytes_max": 450}], ids=str
)
def test_a_handler_that_waits_within_a_send_is_served_or_refused_at_once_and_nothing_is_lost(
    options: dict[str, Any],
    each_place: Callable[..., Iterator[str]],
) -> None:
    log, numbers, came = Log(), itertools.count(), Counter[str]()
    buffer = log.buffer(**options)
    sent: list[tuple[bytes, Delivery[MessageID]]] = []

    def send() -> Delivery[MessageID]:
        value = b"%d" % next(numbers)
        delivery = buffer.take("t", value, None, 0, None)
        sent.append((value, delivery))
        return delivery

    def result() -> MessageID:
        return sent[-1][1].result()

    def wait(*_: object) -> None:
        began_s = time.monotonic()
        for call in (buffer.flush, send, buffer.flush, result):
            try:
                call()
                came["served"] += 1
            except InvalidInputError as exc:
                came["refused" if "the call that it interrupts" in str(exc) else str(exc)] += 1
            except BufferFullError:
                came["no room"] += 1
        assert time.monotonic() - began_s < SOON_S / 3

    def send_some() -> None:
        for _ in range(4):
            send()

    sent_first = send()
    for place in each_place(send_some, handle=wait):
        assert buffer.flush(SOON_S), place
        for value, delivery in sent:
            assert log.values[int(delivery.result(0)) - 1] == value, place
        del sent[:-1]
    assert sent_first.done()
    assert buffer.close(SOON_S)
    assert max(Counter(log.values).values()) == 1
    assert came["served"] > 20
    assert came["refused"] > 20
    assert came.keys() <= {"served", "refused", "no room"}
    assert ("buffer_bytes_max" in options) == bool(came["no room"])


class FaultyHandler(logging.Handler):
    """A handler of log lines that fails."""

    def handle(self, record: logging.LogRecord) -> bool:
        raise SystemExit("faulty")


@pytest.mark.parametrize("calls_back", [False, True])
def test_a_handler_of_log_lines_that_raises_keeps_no_sender_and_no_batch_waiting(
    calls_back: bool,
) -> None:
    log, called = Log(), list[object]()
    logger, handler = logging.getLogger(batch_writer.__name__), FaultyHandler()
    callback = (lambda *answer: called.append(answer)) if calls_back else None
    logger.addHandler(handler)
    try:
        buffer = log.buffer(linger_ms=0)
        log.failure = StoreUnavailableError("away")
        with pytest.raises(StoreUnavailableError):
            buffer.take("t", b"1", None, 0, callback).result(SOON_S)
        log.failure = None
        assert buffer.take("t", b"2", None, 0, callback).result(SOON_S)
        assert buffer.close(SOON_S)
    finally:
        logger.removeHandler(handler)
    assert len(called) == 2 * calls_back


def test_what_a_close_does_not_see_written_in_time_is_written_before_the_process_ends() -> None:
    log = Log()
    log.going_on = asyncio.Event()
    buffer = log.buffer(linger_ms=LONG_MS)
    sent = buffer.take("t", b"1", None, 0, None)
    assert not buffer.close(0.05)
    assert buffer in ending.registered()
    needed_loop().call(log.going_on.set)
    assert sent.result(SOON_S)
    assert buffer.close(SOON_S)
    assert buffer not in ending.registered()


@pytest.mark.parametrize("messages_max", [2, 100])
def test_what_a_handler_sends_within_another_send_is_written_and_each_learns_its_own_id(
    messages_max: int,
) -> None:
    log, numbers = Log(), itertools.count()
    buffer = log.buffer(linger_ms=LONG_MS, batch_messages_max=messages_max)
    sent: list[tuple[bytes, Delivery[MessageID]]] = []

    def send(*_: object) -> None:
        value = b"%d" % next(numbers)
        sent.append((value, buffer.take("t", value, None, 0, None)))

    def send_some() -> None:
        for _ in range(4):
            send()

    for place in each_interruption(send_some, handle=send):
        assert buffer.flush(SOON_S), place
        assert len(sent) == 5
        for value, delivery in sent:
            assert log.values[int(delivery.result(0)) - 1] == value, place
        sent.clear()
    assert buffer.close(SOON_S)
    assert max(Counter(log.values).values()) == 1
