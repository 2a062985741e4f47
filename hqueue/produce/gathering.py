"""Messages that wait to be written, batched by where they go: what is gathered, and what is due."""

from __future__ import annotations

import collections
import os
import threading
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from hqueue.errors import BufferFullError, ClosedError
from hqueue.format.header import Bodies
from hqueue.message import Headers, Message, headers_size
from hqueue.produce.batch_writer import Gathered
from hqueue.produce.delivery import BatchFuture, DeliveryCallback, PendingBatch, Taken, Target
from hqueue.runtime.clock import SYSTEM_CLOCK
from hqueue.runtime.fork import register
from hqueue.runtime.waiting import Condition, carries_others
from hqueue.settings.kinds import check_callback
from hqueue.settings.limits import (
    BATCH_BYTES_MAX,
    BATCH_MESSAGES_MAX,
    HEADER_ROOM_BYTES,
    TOPICS_PER_BATCH_MAX,
)
from hqueue.settings.numbers import check_number, check_whole
from hqueue.settings.reserved import check_topic

__all__ = ["Gathering", "Writer"]

MESSAGE_OVERHEAD_BYTES = 200
"""What a buffered message takes beside its value, about."""


class Writer(Protocol):
    """Who writes what is gathered."""

    @property
    def lock(self) -> threading.RLock: ...

    @property
    def changed(self) -> Condition: ...

    def after_fork_in_child(self) -> None: ...

    def is_working(self) -> bool: ...

    def look(self) -> None: ...


WriterT = TypeVar("WriterT", bound=Writer)
DeliveryT = TypeVar("DeliveryT")


class Gathering(Generic[Target, WriterT, DeliveryT]):
    """Gathers messages by their targets, to be written a batch at a time for each target, in the
    order in which they were taken. As safe for threads as its writer is.

    Args:
        writer_of: makes what writes the batches of this object, this many at a time.
        delivery: makes what tells the sender of a message what becomes of it: of a batch's future,
            and of the message's place in the batch; None for all of it.
        targets: how many targets there may be; None if that is open.
        linger_ms, batch_bytes_max, batch_messages_max, buffer_bytes_max, block_ms_max, appends_max:
            as `ProducerOptions` says.

    Raises:
        InvalidInputError: an option is out of range.
    """

    def __init__(
        self,
        writer_of: Callable[[Gathered[Target], int], WriterT],
        delivery: Callable[[BatchFuture, int | None], DeliveryT],
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
        self._delivery = delivery
        self._linger_ms = linger_ms
        self._batch_bytes_max = batch_bytes_max
        self._batch_messages_max = batch_messages_max
        self._buffer_bytes_max = buffer_bytes_max
        self.block_ms_max = block_ms_max
        self._pid = os.getpid()
        self.writer = self._writer = writer_of(
            self, appends_max if targets is None else min(appends_max, targets)
        )
        self._lock = self._writer.lock
        self._open: dict[Target | None, PendingBatch[Target]] = {}
        self._sealed: collections.deque[PendingBatch[Target]] = collections.deque()
        self._busy: dict[Target, PendingBatch[Target]] = {}
        self._buffered = 0
        self._unfinished: set[PendingBatch[Target]] = set()
        self._flushing: set[object] = set()
        """Callers that wait for everything that was sent: nothing lingers meanwhile."""
        self._closed = False
        self._ending = False
        """Whether what is taken is written before the call returns."""
        register(self)

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
    ) -> DeliveryT:
        """Take a message into the open batch of its target. Returns at once, unless there is no
        room.

        Raises:
            InvalidInputError, MessageTooLargeError: there can't be such a message; or the callback
                is not a plain function.
            BufferFullError: there was no room within ``block_ms_max``. It was not taken.
            ClosedError: the buffer was closed, or belongs to the parent process.
        """
        check_callback(callback, "callback")
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
        return self._delivery(batch.future, index)

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

    def take_batch(self, bodies: Bodies, target: Target | None) -> DeliveryT:
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
        return self._delivery(batch.future, None)

    def begin_flush(self, flush: object) -> Callable[[], bool]:
        """Let nothing linger until `end_flush`. Returns what tells, with the lock held, whether
        everything taken in so far is in the log or failed.
        """
        with self._lock:
            self._flushing.add(flush)
            self._writer.look()
            sent = set(self._unfinished)
        return lambda: sent.isdisjoint(self._unfinished)

    def end_flush(self, flush: object) -> None:
        """That flush is over, or given up."""
        self._flushing.discard(flush)

    def seal(self) -> None:
        """Take no more: what is open is written without lingering."""
        with self._lock:
            self._closed = True
            for batch in list(self._open.values()):
                self._seal(batch)
            self._writer.changed.notify_all()

    def _check_room(self) -> None:
        """See that something may be taken. The lock is held, and nothing is changed yet.

        Raises:
            ClosedError: nothing may, any more.
            _NoRoomError: there is no room now.
        """
        if self._ending and (self._writer.is_working() or carries_others()):
            raise ClosedError(
                "the program is ending: delivery callbacks and __del__ methods can't send any more"
            )
        if self._closed:
            raise ClosedError("the producer was closed, or belongs to the parent process")
        if self._buffered >= self._buffer_bytes_max:
            raise _NoRoomError

    def holds_any(self) -> bool:
        """Whether something was sent that is not in the log yet, nor failed. Takes no lock."""
        return bool(self._unfinished)

    @property
    def waiting(self) -> list[PendingBatch[Target]]:
        """The batches that nobody writes yet, oldest first."""
        return [*self._sealed, *self._open.values()]

    def may_take(self) -> bool:
        """Whether a message finds room, or is refused at once."""
        return self._closed or self._buffered < self._buffer_bytes_max

    def _seal(self, batch: PendingBatch[Target]) -> None:
        """Let a batch take no more messages. The lock is held."""
        self._writer.look()
        if batch.target in self._open and self._open[batch.target] is batch:  # Else a handler did.
            del self._open[batch.target]
            self._sealed.append(batch)

    # What a gathering says of waiting.

    def _wait_for_room(self, until_ms: float | None) -> float:
        """Wait until there is room; until when that may last, which holds for the next try, too.

        Raises:
            BufferFullError: there was none in time.
        """
        raise BufferFullError(
            "the producer's buffer is full: send less at a time, or wait for what was sent",
            buffer_bytes_max=self._buffer_bytes_max,
        )

    def _finish_at_end(self) -> None:
        """Write what was taken before the call returns: the process ends."""

    # What its writer asks, with the lock held: see `Gathered`.

    def take_due(self, taken: list[PendingBatch[Target]]) -> None:
        """Take a batch that may be written now: the oldest sealed one, or one that lingered enough.
        It is in the list before it is nowhere else.
        """
        due_ms = SYSTEM_CLOCK.monotonic_ms() - self._linger_ms
        for batch in self.waiting:
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
