"""Messages that wait to be written, batched by where they go."""

from __future__ import annotations

import collections
import os
from collections.abc import Callable, Sequence
from typing import Generic

from hqueue.errors import BufferFullError, ClosedError, InvalidInputError
from hqueue.format.header import Bodies
from hqueue.message import Headers, Message, headers_size
from hqueue.message_id import MessageID, MessageIDs
from hqueue.produce.batch_writer import BatchWriter, WriteInLoop, ends_ms
from hqueue.produce.delivery import Delivery, DeliveryCallback, PendingBatch, Taken, Target
from hqueue.runtime import ending
from hqueue.runtime.clock import SYSTEM_CLOCK
from hqueue.runtime.fork import register
from hqueue.runtime.turn import OWN_TURN
from hqueue.runtime.waiting import carries_others, check_may_wait
from hqueue.settings.kinds import check_timeout_s
from hqueue.settings.limits import (
    BATCH_BYTES_MAX,
    BATCH_MESSAGES_MAX,
    HEADER_ROOM_BYTES,
    TOPICS_PER_BATCH_MAX,
)
from hqueue.settings.numbers import check_number, check_whole
from hqueue.settings.reserved import check_topic

__all__ = ["BatchingBuffer"]

MESSAGE_OVERHEAD_BYTES = 200
"""What a buffered message takes beside its value, about."""


