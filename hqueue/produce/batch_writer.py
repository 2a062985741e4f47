"""The writer of a buffer's batches: the process's loop, a few threads, or a thread that waits."""

from __future__ import annotations

import asyncio
import collections
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Protocol

from hqueue.errors import HQueueError, Outcome
from hqueue.message_id import MessageIDs
from hqueue.produce.delivery import PendingBatch, Target
from hqueue.runtime.clock import SYSTEM_CLOCK
from hqueue.runtime.foreign import call_foreign
from hqueue.runtime.logs import Log
from hqueue.runtime.loop import background, in_thread
from hqueue.runtime.seldom import FaultLog
from hqueue.runtime.thread_pool import ThreadPool
from hqueue.runtime.waiting import Condition, InterruptibleFuture

__all__ = ["BatchWriter", "FaultReport", "Gathered", "WriteInLoop", "ends_ms", "has_messages"]

logger = Log(__name__)

FAULT_QUIET_MS = 5_000.0
"""Batches to some targets may be written while those to others are not."""

RETRY_S = 0.1
"""When another thread is asked for, where the system refused one."""

WriteInLoop = Callable[[PendingBatch[Target]], Coroutine[Any, Any, MessageIDs]]


class Gathered(Protocol[Target]):
    """Where the batches come from. Called with the lock held."""

    def take_due(self, taken: list[PendingBatch[Target]]) -> None:
        """Add a batch that may be written now, if there is one."""

    def give_back(self, batch: PendingBatch[Target]) -> None:
        """It was taken, or was about to be, and was not begun."""

    def due_s(self) -> float | None:
        """In what time there may be one, if nothing else happens."""

    def written(self, batch: PendingBatch[Target]) -> None:
        """It was written, or failed, and its senders know. May be said again."""


