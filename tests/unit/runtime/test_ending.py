"""What an ending process finishes, and how it goes on where no more threads are started."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import pytest

from hqueue import (
    BufferFullError,
    ClosedError,
    HQueueError,
    InvalidInputError,
    MessageID,
    StoreUnavailableError,
)
from hqueue.groups import committer as committer_module
from hqueue.groups.committer import Committer
from hqueue.groups.offsets import Position
from hqueue.hbase.thrift.side_by_side import SideBySide
from hqueue.message_id import MessageIDs
from hqueue.metadata import PartitionKey
from hqueue.produce import batch_writer
from hqueue.produce.buffer import BatchingBuffer
from hqueue.produce.delivery import PendingBatch
from hqueue.runtime import ending, loop, threads
from hqueue.runtime.steps import Work
from hqueue.runtime.stepwise import Stepwise, stepwise
from tests.support.thread_refusal import loop_not_begun, threads_refused
from tests.support.waiting import wait_for

KEY = PartitionKey("q", 0)
LONG_MS = 60_000


@pytest.fixture
def no_threads() -> Iterator[None]:
    """The main thread has ended, and there was no loop before."""
    with loop_not_begun(), threads_refused(at_end=True):
        yield


class Log:
    """What was written, and by which thread."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.writers: set[threading.Thread] = set()

    def write(self, batch: PendingBatch[int]) -> MessageIDs:
        self.values += [value for _, value, _, _ in batch.taken]
        self.writers.add(threading.current_thread())
        return MessageIDs(1, len(batch.taken))


def test_a_process_that_ends_writes_what_is_buffered_and_then_each_message_at_once() -> None:
    log = Log()
    buffer: BatchingBuffer[int] = BatchingBuffer(log.write, 1, linger_ms=LONG_MS)
    buffer.take("t", b"1", None, 0, None)
    assert not log.values
    buffer.at_end()
    assert log.values == [b"1"]
    assert buffer.take("t", b"2", None, 0, None).done()
    assert log.values == [b"1", b"2"]
    assert buffer.close()


def test_a_delivery_callback_of_an_ended_process_sends_nothing_and_hangs_nobody() -> None:
    refused: list[str] = []

    def send_again(*_: object) -> None:
        try:
            buffer.take("t", b"again", None, 0, None)
        except ClosedError as exc:
            refused.append(str(exc))

    log = Log()
    buffer: BatchingBuffer[int] = BatchingBuffer(log.write, 1, linger_ms=LONG_MS)
    buffer.take("t", b"1", None, 0, send_again)
    buffer.at_end()
    assert log.values == [b"1"]
    assert "the program is ending" in refused[0]
    assert buffer.close()


@pytest.mark.usefixtures("no_threads")
def test_without_threads_whoever_sends_writes() -> None:
    log = Log()
    asked: list[str] = []

    def ask(*_: object) -> None:
        try:
            buffer.flush()
        except InvalidInputError as exc:
            asked.append(str(exc))

    buffer: BatchingBuffer[int] = BatchingBuffer(log.write, 4, linger_ms=LONG_MS)
    for n in range(10):
        assert buffer.take("t", b"%d" % n, None, n % 2 or None, ask).done()
    assert log.values == [b"%d" % n for n in range(10)]
    assert log.writers == {threading.current_thread()}
    assert len(asked) == 10
    assert buffer.flush(0)
    assert buffer.close(0)


def test_what_finds_no_thread_is_written_by_one_that_flushes_or_when_there_is_one_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def in_thread(work: Callable[[], None]) -> None:
        raise StoreUnavailableError("the one that the loop keeps is in use")

    log, called = Log(), list[threading.Thread]()
    assert loop.background() is not None
    monkeypatch.setattr(batch_writer, "in_thread", in_thread)
    buffer: BatchingBuffer[int] = BatchingBuffer(log.write, 4, linger_ms=0)
    with threads_refused():
        first = buffer.take(
            "t", b"1", None, 0, lambda *_: called.append(threading.current_thread())
        )
        wait_for(lambda: buffer.writer.has_no_thread, "a thread was refused")
        assert not first.done()
        assert buffer.flush(30)
        assert log.writers == set(called) == {threading.current_thread()}
        second = buffer.take("t", b"2", None, 0, None)
        third = buffer.take("t", b"3", None, 0, None)
    assert second.result(30)
    assert third.result(30)
    assert log.values == [b"1", b"2", b"3"]
    assert buffer.close(30)


@pytest.mark.parametrize("in_loop", [True, False])
def test_threads_that_outlive_the_main_one_are_not_kept_waiting_for_what_they_sent(
    in_loop: bool,
) -> None:
    async def write_in_loop(batch: PendingBatch[int]) -> MessageIDs:
        return log.write(batch)

    log, called = Log(), list[str]()
    assert loop.background() is not None
    with threads_refused(at_end=True):
        buffer: BatchingBuffer[int] = BatchingBuffer(
            log.write, 1, write_in_loop=write_in_loop if in_loop else None, linger_ms=0
        )
        for n in range(3):
            sent = buffer.take(
                "t", b"%d" % n, None, 0, lambda *_: called.append(threading.current_thread().name)
            )
            assert sent.result(30)
        wait_for(lambda: len(called) == 3, "all callbacks were called")
        assert log.values == [b"0", b"1", b"2"]
        assert set(called) == {"hqueue-loop-call"}
        wait_for(lambda: not buffer.writer.asks_again, "no more threads are asked for")
        assert buffer.close(30)


