"""Messages that wait to be written, batched by where they go."""

from __future__ import annotations

import collections
import logging
import os
import threading
from collections.abc import Callable, Sequence
from typing import Generic

from hqueue.errors import BufferFullError, ClosedError, InvalidInputError
from hqueue.format import Bodies
from hqueue.message import Headers, Message, headers_size
from hqueue.message_id import MessageID, MessageIDs
from hqueue.produce.delivery import Delivery, DeliveryCallback, PendingBatch, Target
from hqueue.runtime import ending
from hqueue.runtime.clock import SYSTEM_CLOCK
from hqueue.runtime.foreign import call_foreign
from hqueue.runtime.fork import register
from hqueue.runtime.seldom import FaultLog
from hqueue.runtime.threads import try_start
from hqueue.runtime.waiting import Condition
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

logger = logging.getLogger(__name__)

FAULT_QUIET_MS = 5_000.0
"""Batches to some targets may be written while those to others are not."""

MESSAGE_OVERHEAD_BYTES = 200
"""What a buffered message takes beside its value, about."""


class BatchingBuffer(Generic[Target]):
    """Gathers messages by their targets, and has some threads write them, a batch at a time for
    each target, in the order in which they were taken. Thread-safe.

    What is in it is lost if the process is killed, and written when it ends in order (see
    `hqueue.runtime.ending`); what is taken after that is written before the call returns. In a
    forked child it can't be used.

    Where the interpreter starts no more threads, a thread that waits for what it sent writes it.

    Args:
        write: writes a batch; the messages' IDs, in their order. Bounded in time.
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
        self._write = write
        self._linger_ms = linger_ms
        self._batch_bytes_max = batch_bytes_max
        self._batch_messages_max = batch_messages_max
        self._buffer_bytes_max = buffer_bytes_max
        self._block_ms_max = block_ms_max
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._work = Condition(self._lock)
        self._room = Condition(self._lock)
        self._open: dict[Target | None, PendingBatch[Target]] = {}
        self._sealed: collections.deque[PendingBatch[Target]] = collections.deque()
        self._busy: set[Target] = set()
        self._buffered = 0
        self._unfinished: set[PendingBatch[Target]] = set()
        self._flushing: set[object] = set()
        """Those who wait for all that was sent: nothing lingers."""
        self._closed = False
        self._ending = False
        """Whether what is taken is written before the call returns."""
        self._faults = FaultLog(logger, quiet_ms=FAULT_QUIET_MS)
        self._unwritten = 0
        """About so many messages were not written since the fault began."""
        self._threads: list[threading.Thread] = []
        self._helping: list[threading.Thread] = []
        """Threads of others that write now."""
        for n in range(appends_max if targets is None else min(appends_max, targets)):
            thread = try_start(self._run, name=f"hqueue-producer-{n}")
            if thread is None:
                self._ending = not self._threads
                break
            self._threads.append(thread)
        register(self)
        ending.register(self)

    def after_fork_in_child(self) -> None:
        self._closed = True
        self._lock = threading.RLock()
        self._work = Condition(self._lock)
        self._room = Condition(self._lock)
        self._threads, self._helping = [], []
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
        with self._lock:
            batch = self._open.get(target)
            if (
                batch is None
                or size > batch.room
                or topic not in batch.kinds
                or len(batch.taken) >= self._batch_messages_max
                or self._buffered >= self._buffer_bytes_max
            ):
                batch = self._batch_with_room(target, topic, value, size)
            index = len(batch.taken)
            # The sender may be interrupted after each call, and nowhere else: so this is one step.
            batch.room -= size
            batch.buffered += size + MESSAGE_OVERHEAD_BYTES
            self._buffered += size + MESSAGE_OVERHEAD_BYTES
            batch.taken.append((topic, value, extra, callback))
            if index + 1 >= self._batch_messages_max:
                self._seal(batch)
        if self._ending:
            self.flush()
        return Delivery(batch.future, index)

    def _batch_with_room(
        self, target: Target | None, topic: str, value: bytes, size: int
    ) -> PendingBatch[Target]:
        """The open batch that takes a message, which is looked at first. The lock is held."""
        Message(topic, value)
        check_topic(topic)
        self._check_sender()
        if self._closed or self._buffered >= self._buffer_bytes_max:
            self._wait_for_room()
        batch = self._open.get(target)
        if batch is not None and (
            size > batch.room
            or len(batch.kinds) - (topic in batch.kinds) >= TOPICS_PER_BATCH_MAX
            or len(batch.taken) >= self._batch_messages_max
        ):
            self._seal(batch)
            batch = None
        if batch is None:
            batch = PendingBatch(target, SYSTEM_CLOCK.monotonic_ms(), self._batch_bytes_max)
            self._work.notify()  # First: then an interruption leaves nothing that nobody sees.
            self._open[target] = batch
            self._unfinished.add(batch)
        batch.kinds.add(topic)
        return batch

    def take_batch(self, bodies: Bodies, target: Target | None) -> Delivery[Sequence[MessageID]]:
        """Take messages that are encoded already as one batch. Beside `take` it keeps their order.

        Raises:
            BufferFullError: there was no room within ``block_ms_max``. Nothing was taken.
            ClosedError: the buffer was closed, or belongs to the parent process.
        """
        room = self._batch_bytes_max - bodies.size
        batch = PendingBatch(target, SYSTEM_CLOCK.monotonic_ms(), room)
        batch.bodies = bodies
        with self._lock:
            self._check_sender()
            if self._closed or self._buffered >= self._buffer_bytes_max:
                self._wait_for_room()
            if target in self._open:
                self._seal(self._open[target])
            self._work.notify()
            batch.buffered = bodies.size
            self._buffered += bodies.size
            self._sealed.append(batch)
            self._unfinished.add(batch)
        if self._ending:
            self.flush()
        return Delivery(batch.future)

    def flush(self, timeout_s: float | None = None) -> bool:
        """Wait until everything taken in so far is in the log or failed; whether that was in time.

        Raises:
            InvalidInputError: it was called by a delivery callback, which it would wait for.
            ClosedError: it belongs to the parent process, which alone learns that.
        """
        if os.getpid() != self._pid:
            raise ClosedError("the producer belongs to the parent process: flush it there")
        self._check_waiter()
        timeout_s = check_timeout_s(timeout_s)
        ends_ms = _ends_ms(timeout_s)
        flushing = object()
        try:
            with self._lock:
                self._flushing.add(flushing)
                self._work.notify_all()
                sent = set(self._unfinished)
            if not self._threads:
                self._write_all(sent, ends_ms)
            with self._lock:
                return self._room.wait_for(
                    lambda: sent.isdisjoint(self._unfinished), _left_s(ends_ms)
                )
        finally:
            self._flushing.discard(flushing)

    def at_end(self) -> None:
        """Write what is buffered, and from now on each message before the call that takes it
        returns.
        """
        if os.getpid() != self._pid:
            return
        self._ending = True
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
        ends_ms = _ends_ms(timeout_s)
        drained = self.flush(timeout_s)
        for thread in self._threads:
            thread.join(_left_s(ends_ms))
        ending.discard(self)
        return drained

    def release(self) -> None:
        """As `close`, for what was forgotten: the threads write what is buffered, and end. This
        waits only where there are none.
        """
        self._close()
        if not self._threads and os.getpid() == self._pid:
            self.flush()

    def _close(self) -> None:
        with self._lock:
            self._closed = True
            for batch in list(self._open.values()):
                self._seal(batch)
            self._work.notify_all()
            self._room.notify_all()

    def _is_own_thread(self) -> bool:
        """Whether a delivery callback is the caller."""
        thread = threading.current_thread()
        return thread in self._threads or thread in self._helping

    def _check_waiter(self) -> None:
        if self._is_own_thread():
            raise InvalidInputError("a delivery callback can't wait for its own producer")

    def _check_sender(self) -> None:
        if self._ending and self._is_own_thread():
            raise ClosedError("the program is ending: a delivery callback can't send any more")

    def _wait_for_room(self) -> None:
        if not self._closed:
            self._room.wait_for(
                lambda: self._closed or self._buffered < self._buffer_bytes_max,
                self._block_ms_max / 1e3,
            )
        if self._closed:
            raise ClosedError("the producer was closed, or belongs to the parent process")
        if self._buffered >= self._buffer_bytes_max:
            raise BufferFullError(
                "the producer's buffer is full; less is taken than is sent",
                buffer_bytes_max=self._buffer_bytes_max,
            )

    def _seal(self, batch: PendingBatch[Target]) -> None:
        """Let a batch take no more messages. The lock is held."""
        self._work.notify()
        del self._open[batch.target]
        self._sealed.append(batch)

    def _run(self) -> None:
        while True:
            with self._lock:
                batch = self._await_batch()
            if batch is None:
                return
            self._write_out(batch)

    def _await_batch(self) -> PendingBatch[Target] | None:
        """The next batch to be appended; None if there will be none. The lock is held."""
        while (batch := self._take()) is None:
            if self._closed and not self._unfinished:
                self._work.notify_all()
                return None
            self._work.wait(self._wait_s())
        return batch

    def _write_all(self, sent: set[PendingBatch[Target]], ends_ms: float | None) -> None:
        """Write these, or what goes before them, in the caller's thread: there is no other."""
        thread = threading.current_thread()
        self._helping.append(thread)
        try:
            self._help(sent, ends_ms)
        finally:
            self._helping.remove(thread)

    def _help(self, sent: set[PendingBatch[Target]], ends_ms: float | None) -> None:
        while _left_s(ends_ms) != 0:
            with self._lock:
                batch = self._take_before(sent, ends_ms)
            if batch is None:
                return
            self._write_out(batch)

    def _take_before(
        self, sent: set[PendingBatch[Target]], ends_ms: float | None
    ) -> PendingBatch[Target] | None:
        """One of these, or of what goes before them; None if all are done, or there is no time
        left. The lock is held.
        """
        while not sent.isdisjoint(self._unfinished):
            batch = self._take()
            # Perhaps another thread like this one writes what goes before.
            if batch is not None or not self._room.wait(_left_s(ends_ms)):
                return batch
        return None

    def _take(self) -> PendingBatch[Target] | None:
        """A batch that may be appended now: the oldest sealed one, or one that lingered enough.

        The lock is held.
        """
        for index, batch in enumerate(self._sealed):
            if batch.target is None or batch.target not in self._busy:
                del self._sealed[index]
                return self._begin(batch)
        due_ms = SYSTEM_CLOCK.monotonic_ms() - self._linger_ms
        for batch in self._open.values():  # Oldest first.
            if batch.opened_ms > due_ms and not self._flushing:
                break
            if batch.target is None or batch.target not in self._busy:
                del self._open[batch.target]
                return self._begin(batch)
        return None

    def _begin(self, batch: PendingBatch[Target]) -> PendingBatch[Target]:
        if batch.target is not None:
            self._busy.add(batch.target)
        return batch

    def _wait_s(self) -> float | None:
        """Until when a thread has nothing to do, unless it is told. The lock is held."""
        for batch in self._open.values():  # Oldest first.
            if batch.target not in self._busy:
                left_ms = batch.opened_ms + self._linger_ms - SYSTEM_CLOCK.monotonic_ms()
                return max(left_ms, 0.1) / 1e3
        return None

    def _write_out(self, batch: PendingBatch[Target]) -> None:
        error: BaseException | None = None
        ids = MessageIDs(0, 0)
        try:
            if batch.taken or batch.bodies is not None:  # Else its sender was interrupted.
                ids = self._write(batch)
        except BaseException as exc:  # Whatever it is, the senders must learn it.
            error = exc
            count = len(batch.taken) if batch.bodies is None else batch.bodies.count
            self._unwritten += count
            self._faults.met("writing", "a batch of %d messages was not written: %s", count, exc)
        if error is None:
            text = "batches are written again; %d messages were not"
            if self._faults.over("writing", text, self._unwritten):
                self._unwritten = 0
            batch.future.set_result(ids)
        else:
            batch.future.set_exception(error)
        for index, (_, _, _, callback) in enumerate(batch.taken):
            if callback is not None:
                message_id = ids[index] if error is None else None
                call_foreign("a delivery callback", callback, message_id, error)
        with self._lock:
            if batch.target is not None:
                self._busy.discard(batch.target)
            self._buffered -= batch.buffered
            self._unfinished.discard(batch)
            self._room.notify_all()
            self._work.notify()


def _ends_ms(timeout_s: float | None) -> float | None:
    return None if timeout_s is None else SYSTEM_CLOCK.monotonic_ms() + timeout_s * 1e3


def _left_s(ends_ms: float | None) -> float | None:
    return None if ends_ms is None else max(0.0, ends_ms - SYSTEM_CLOCK.monotonic_ms()) / 1e3