class BatchWriter(Generic[Target]):
    """Writes what is gathered, and tells the senders. Thread-safe.

    Tasks of the process's loop write the batches that are due. What may block, the senders'
    callbacks, and writing where it can't be done in a loop, is left to a few threads, which are
    there while there is something to do. Where none can be started, the one does it that the loop
    keeps, or those that wait in `wait_for`; and these do all of it where there is no loop, either,
    and when the process ends.

    Args:
        gathered: where the batches come from.
        write: writes a batch; the messages' IDs, in their order. Bounded in time.
        write_in_loop: the same, in an event loop; None if that can't be done.
        at_a_time: how many are under way at a time.
    """

    def __init__(
        self,
        gathered: Gathered[Target],
        write: Callable[[PendingBatch[Target]], MessageIDs],
        write_in_loop: WriteInLoop[Target] | None,
        at_a_time: int,
    ) -> None:
        self._gathered = gathered
        self._write = write
        self._write_in_loop = write_in_loop
        self._at_a_time = at_a_time
        self._report = FaultReport()
        self._pool = ThreadPool(at_a_time, "hqueue-producer")
        self._loop = background()
        self._is_left = False
        """Whether those that wait do all of it, but for what is under way."""
        self._timer: asyncio.TimerHandle | None = None
        self._retry: asyncio.TimerHandle | None = None
        """When a thread is asked for again."""
        self._borrowed: InterruptibleFuture[None] | None = None
        """What the loop's thread does."""
        self.after_fork_in_child()

    def after_fork_in_child(self) -> None:
        """Called by the owner, which uses it no more."""
        self.lock = threading.RLock()
        """That of what is gathered, too."""
        self.changed = Condition(self.lock, carried=True)
        """Notified when a batch was written, and by the owner."""
        self._chores: collections.deque[PendingBatch[Target]] = collections.deque()
        """Batches that wait for a thread: what comes next with them may block."""
        self._under_way: set[PendingBatch[Target]] = set()
        self._is_asked = False
        """Whether the loop is about to look."""
        self._refused = False
        """Whether the system refused a thread."""
        self._working: set[threading.Thread] = set()

    @property
    def by_itself(self) -> bool:
        """Whether it writes without one that waits."""
        return self._loop is not None

    @property
    def chores(self) -> list[PendingBatch[Target]]:
        """The batches that wait for a thread."""
        return [*self._chores]

    @property
    def has_no_thread(self) -> bool:
        """Whether the system refused a thread, so that those that wait do its work."""
        return self._refused

    @property
    def asks_again(self) -> bool:
        """Whether the system is soon asked again for a thread that it refused."""
        return self._retry is not None

    def is_working(self) -> bool:
        """Whether the caller's thread is in the middle of it: in a callback."""
        return threading.current_thread() in self._working

    def look(self) -> None:
        """There may be something to write: called with the lock, and before it is there. So an
        interruption leaves nothing that nobody sees.
        """
        if self._loop is not None and not self._is_asked:
            self._loop.call(self._look)
            self._is_asked = True

    def leave_to_waiters(self) -> None:
        """Have those that wait do it from now on: the process ends, and it may be too late to start
        a thread.
        """
        with self.lock:
            self._is_left = True
            self.changed.notify_all()

    def wait_for(self, is_done: Callable[[], bool], until_ms: float | None) -> bool:
        """Wait, and do what no other thread does. Returns whether it is done.

        Args:
            is_done: called with the lock held.
            until_ms: until when, on the clock; None without a bound.
        """
        while True:
            taken: list[PendingBatch[Target]] = []
            try:
                with self.lock:
                    try:
                        self._await(taken, is_done, until_ms)
                    except BaseException:  # Before another sees what is taken by half.
                        self._put_all_right(taken)
                        raise
                    if not taken:
                        return is_done()
                self._do(taken[0])
            finally:
                self._put_all_right(taken)

    def close(self) -> None:
        """All is written, and nothing will come. The threads end."""
        self._pool.shutdown(wait=False)

    def _await(
        self, taken: list[PendingBatch[Target]], is_done: Callable[[], bool], until_ms: float | None
    ) -> None:
        """Take what to do while it is not done: nothing when it is, or when it is too late."""
        while not is_done() and (left_s := _left_s(until_ms)) != 0:
            if self._chores and (self._is_left or self._refused):
                taken.append(self._chores[0])
                self._chores.popleft()
            elif self._is_left or not self.by_itself:
                self._take_one_more(taken)
            if taken or not self.changed.wait(left_s):
                return

    def _put_all_right(self, taken: list[PendingBatch[Target]]) -> None:
        for batch in taken:
            self._put_right(batch)
        taken.clear()

    def _put_right(self, batch: PendingBatch[Target]) -> None:
        """What is left to do of it, if its taker was interrupted, is another's."""
        with self.lock:
            if batch not in self._chores:  # Else it was not taken.
                if batch.outcome is None:
                    self._gathered.give_back(batch)
                    self._under_way.discard(batch)
                elif batch in self._under_way:
                    self._chores.appendleft(batch)
                    self._refused = True
            self.look()
            self.changed.notify_all()

    def _look(self) -> None:
        """In the loop: have written what is due."""
        with self.lock:
            self._is_asked = False
            if self._is_left:
                return
            due: list[PendingBatch[Target]] = []
            collections.deque(iter(lambda: self._take_one_more(due), False), maxlen=0)
            due_s = self._gathered.due_s() if len(self._under_way) < self._at_a_time else None
            is_put_back = self._refused and bool(self._chores) and self._retry is None
        if is_put_back:  # By one that waited, and was interrupted.
            self._hire()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due_s is not None:
            self._timer = asyncio.get_running_loop().call_later(due_s, self._look)
        for batch in due:
            if self._write_in_loop is None or self._loop is None:
                self._give(batch)
            else:
                self._loop.start(self._write_by_task, self._write_in_loop, batch)

    async def _write_by_task(self, write: WriteInLoop[Target], batch: PendingBatch[Target]) -> None:
        error: BaseException | None = None
        ids = MessageIDs(0, 0)
        try:
            if has_messages(batch):
                ids = await write(batch)
        except BaseException as exc:  # Whatever it is, the senders must learn it.
            error = exc
        batch.outcome = ids, error
        self._report.settle(batch, ids, error)
        if batch.calls_back:
            self._give(batch)
        else:
            self._finish(batch)
            self._look()

    def _give(self, batch: PendingBatch[Target]) -> None:
        """In the loop: have a thread do what is left to do of it."""
        with self.lock:
            self._chores.append(batch)
            self.changed.notify_all()
        self._hire()

    def _hire(self) -> None:
        """In the loop: have a thread do what there is to do. None can be started any more when the
        main thread has ended: others may go on long after that, and wait for what they sent.
        """
        try:
            self._refused = False
            self._pool.submit(self._work_off)
        except HQueueError:
            with self.lock:
                self._refused = True
                self.changed.notify_all()
            if self._loop is not None and (self._borrowed is None or self._borrowed.done()):
                self._borrowed = self._loop.start(in_thread, self._work_off)
            if self._retry is None:
                self._retry = asyncio.get_running_loop().call_later(RETRY_S, self._hire_again)

    def _hire_again(self) -> None:
        self._retry = None
        if self._chores:
            self._hire()

    def _take_one_more(self, taken: list[PendingBatch[Target]]) -> bool:
        """Take a batch that is due, if one more may be under way. Returns whether there was one.
        The lock is held.
        """
        count = len(taken)
        if len(self._under_way) < self._at_a_time:
            self._gathered.take_due(taken)
            self._under_way.update(taken[count:])
        return len(taken) > count

    def _work_off(self) -> None:
        """In a thread: do a chore, and write what is due then."""
        while (batch := self._next_chore()) is not None:
            self._do(batch)

    def _next_chore(self) -> PendingBatch[Target] | None:
        taken: list[PendingBatch[Target]] = []
        with self.lock:
            if self._chores:
                return self._chores.popleft()
            if self._write_in_loop is not None or not self._take_one_more(taken):
                self.look()
        return taken[0] if taken else None

    def _do(self, batch: PendingBatch[Target]) -> None:
        """Do what is left to do of a batch: what was begun goes on where it was interrupted."""
        thread = threading.current_thread()
        try:
            self._working.add(thread)
            if batch.outcome is None:
                self._write_out(batch)
            assert batch.outcome is not None
            ids, error = batch.outcome
            if not batch.future.done():
                self._report.settle(batch, ids, error)
            if batch.calls_back:
                self._call_back(batch, ids, error)
            self._finish(batch)
        finally:
            self._working.discard(thread)

    def _write_out(self, batch: PendingBatch[Target]) -> None:
        ids = MessageIDs(0, 0)
        interrupted = HQueueError("writing a batch was interrupted", outcome=Outcome.UNKNOWN)
        batch.outcome = ids, interrupted  # It is begun: nobody else writes it.
        try:
            if has_messages(batch):
                ids = self._write(batch)
            batch.outcome = ids, None
        except BaseException as exc:  # Whatever it is, the senders must learn it.
            batch.outcome = ids, exc

    def _call_back(
        self, batch: PendingBatch[Target], ids: MessageIDs, error: BaseException | None
    ) -> None:
        if batch.to_call is None:
            batch.to_call = enumerate(batch.taken)
        for index, (_, _, _, callback) in batch.to_call:
            if callback is not None:
                message_id = ids[index] if error is None else None
                call_foreign("a delivery callback", callback, message_id, error)

    def _finish(self, batch: PendingBatch[Target]) -> None:
        with self.lock:
            self._gathered.written(batch)
            self._under_way.discard(batch)
            self.changed.notify_all()


