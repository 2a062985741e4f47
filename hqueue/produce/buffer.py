"""A buffer of messages that threads send, and that is written in the background."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from hqueue.errors import ClosedError, InvalidInputError
from hqueue.message_id import MessageIDs
from hqueue.produce.batch_writer import BatchWriter, WriteInLoop, ends_ms
from hqueue.produce.delivery import Delivery, PendingBatch, Target
from hqueue.produce.gathering import Gathering
from hqueue.produce.producer_options import ProducerOptions
from hqueue.runtime import ending
from hqueue.runtime.clock import SYSTEM_CLOCK
from hqueue.runtime.turn import OWN_TURN
from hqueue.runtime.waiting import check_may_wait
from hqueue.settings.keyword_options import Unpack
from hqueue.settings.kinds import check_timeout_s

__all__ = ["BatchingBuffer"]


class BatchingBuffer(Gathering[Target, BatchWriter[Target], Delivery[Any]]):
    """Gathers messages by their targets, and has them written in the background, a batch at a time
    for each target, in the order in which they were taken. Thread-safe.

    What is in it is lost if the process is killed, and written when it ends normally (see
    `hqueue.runtime.ending`); what is taken after that is written before the call returns. In a
    forked child it can't be used.

    Where the interpreter starts no more threads, a thread that waits for what it sent writes it:
    see `BatchWriter`.

    Args:
        write: writes a batch; the messages' IDs, in their order. Bounded in time.
        targets: how many targets there may be; None if that is open.
        write_in_loop: as `write`, in an event loop, which it does not block; None if there is none.
        options: see `ProducerOptions`.

    Raises:
        InvalidInputError: an option is out of range.
    """

    def __init__(
        self,
        write: Callable[[PendingBatch[Target]], MessageIDs],
        targets: int | None,
        *,
        write_in_loop: WriteInLoop[Target] | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        super().__init__(
            lambda gathered, at_a_time: BatchWriter(gathered, write, write_in_loop, at_a_time),
            Delivery,
            targets,
            **options,
        )
        self._ending = not self._writer.by_itself
        ending.register(self)

    def flush(self, timeout_s: float | None = None) -> bool:
        """Wait until everything taken in so far is in the log or failed. Returns whether that was
        in time.

        Raises:
            InvalidInputError: it was called by a delivery callback, or by a handler of a signal in
                the middle of another call, which it would wait for.
            ClosedError: it belongs to the parent process, which alone learns that.
        """
        if os.getpid() != self._pid:
            raise ClosedError("the producer belongs to the parent process: flush it there")
        self._check_waiter()
        timeout_s = check_timeout_s(timeout_s)
        until_ms = ends_ms(timeout_s)
        flush = object()
        try:
            return self._writer.wait_for(self.begin_flush(flush), until_ms)
        finally:
            self.end_flush(flush)

    def at_end(self) -> None:
        """Write what is buffered, and from now on each message before the call that takes it
        returns.
        """
        if os.getpid() != self._pid:
            return
        self._ending = True
        self._writer.leave_to_waiters()
        self.flush()

    def close(self, timeout_s: float | None = None) -> bool:
        """Take no more messages, write what is buffered, and end. Returns whether that was in time.

        Each write is bounded, so this ends without a time-out, too.
        """
        if os.getpid() != self._pid:
            return True
        self._check_waiter()
        timeout_s = check_timeout_s(timeout_s)
        self.seal()
        drained = self.flush(timeout_s)
        if drained:  # Else the rest is written before the process ends.
            self._writer.close()
            ending.discard(self)
        return drained

    def release(self) -> None:
        """Like `close`, for what was forgotten: what is buffered is written in the background. This
        waits only where it can't be.
        """
        self.seal()
        if not self._writer.by_itself and os.getpid() == self._pid:
            self.flush()

    def _check_waiter(self) -> None:
        if self._writer.is_working():  # The caller is a delivery callback.
            raise InvalidInputError("a delivery callback can't wait for its own producer")
        check_may_wait()
        if self._writer.changed.is_held():
            raise InvalidInputError(OWN_TURN)

    def _finish_at_end(self) -> None:
        """Write what was taken before the call returns. What a call takes that interrupts another
        of its thread, that other one writes.
        """
        if not self._writer.changed.is_held():
            self.flush()

    def _wait_for_room(self, until_ms: float | None) -> float:
        """Wait until there is room; until when that may last, which holds for the next try, too.

        The lock is not held: a wait would let others change what must change as one. For the same
        reason a call that interrupts another of its thread does not wait.
        """
        if until_ms is None:
            until_ms = SYSTEM_CLOCK.monotonic_ms() + self.block_ms_max
        if not self._writer.changed.is_held():
            left_s = max(0.0, until_ms - SYSTEM_CLOCK.monotonic_ms()) / 1e3
            with self._lock:
                if self._writer.changed.wait_for(self.may_take, left_s):
                    return until_ms
        return super()._wait_for_room(until_ms)