def test_where_the_system_has_no_thread_left_the_caller_does_without_or_is_to_try_again() -> None:
    with threads_refused():
        assert threads.try_start(print, name="a thread") is None
    with (
        threads_refused(),
        pytest.raises(HQueueError, match="try again when others have ended"),
    ):
        threads.start(print, name="a thread")


@pytest.mark.usefixtures("no_threads")
def test_what_needs_a_thread_says_that_it_is_too_late() -> None:
    with pytest.raises(ClosedError, match="too late"):
        threads.start(print, name="a thread")


class Offsets(Stepwise):
    """Commits; slowly, if asked."""

    def __init__(self, pause_s: float = 0.0) -> None:
        self.committed: list[int] = []
        self._pause_s = pause_s

    @stepwise
    def commit(
        self, positions: Mapping[PartitionKey, Position]
    ) -> Work[Any, Collection[PartitionKey]]:
        time.sleep(self._pause_s)
        self.committed += [int(position.next) for position in positions.values()]
        return []
        yield


def threads_named(name: str) -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name == name}


def _to(number: int) -> dict[PartitionKey, Position]:
    return {KEY: Position(MessageID.from_int(number), None)}


def test_a_process_that_ends_commits_what_was_to_be_committed_later_and_calls_back() -> None:
    offsets, called = Offsets(0.05), []
    committer = Committer(offsets.commit)
    for number in range(1, 4):
        committer.commit_later(_to(number), lambda moves, _: called.append(int(moves[KEY].next)))
    committer.at_end()
    assert offsets.committed == called == [1, 2, 3]
    committer.commit_later(_to(4))
    assert offsets.committed[-1] == 4


@pytest.mark.usefixtures("no_threads")
def test_without_threads_whoever_commits_later_commits_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committer_module, "background", lambda: None)
    offsets, called = Offsets(), []
    committer = Committer(offsets.commit)
    lock = threading.Lock()  # As the thread that decides what to commit holds.

    def on_commit(moves: Mapping[PartitionKey, Position], _: object) -> None:
        with lock:
            called.append(int(moves[KEY].next))

    for number in range(1, 4):
        committer.await_room()
        with lock:
            committer.commit_later(_to(number), on_commit)
        assert offsets.committed[-1] == number
    committer.at_end()
    assert called == [1, 2, 3]


def test_a_callback_that_will_have_a_thread_is_not_called_by_who_commits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who commits may hold what a callback needs."""
    goes_on = Committer._goes_on
    is_committed, going_on = threading.Event(), threading.Event()
    called: list[str] = []

    def go_on_late(committer: Committer) -> bool:
        if committer._to_call:
            is_committed.set()
            assert going_on.wait(30)
        return goes_on(committer)

    monkeypatch.setattr(Committer, "_goes_on", go_on_late)
    committer = Committer(Offsets().commit)
    committer.commit_later(_to(1), lambda *_: called.append(threading.current_thread().name))
    try:
        assert is_committed.wait(30)
        committer.await_room()
        committer.call_back()
        assert not called
    finally:
        going_on.set()
    wait_for(lambda: called == ["hqueue-commit"], "it is called by its thread")


def test_room_for_one_more_commit_is_waited_for_with_a_bound() -> None:
    before = threads_named("hqueue-commit")
    going_on, entered = threading.Event(), threading.Event()

    def on_commit(*_: object) -> None:
        entered.set()
        going_on.wait(30)

    committer = Committer(Offsets().commit, waiting_max=1, room_s=0.05)
    committer.commit_later(_to(1), on_commit)
    assert entered.wait(30)
    committer.commit_later(_to(2), on_commit)
    with pytest.raises(BufferFullError, match="does not return"):
        committer.await_room()
    going_on.set()
    wait_for(lambda: not threads_named("hqueue-commit") - before, "all is called back")
    committer.await_room()


def test_what_interrupts_a_commit_does_not_wait_for_room_that_this_makes() -> None:
    refused: list[str] = []

    class Interrupted(Offsets):
        @stepwise
        def commit(
            self, positions: Mapping[PartitionKey, Position]
        ) -> Work[Any, Collection[PartitionKey]]:
            with pytest.raises(BufferFullError) as caught:
                committer.await_room()
            refused.append(str(caught.value))
            return (yield from super().commit.steps(positions))

    offsets = Interrupted()
    committer = Committer(offsets.commit, waiting_max=1)
    committer._later.append((_to(1), lambda *_: None))
    began_s = time.monotonic()
    committer.commit({})
    assert time.monotonic() - began_s < 30
    assert offsets.committed == [1]
    assert len(refused) == 1


@pytest.mark.usefixtures("no_threads")
def test_requests_side_by_side_are_made_one_after_the_other_without_threads() -> None:
    side_by_side = SideBySide()
    double: Callable[[int], int] = lambda number: 2 * number  # noqa: E731
    assert side_by_side.each(range(1, 20), double) == [2 * n for n in range(1, 20)]
    with pytest.raises(ZeroDivisionError):
        side_by_side.each([1, 0, 2, 3], lambda number: 1 // number)


def test_what_begins_in_a_process_that_is_ending_is_finished_at_once() -> None:
    class Item:
        ended = 0

        def at_end(self) -> None:
            self.ended += 1

    process = ending.Process()
    early, discarded = Item(), Item()
    for item in (early, discarded):
        process.register(item)
    process.discard(discarded)
    process.finish()
    late = Item()
    process.register(late)
    assert (early.ended, discarded.ended, late.ended) == (1, 0, 1)