class FaultReport:
    """Reports the outcomes of batches to their senders, and failures to the log."""

    def __init__(self) -> None:
        self._faults = FaultLog(logger, quiet_ms=FAULT_QUIET_MS)
        self._unwritten = 0
        """About this many messages were not written since the fault began."""

    def settle(
        self, batch: PendingBatch[Any], ids: MessageIDs, error: BaseException | None
    ) -> None:
        """Report a batch's outcome to its senders."""
        if error is None:
            text = "batches can be written again; %d messages were not written"
            if self._faults.over("writing", text, self._unwritten):
                self._unwritten = 0
            batch.future.set_result(ids)
            return
        count = len(batch.taken) if batch.bodies is None else batch.bodies.count
        self._unwritten += count
        self._faults.met("writing", "a batch of %d messages was not written: %s", count, error)
        batch.future.set_exception(error)


def has_messages(batch: PendingBatch[Any]) -> bool:
    """Whether it has any: a sender may have been interrupted."""
    return bool(batch.taken) or batch.bodies is not None


def ends_ms(timeout_s: float | None) -> float | None:
    """When a time-out ends, on the clock."""
    return None if timeout_s is None else SYSTEM_CLOCK.monotonic_ms() + timeout_s * 1e3


def _left_s(until_ms: float | None) -> float | None:
    return None if until_ms is None else max(0.0, until_ms - SYSTEM_CLOCK.monotonic_ms()) / 1e3