class BatchingBuffer(Generic[Target]):
    """Gathers messages by their targets, and has them written in the background, a batch at a time
    for each target, in the order in which they were taken. Thread-safe.

    What is in it is lost if the process is killed, and written when it ends in order (see
    `hqueue.runtime.ending`); what is taken after that is written before the call returns. In a
    forked child it can't be used.

    Where the interpreter starts no more threads, a thread that waits for what it sent writes it:
    see `BatchWriter`.

    Args:
        write: writes a batch; the messages' IDs, in their order. Bounded in time.
        write_in_loop: the same, in an event loop, which it does not block; None if there is none.
        targets: how many targets there may be; None if that is open.
        linger_ms, batch_bytes_max, batch_messages_max, buffer_bytes_max, block_ms_max, appends_max:
            as `ProducerOptions` says.

    Raises:
        InvalidInputError: an option is out of range.
    """

    def __init__(
        self,
        write: Callable[[PendingBatch[Target]], MessageIDs],
        targets: int | None,
        *,
        write_in_loop: WriteInLoop[Target] | None = None,
        linger_ms: float = 5,
        batch_bytes_max: int = 1024 * 1024,
        batch_messages_max: int = 10_000,
        buffer_bytes_max: int = 64 * 1024 * 1024,
        block_ms_max: float = 60_000,
        appends_max: int = 4,
    ) -> None:
        linger_ms = check_number(linger_ms, 0, 60_000, option="linger_ms")
        batch_bytes_max = check_whole(
            batch_bytes_max, 1, BATCH_BYTES_MAX // 2, option="batch_bytes_max"
        )
        batch_messages_max = check_whole(
            batch_messages_max, 1, BATCH_MESSAGES_MAX, option="batch_messages_max"
        )
        buffer_bytes_max = check_whole(buffer_bytes_max, 1, 2**40, option="buffer_bytes_max")
        block_ms_max = check_number(block_ms_max, 0, 86_400_000, option="block_ms_max")
        appends_max = check_whole(appends_max, 1, 256, option="appends_max")
        self._linger_ms = linger_ms
        self._batch_bytes_max = batch_bytes_max
        self._batch_messages_max = batch_messages_max
        self._buffer_bytes_max = buffer_bytes_max
        self._block_ms_max = block_ms_max
        self._pid = os.getpid()
        self._writer = BatchWriter(
            self,
            write,
            write_in_loop,
            appends_max if targets is None else min(appends_max, targets),
        )
        self._lock = self._writer.lock
        self._open: dict[Target | None, PendingBatch[Target]] = {}
        self._sealed: collections.deque[PendingBatch[Target]] = collections.deque()
        self._busy: dict[Target, PendingBatch[Target]] = {}
        self._buffered = 0
        self._unfinished: set[PendingBatch[Target]] = set()
        self._flushing: set[object] = set()
        """Those who wait for all that was sent: nothing lingers."""
        self._closed = False
        self._ending = not self._writer.by_itself
        """Whether what is taken is written before the call returns."""
        register(self)
        ending.register(self)

    def after_fork_in_child(self) -> None:
        self._closed = True
        self._writer.after_fork_in_child()
        self._lock = self._writer.lock
        self._open.clear()
        self._sealed.clear()
        for batch in self._unfinished:
            batch.future.inherited = True
        self._unfinished.clear()
        self._buffered = 0

    def take(
        self,
        topic: str,
        value: bytes,
        extra: tuple[bytes | None, Headers] | None,
        target: Target | None,
        callback: DeliveryCallback | None,
    ) -> Delivery[MessageID]:
        """Take a message into the open batch of its target. Returns at once, unless there is no
        room.

        Raises:
            InvalidInputError, MessageTooLargeError: there can't be such a message.
            BufferFullError: there was no room within ``block_ms_max``. It was not taken.
            ClosedError: the buffer was closed, or belongs to the parent process.
        """
        size = len(value)
        if extra is not None:
            key, headers = extra
            size += len(key or b"") + headers_size(headers) + HEADER_ROOM_BYTES * len(headers)
        until_ms: float | None = None
        while True:
            try:
                with self._lock:
                    batch = self._open.get(target)
                    if (
                        self._ending
                        or batch is None
                        or size > batch.room
                        or topic not in batch.kinds
                        or batch.left <= 0
                        or self._buffered >= self._buffer_bytes_max
                    ):
                        batch = self._batch_with_room(target, topic, value, size)
                    # The sender may be interrupted after each call, and nowhere else: so this is
                    # one step.
                    batch.calls_back = batch.calls_back or callback is not None
                    batch.room -= size
                    batch.left -= 1
                    batch.buffered += size + MESSAGE_OVERHEAD_BYTES
                    self._buffered += size + MESSAGE_OVERHEAD_BYTES
                    message = topic, value, extra, callback
                    batch.taken.append(message)
                    index = len(batch.taken) - 1
                    if batch.taken[index] is not message:  # A signal's handler has sent one, too.
                        index = _last_place(batch.taken, message)
                    if batch.left <= 0:
                        self._seal(batch)
                break
            except _NoRoomError:
                pass
            until_ms = self._wait_for_room(until_ms)
        if self._ending:
            self._finish_at_end()
        return Delivery(batch.future, index)

    def _batch_with_room(
        self, target: Target | None, topic: str, value: bytes, size: int
    ) -> PendingBatch[Target]:
        """The open batch that takes a message, which is looked at first. The lock is held.

        A handler of a signal may send between any two calls here, so the batch is looked at once
        more after each.
        """
        Message(topic, value)
        check_topic(topic)
        self._check_room()
        while True:
            batch = self._open.get(target)
            if batch is None:
                self._begin(target)
            elif batch.taken and (size > batch.room or batch.left <= 0):
                self._seal(batch)
            elif topic in batch.kinds:
                return batch
            elif len(batch.kinds) >= TOPICS_PER_BATCH_MAX:
                self._seal(batch)
            else:
                self._unfinished.add(batch)
                batch.kinds.add(topic)

    def _begin(self, target: Target | None) -> None:
        """Open a batch for a target, if there is none. The lock is held."""
        batch = PendingBatch(target, SYSTEM_CLOCK.monotonic_ms(), self._batch_bytes_max)
        batch.future.changed = self._writer.changed
        batch.left = self._batch_messages_max
        self._writer.look()
        self._open.setdefault(target, batch)

    def take_batch(self, bodies: Bodies, target: Target | None) -> Delivery[Sequence[MessageID]]:
        """Take messages that are encoded already as one batch. Beside `take` it keeps their order.

        Raises:
            BufferFullError: there was no room within ``block_ms_max``. Nothing was taken.
            ClosedError: the buffer was closed, or belongs to the parent process.
        """
        room = self._batch_bytes_max - bodies.size
        batch = PendingBatch(target, SYSTEM_CLOCK.monotonic_ms(), room)
        batch.bodies = bodies
        batch.future.changed = self._writer.changed
        until_ms: float | None = None
        while True:
            try:
                with self._lock:
                    self._check_room()
                    if (before := self._open.get(target)) is not None:
                        self._seal(before)
                    self._writer.look()
                    batch.buffered = bodies.size
                    self._buffered += bodies.size
                    self._sealed.append(batch)
                    self._unfinished.add(batch)
                break
            except _NoRoomError:
                pass
            until_ms = self._wait_for_room(until_ms)
        if self._ending:
            self._finish_at_end()
        return Delivery(batch.future)

    def flush(self, timeout_s: float | None = None) -> bool:
        """Wait until everything taken in so far is in the log or failed; whether that was in time.

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
        flushing = object()
        try:
            with self._lock:
                self._flushing.add(flushing)
                self._writer.look()
                sent = set(self._unfinished)
            return self._writer.wait_for(lambda: sent.isdisjoint(self._unfinished), until_ms)
        finally:
            self._flushing.discard(flushing)

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
        """Take no more, write what is buffered, and end; whether that was in time.

        Each write is bounded, so this ends without a time-out, too.
        """
        if os.getpid() != self._pid:
            return True
        self._check_waiter()
        timeout_s = check_timeout_s(timeout_s)
        self._close()
        drained = self.flush(timeout_s)
        if drained:  # Else the rest is written before the process ends.
            self._writer.close()
            ending.discard(self)
        return drained

    def release(self) -> None:
        """As `close`, for what was forgotten: what is buffered is written in the background. This
        waits only where it can't be.
        """
        self._close()
        if not self._writer.by_itself and os.getpid() == self._pid:
            self.flush()

    def _close(self) -> None:
        with self._lock:
            self._closed = True
            for batch in list(self._open.values()):
                self._seal(batch)
            self._writer.changed.notify_all()

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

    def _check_room(self) -> None:
        """See that something may be taken. The lock is held, and nothing is changed yet.

        Raises:
            ClosedError: nothing may, any more.
            _NoRoomError: there is no room now.
        """
        if self._ending and (self._writer.is_working() or carries_others()):
            raise ClosedError(
                "the program is ending: a delivery callback, and a __del__ that any thread may "
                "call, can't send any more"
            )
        if self._closed:
            raise ClosedError("the producer was closed, or belongs to the parent process")
        if self._buffered >= self._buffer_bytes_max:
            raise _NoRoomError

    def _wait_for_room(self, until_ms: float | None) -> float:
        """Wait until there is room; until when that may last, which holds for the next try, too.

        The lock is not held: a wait would let others change what must change as one. For the same
        reason a call that interrupts another of its thread does not wait.
        """
        if until_ms is None:
            until_ms = SYSTEM_CLOCK.monotonic_ms() + self._block_ms_max
        if not self._writer.changed.is_held():
            left_s = max(0.0, until_ms - SYSTEM_CLOCK.monotonic_ms()) / 1e3
            with self._lock:
                if self._writer.changed.wait_for(self._may_take, left_s):
                    return until_ms
        raise BufferFullError(
            "the producer's buffer is full; less is taken than is sent",
            buffer_bytes_max=self._buffer_bytes_max,
        )

    def _may_take(self) -> bool:
        return self._closed or self._buffered < self._buffer_bytes_max

    def _seal(self, batch: PendingBatch[Target]) -> None:
        """Let a batch take no more messages. The lock is held."""
        self._writer.look()
        if batch.target in self._open and self._open[batch.target] is batch:  # Else a handler did.
            del self._open[batch.target]
            self._sealed.append(batch)

    # What its writer asks, with the lock held: see `Gathered`.

    def take_due(self, taken: list[PendingBatch[Target]]) -> None:
        """Take a batch that may be written now: the oldest sealed one, or one that lingered enough.
        It is in the list before it is nowhere else.
        """
        due_ms = SYSTEM_CLOCK.monotonic_ms() - self._linger_ms
        for batch in (*self._sealed, *self._open.values()):  # Oldest first.
            is_sealed = self._open.get(batch.target) is not batch
            if not is_sealed and batch.opened_ms > due_ms and not self._flushing:
                return
            if batch.target is None or batch.target not in self._busy:
                taken.append(batch)
                if is_sealed:
                    self._sealed.remove(batch)
                else:
                    del self._open[batch.target]
                if batch.target is not None:
                    self._busy[batch.target] = batch
                return

    def give_back(self, batch: PendingBatch[Target]) -> None:
        """It was not begun, and may be written by another."""
        if self._open.get(batch.target) is not batch and batch not in self._sealed:
            self._sealed.appendleft(batch)
        self._free(batch)

    def due_s(self) -> float | None:
        """When the next one has lingered enough whose target is free."""
        for batch in self._open.values():  # Oldest first.
            if batch.target not in self._busy:
                left_ms = batch.opened_ms + self._linger_ms - SYSTEM_CLOCK.monotonic_ms()
                return max(left_ms, 0.1) / 1e3
        return None

    def written(self, batch: PendingBatch[Target]) -> None:
        """Its target is free for the next one, and there is room."""
        self._free(batch)
        self._buffered, batch.buffered = self._buffered - batch.buffered, 0  # In one step.
        self._unfinished.discard(batch)

    def _free(self, batch: PendingBatch[Target]) -> None:
        if batch.target is not None and self._busy.get(batch.target) is batch:
            del self._busy[batch.target]


class _NoRoomError(Exception):
    """There is no room in a buffer now."""


def _last_place(taken: Sequence[Taken], message: Taken) -> int:
    """Where a message lies that was taken just now."""
    return next(place for place in reversed(range(len(taken))) if taken[place] is message)
