"""What is being handed out of a partition, and how far that is."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from hqueue.consume.decode import consumed_messages_of
from hqueue.consume.intake import FetchedBatches
from hqueue.consume.queue_reader import LoopReader
from hqueue.errors import HQueueError
from hqueue.groups.offsets import Position
from hqueue.log import Batch
from hqueue.log.offsets import passed_by
from hqueue.message import ConsumedMessage
from hqueue.message_id import MessageID
from hqueue.metadata import PartitionKey
from hqueue.runtime.interrupts import is_interruption
from hqueue.runtime.loop import is_much
from hqueue.runtime.steps import Wait, Work
from hqueue.runtime.stepwise import Stepwise, stepwise
from hqueue.watching.observers import OBSERVERS, Received

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Handout"]

Result = TypeVar("Result")


class Handout(Stepwise):
    """Batches that were fetched of a partition, handed out message by message, from the first
    `advance` on, or from `begin` on.

    Args:
        fetched: one batch or more.
        group: the consumer's group; None without a group.
        reader: decodes them, for a task of an event loop; None for a thread, which does it itself.
    """

    __slots__ = (
        "_fetched", "_group", "_left", "_passed", "_reader", "_undecoded", "batch", "last", "lost",
        "messages", "one_by_one", "over",
    )  # fmt: skip

    def __init__(
        self,
        fetched: FetchedBatches[PartitionKey],
        group: str | None = None,
        reader: LoopReader | None = None,
    ) -> None:
        self._fetched = fetched
        self._group = group
        self._reader = reader
        self._left = collections.deque(fetched.batches)
        self._passed: Position | None = None
        self._undecoded = False
        """Whether the messages of `batch` were not decoded yet."""
        self.batch: Batch
        """What the messages are of now."""
        self.messages: Iterator[ConsumedMessage]
        """What is left of that batch."""
        self.last: ConsumedMessage | None = None
        """The last message of the batch that was handed out: who takes from `messages` sets it."""
        self.one_by_one = False
        """Whether `last` is the only message that is worked on, as who takes them one by one says:
        those before it are done with."""
        self.over = False
        """Whether all of it was handed out."""
        self.lost = False
        """Whether what was taken of it since its position was noted did not come to its program,
        as who takes from it says."""

    @property
    def key(self) -> PartitionKey:
        """The partition."""
        return self._fetched.key

    @property
    def position(self) -> Position | None:
        """What is handed out next; None if nothing was yet, or it is not known."""
        if self.lost:
            return None
        if self.over:
            return self.end
        if self.last is None:
            return self._passed
        following = self.last.id.next()
        return Position(following, passed_by(self.batch.header, following))

    @property
    def end(self) -> Position:
        """What comes after all of these batches."""
        return Position(MessageID.from_int(self._fetched.cursor), self._fetched.ordinal)

    def done(self) -> Position | None:
        """Up to where messages are done with, by what is known without asking for more; None if no
        message is. From any thread: what another has changed meanwhile counts as not done.
        """
        batch, last = self.batch, self.last
        if not self.one_by_one or self.over or last is None or self.batch is not batch:
            return None
        return Position(last.id, passed_by(batch.header, last.id))

    def is_next_large(self) -> bool:
        """Whether the next batch, if there is one, is decoded beside an event loop."""
        if not self._left:
            return False
        following = self._left[0]
        size = partial(sum, [len(cell) for _, cell in following.cells])
        return is_much(following.header.count, size)

    def begin(self) -> None:
        """Go to the first batch, and decode nothing of it: `columns` comes next, or `advance`."""
        self.batch, self.messages, self._undecoded = self._left.popleft(), iter(()), True

    @stepwise
    def advance(self) -> Work[Any, bool]:
        """Go on to the next messages. Returns whether there are some.

        Raises:
            CorruptLogError, StoreUnavailableError: as `consumed_messages_of`. It stays where it is:
                the same comes again with the next call.
        """
        if not self._left and not self._undecoded:
            self.over = True
            return False
        following = self.batch if self._undecoded else self._left[0]
        if self._reader is None:
            messages = consumed_messages_of(following, self.key.queue)
        else:
            messages = yield from self._decoded([following], self._messages_of)
        if OBSERVERS:
            messages = Received(messages, self.key.queue, self._group)
        if self._undecoded:
            self.messages, self._undecoded = messages, False
            return True
        if self._passed is not None or self.last is not None:
            self.finish_batch()
        self.batch, self.messages = self._left.popleft(), messages
        return True

    def report(self) -> None:
        """Report to those that watch the process what was handed out since the last report."""
        if isinstance(self.messages, Received):
            self.messages.report()

    def finish_batch(self) -> None:
        """All of the batch was handed out."""
        header = self.batch.header
        self._passed = Position(MessageID.from_int(header.end), header.next_ordinal)
        self.batch = dataclasses.replace(self.batch, start=self.batch.stop)
        self.messages, self.last, self._undecoded = iter(()), None, False

    def remaining(self) -> list[Batch]:
        """All messages of the batches that were not handed out."""
        return [
            each for each in (self._remaining_of_batch(), *self._left) if each.start < each.stop
        ]

    def _finish_first(self) -> None:
        """The first batch of the remaining ones was handed out."""
        batch = self._remaining_of_batch()
        if batch.start >= batch.stop:
            self.batch = self._left.popleft()
        self.finish_batch()

    @stepwise
    def columns(
        self, record_batch: Callable[[Sequence[Batch], str], pyarrow.RecordBatch]
    ) -> Work[Any, pyarrow.RecordBatch | None]:
        """All messages of the batches that were not handed out, as a record batch, and they are;
        those of the first one alone, where others can't be read. None if there are none.

        Args:
            record_batch: makes it, with the queue's name.
        """
        remaining, queue = self.remaining(), self.key.queue
        if not remaining:
            self.over = True
            return None
        try:
            columns = yield from self._decoded(remaining, lambda each: record_batch(each, queue))
        except HQueueError as exc:
            if len(remaining) == 1 or is_interruption(exc):
                raise
            # What can be read before it is handed out, each batch separately.
            first = remaining[:1]
            columns = yield from self._decoded(first, lambda each: record_batch(each, queue))
            self._finish_first()
        else:
            self.over = True
        for each in OBSERVERS:
            each.received(queue, self._group, (), columns.num_rows)
        return columns

    def _messages_of(self, batches: Sequence[Batch]) -> Iterator[ConsumedMessage]:
        return consumed_messages_of(batches[0], self.key.queue)

    def _decoded(
        self, batches: Sequence[Batch], decode: Callable[[Sequence[Batch]], Result]
    ) -> Work[Any, Result]:
        if self._reader is None:
            return decode(batches)
        decoded: Result = yield Wait(
            partial(decode, batches), partial(self._reader.decoded_together, batches, decode)
        )
        return decoded

    def _remaining_of_batch(self) -> Batch:
        if self.last is None:
            return self.batch
        return dataclasses.replace(self.batch, start=int(self.last.id) + 1)
