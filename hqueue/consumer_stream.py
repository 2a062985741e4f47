"""A consumer's messages for one thread."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from hqueue.errors import HQueueError
from hqueue.groups.consumption import Consumption
from hqueue.groups.handout import Handout
from hqueue.groups.offsets import Position
from hqueue.groups.stream import Stream
from hqueue.message import ConsumedMessage
from hqueue.metadata import PartitionKey
from hqueue.runtime.extras import needing_arrow
from hqueue.runtime.interrupts import is_interruption, is_own
from hqueue.runtime.steps import Work
from hqueue.settings.numbers import check_number, check_whole
from hqueue.watching.observers import OBSERVERS

if TYPE_CHECKING:
    import pyarrow

__all__ = ["ConsumerStream"]


class ConsumerStream:
    """Returns the messages of some of a consumer's partitions. Made by a `ParallelConsumer`.

    Use it in one thread. Asking for more messages says that all messages before were processed.
    Call `ParallelConsumer.request_stop` to let the threads of all streams end, and then close the
    consumer.
    """

    def __init__(self, consumption: Consumption, stream: Stream, check: Callable[[], None]) -> None:
        self._consumption = consumption
        self._stream = stream
        self._check = check

    def poll(self, timeout_ms: float = 0, messages_max: int = 500) -> list[ConsumedMessage]:
        """Return the next messages, all of one partition and in order; an empty list if none came
        in time.

        Args:
            timeout_ms: how long to wait for the first message.
            messages_max: how many messages to return at most.

        Raises:
            InvalidInputError: an argument is out of range; or the consumer has nothing to consume,
                since neither its `subscribe` nor its `assign` was called.
            StoreUnavailableError: HBase was unavailable for ``operation_timeout_ms``. Later calls
                try again.
            QueueStateError: a queue was disabled for that long, or was deleted. Later calls return
                messages of the other queues.
            OffsetOutOfRangeError: messages at the offset expired or were truncated, and
                ``auto_offset_reset`` is ``error``.
            CorruptLogError: the log is corrupt at this position.
            RequestRefusedError: the consumer can't stay in the group.
            ClosedError: the consumer was closed.
        """
        messages_max = check_whole(messages_max, 1, 1_000_000, option="messages_max")
        now_s = self._consumption.now_s
        ends_s = now_s() + check_number(timeout_ms, 0, float("inf"), option="timeout_ms") / 1e3
        handout: Handout | None = None
        try:
            while True:
                handout = self._next(max(0.0, ends_s - now_s()) * 1e3)
                if handout is None:
                    return []
                messages = self._taken(handout, messages_max)
                if messages:  # What a call before took may have been all of it.
                    if OBSERVERS:
                        handout.report()
                    try:
                        return messages
                    finally:
                        handout.lost = False
        except BaseException as exc:
            if handout is not None and not is_own(exc):  # Else it holds what an earlier call gave.
                handout.lost = self._stream.doubted = True  # What was taken comes again.
            raise

    def __iter__(self) -> Iterator[ConsumedMessage]:
        """All messages as they come, without an end. Like `messages`."""
        return self.messages()

    def messages(self, *, idle_ms_max: float | None = None) -> Iterator[ConsumedMessage]:
        """Iterate over messages one by one, until the consumer's `request_stop` or `close`. Raises
        as `poll`.

        Args:
            idle_ms_max: end after this long without a message; None for never.
        """
        stream, idle_ms = self._stream, _idle(idle_ms_max)
        now_s = self._consumption.now_s
        while (handout := self._next(idle_ms)) is not None:
            handout.one_by_one = True
            try:
                for message in handout.messages:
                    handout.last = message
                    yield message
                    if stream.attention or now_s() >= stream.valid_until_s:
                        break
                    del message  # Its turn ends without a condition, as `hqueue.runtime.held` says.
                else:
                    handout.advance()
            except GeneratorExit:
                raise
            except BaseException as exc:
                if not is_own(exc):
                    stream.doubted = True  # What was taken after the last one comes again.
                raise
            if self._consumption.closed:
                return

    def arrow_batches(self, *, idle_ms_max: float | None = None) -> Iterator[pyarrow.RecordBatch]:
        """Iterate over messages in Arrow record batches, each of one partition and some megabytes,
        until the consumer's `request_stop` or `close`. The columns are ``queue``, with the queue's
        name, and those of `Scanner.arrow_batches`. Needs the extra ``hqueue-hbase[arrow]``.
        """
        with needing_arrow():
            from hqueue.consume.arrow import with_queue  # noqa: PLC0415  (pyarrow is an extra)

        idle_ms = _idle(idle_ms_max)
        while (handout := self._next(idle_ms, in_columns=True)) is not None:
            given, handout.lost = False, True
            try:
                columns = handout.columns(with_queue)
                if columns is not None and columns.num_rows:
                    handout.lost = False
                    try:
                        yield columns
                    finally:
                        given = True
                handout.lost = False
            except BaseException as exc:
                if not given:
                    # What the program did not get comes again; what can't be read does so itself.
                    handout.lost = not is_own(exc)
                    self._stream.doubted = self._stream.doubted or handout.lost
                raise
            if self._consumption.closed:
                return

    def commit(self) -> None:
        """Commit the position after all messages that this stream returned. Raises as the
        consumer's `commit`.
        """
        self._check()
        self._consumption.commit(self._moved)

    def assignment(self) -> set[PartitionKey]:
        """The partitions whose messages this stream returns now.

        Raises:
            ClosedError: this process is a forked child, which has no partitions.
        """
        self._consumption.process.check()
        return set(self._stream.keys)

    def _moved(self) -> Work[Any, dict[PartitionKey, Position]]:
        if not self._consumption.committer.calls_back:
            self._stream.settle()
        return self._consumption.positions.moved(self._stream.keys)
        yield

    def _taken(self, handout: Handout, messages_max: int) -> list[ConsumedMessage]:
        """This many messages of it at most. They count as lost until they are handed out: so no
        commit of a handler, which runs in between, goes past them.
        """
        messages: list[ConsumedMessage] = []
        handout.one_by_one, handout.lost = False, True
        while True:
            taken = list(itertools.islice(handout.messages, messages_max - len(messages)))
            if taken:
                handout.last = taken[-1]
                messages = messages + taken if messages else taken
            try:
                if len(messages) == messages_max or not handout.advance():
                    break
            except HQueueError as exc:
                if is_interruption(exc):
                    raise
                if not messages:
                    handout.lost = False
                    raise
                break  # What can't be read comes after them, with the next call.
        handout.lost = bool(messages)
        return messages

    def _next(self, timeout_ms: float | None, *, in_columns: bool = False) -> Handout | None:
        """What is handed out next."""
        self._check()
        self._stream.in_columns = in_columns
        try:
            handout = self._consumption.at_once(self._stream)
            return handout or self._consumption.refill(self._stream, timeout_ms)
        except BaseException as exc:
            self._stream.doubted = self._stream.doubted or not is_own(exc)
            raise


def _idle(idle_ms_max: float | None) -> float | None:
    if idle_ms_max is None:
        return None
    return check_number(idle_ms_max, 0, float("inf"), option="idle_ms_max")
