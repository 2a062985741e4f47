"""The writer of the batches of a buffer that belongs to an event loop: tasks of that loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Generic

from hqueue.errors import HQueueError, Outcome
from hqueue.message_id import MessageIDs
from hqueue.produce.batch_writer import FaultReport, Gathered, WriteInLoop, has_messages
from hqueue.produce.delivery import PendingBatch, Target
from hqueue.runtime.logs import Log
from hqueue.runtime.waiting import Condition

__all__ = ["LoopWriter"]

logger = Log(__name__)


class LoopWriter(Generic[Target]):
    """Writes what is gathered, and tells the senders, in one event loop. All calls are made there.

    Args:
        gathered: where the batches come from.
        write: writes a batch; the messages' IDs, in their order. Bounded in time.
        at_a_time: how many are under way at a time.
    """

    def __init__(
        self, gathered: Gathered[Target], write: WriteInLoop[Target], at_a_time: int
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self._gathered = gathered
        self._write = write
        self._at_a_time = at_a_time
        self._report = FaultReport()
        self.after_fork_in_child()
        self._under_way: set[asyncio.Task[None]] = set()
        self._is_asked = False
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: dict[asyncio.Future[None], Callable[[], bool]] = {}

    def after_fork_in_child(self) -> None:
        """Called by the owner, which uses it no more."""
        self.lock = threading.RLock()
        """As the buffer wants it: nobody ever waits for it."""
        self.changed = Condition(self.lock)

    def look(self) -> None:
        """There may be something to write."""
        if not self._is_asked:
            self.loop.call_soon(self._look)
            self._is_asked = True

    async def wait_for(self, is_done: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Wait until something holds that changes when a batch was written. Returns whether it
        holds. The caller goes on at once then: no other task has turns between.
        """
        ends_s = None if timeout_s is None else self.loop.time() + timeout_s
        while not is_done():
            woken: asyncio.Future[None] = self.loop.create_future()
            if ends_s is not None and ends_s <= self.loop.time():
                return False
            timer = None if ends_s is None else self.loop.call_at(ends_s, _wake, woken)
            self._waiting[woken] = is_done
            try:
                await woken
            finally:
                del self._waiting[woken]
                if timer is not None:
                    timer.cancel()
        return True

    def call_in_loop(self, function: Callable[[], object]) -> None:
        """Have something called in the loop, from any thread; nothing is where the loop ended."""
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(function)

    def wake(self) -> None:
        """Have those that wait look again."""
        for woken, is_done in self._waiting.items():
            if is_done():
                _wake(woken)

    def _look(self) -> None:
        self._is_asked = False
        due: list[PendingBatch[Target]] = []
        while len(self._under_way) < self._at_a_time:
            due.clear()
            self._gathered.take_due(due)
            if not due:
                break
            task = self.loop.create_task(self._write_out(due[0]))
            self._under_way.add(task)
            task.add_done_callback(self._written)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if len(self._under_way) < self._at_a_time:
            due_s = self._gathered.due_s()
            if due_s is not None:
                self._timer = self.loop.call_later(due_s, self._look)

    def _written(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # An interruption has ended the loop already; asyncio logs it no more.
        self._look()

    async def _write_out(self, batch: PendingBatch[Target]) -> None:
        ids = MessageIDs(0, 0)
        error: BaseException | None = None
        try:
            if has_messages(batch):
                ids = await self._write(batch)
        except asyncio.CancelledError:  # The loop ends: those who ask later learn it all the same.
            error = HQueueError(
                "the event loop ended while the batch was written", outcome=Outcome.UNKNOWN
            )
            raise
        except BaseException as exc:  # Whatever it is, the senders must learn it.
            error = exc
        finally:
            self._settle(batch, ids, error)

    def _settle(
        self, batch: PendingBatch[Target], ids: MessageIDs, error: BaseException | None
    ) -> None:
        batch.outcome = ids, error
        self._report.settle(batch, ids, error)
        interruption: BaseException | None = None
        for index, (_, _, _, callback) in enumerate(batch.taken if batch.calls_back else ()):
            if callback is not None:
                try:
                    callback(None if error else ids[index], error)
                except Exception:
                    logger.exception("a delivery callback failed")
                except BaseException as exc:  # This is the program's own loop, which it ends.
                    interruption = exc
        self._gathered.written(batch)
        self.wake()
        if interruption is not None:
            raise interruption

    def is_working(self) -> bool:
        """Whether the caller is in the middle of it: no call of a sender ever is."""
        return False

    def close(self) -> None:
        """All is written, and nothing will come."""
        if self._timer is not None:
            self._timer.cancel()


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
