"""Appending to a queue, in steps: into one partition, or into any."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from hqueue.errors import InvalidInputError
from hqueue.format.compression import CODECS, compressed
from hqueue.format.header import FORMAT_1, Bodies
from hqueue.log import Appended, PartitionWriter
from hqueue.log.context import QueueContext
from hqueue.log.skew import SkewGuard
from hqueue.log.steps import Work
from hqueue.log.table_ports import AsyncLogPort
from hqueue.message import Message, encoded_key, partition_of_key
from hqueue.message_id import MessageID, MessageIDs
from hqueue.position import Position
from hqueue.produce.encode import encode_batch, encode_given, keys_of, taken
from hqueue.produce.header_reaper import HeaderReaper
from hqueue.produce.idempotency import ProducerEpochs, Search, search_for
from hqueue.produce.owned_log import OwnedPartition
from hqueue.produce.writer_pool import WriterPool
from hqueue.runtime.clock import Clock, Deadline
from hqueue.runtime.fork import register
from hqueue.runtime.loop import computing
from hqueue.settings.kinds import check_callback
from hqueue.watching.observers import OBSERVERS, watched

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Given", "QueueAppending"]


class Given(NamedTuple):
    """What goes to the log as one batch, and where."""

    bodies: Bodies
    partition: int | None
    """Any if None."""
    search: Search | None = None
    """What to look for in the log first, if the batch may be there already."""
    is_one: bool = False
    """Whether it is one message, and not a sequence."""

    def ids(self, appended: Appended) -> MessageID | MessageIDs:
        """Of what was appended."""
        if self.is_one:
            return int.__new__(MessageID, appended.base)
        return MessageIDs(appended.base, appended.count)


class QueueAppending:
    """Appending to a queue. Used by any number of threads and coroutines at a time, and usable in a
    forked child.

    Args:
        context: the queue.
        loop_port: its rows; old ones are deleted in the background.
        on_append: called after each append with the partition, what was appended, and the bodies
            as they lie in the store. Must be quick, and must not raise.
    """

    def __init__(
        self,
        context: QueueContext,
        loop_port: AsyncLogPort,
        on_append: Callable[[int, Appended, Bodies], None],
    ) -> None:
        self.partitions = context.partitions
        self._context = context
        self._loop_port = loop_port
        self._on_append = on_append
        self._codec = CODECS[context.settings.compression_type]
        self._skew = SkewGuard(context.settings.clock_skew_ms_max, context.clock)
        self._epochs = ProducerEpochs(context.clock)
        # What is kept by this object does not refer to it: it goes when its users go.
        self.expired_ms = partial(_expired_ms, context, self._skew)
        """As the function of that name."""
        self.after_fork_in_child()
        register(self)

    def after_fork_in_child(self) -> None:
        clock = self._context.clock
        open_writer = partial(_open_writer, clock, self._context.settings.clock_skew_ms_max)
        self._writers = WriterPool(self.partitions, open_writer)
        self._reaper = HeaderReaper(self._loop_port, self.expired_ms, clock)

    def given(
        self,
        messages: Message | Sequence[Message] | Iterator[Message] | pa.RecordBatch | pa.Table,
        partition: int | None = None,
        key: str | bytes | None = None,
        idempotency_key: str | bytes | None = None,
        since: Position | None = None,
    ) -> Given:
        """What the arguments of `Queue.put` mean."""
        partition = self.choose_partition(partition, key)
        if type(messages) is not Message:
            messages = taken(messages)
        bodies = encode_given(messages)
        is_one = isinstance(messages, Message)
        if isinstance(messages, Message):
            if partition is None and messages.key is not None:
                partition = partition_of_key(messages.key, self.partitions)
        elif partition is None and bodies.version != FORMAT_1:
            partition = self.partition_of_keys(messages)
        search = None
        if idempotency_key is not None or since is not None:
            search = search_for(
                idempotency_key,
                since,
                self._context.settings.clock_skew_ms_max,
                anywhere=partition is None,
            )
        return Given(bodies, partition, search, is_one)

    def given_by_system(self, messages: Sequence[Message], partition: int) -> Given:
        """Messages of the system's own, under topics and headers that `given` refuses."""
        partition = self._context.check_partition(partition)
        return Given(encode_batch(messages), partition)

    def choose_partition(self, partition: int | None, key: str | bytes | None) -> int | None:
        """Like `Queue.choose_partition`."""
        if key is not None:
            if partition is not None:
                raise InvalidInputError("give a partition or a key, not both")
            return partition_of_key(encoded_key(key), self.partitions)
        return None if partition is None else self._context.check_partition(partition)

    def partition_of_keys(
        self, messages: Sequence[Message] | pa.RecordBatch | pa.Table
    ) -> int | None:
        """The partition that the keys of a batch belong to; None if it has none.

        Raises:
            InvalidInputError: they belong to several.
        """
        partitions = {partition_of_key(key, self.partitions) for key in keys_of(messages)}
        if len(partitions) > 1:
            raise InvalidInputError(
                "the keys of these messages belong to several partitions, and a batch goes to "
                "one: choose a partition, or send the messages one by one with a Producer",
                partitions=sorted(partitions)[:10],
            )
        return partitions.pop() if partitions else None

    def encode_and_append(
        self, encode: Callable[[], Given], deadline: Deadline, *, much: bool
    ) -> Work[MessageID | MessageIDs]:
        """Encode a batch, compress it, and append it; its IDs.

        Args:
            encode: gives the batch.
            deadline: the bound.
            much: whether it is encoded and compressed beside an event loop.

        Raises:
            As `encode`, and as `Queue.put`.
        """
        if much:
            given: Given = yield computing(lambda: self._compressed(encode()))
        else:
            given = encode()
        return given.ids((yield from self.append(given, deadline)))

    def append(self, given: Given, deadline: Deadline) -> Work[Appended]:
        """Append an encoded batch, which is compressed by this if it is not yet.

        Without a partition it goes to one that nobody else in this process is writing to, and to
        another as soon as some other writer is met there. So writers spread over the partitions by
        themselves.

        Raises:
            As `Queue.put`.
        """
        if not OBSERVERS:
            return self._append(given, deadline)
        given = self._compressed(given)
        queue, bodies = self._context.name, given.bodies
        size = sum(map(len, bodies.cells.values()))
        work = self._append(given, deadline)
        return watched(work, lambda each: each.append(queue, bodies.count, size))

    def _append(self, given: Given, deadline: Deadline) -> Work[Appended]:
        self._context.check_open()
        bodies, partition, search, _ = self._compressed(given)

        def append(writer: PartitionWriter) -> Work[tuple[PartitionWriter, Appended]]:
            if not self._skew.is_good:
                yield from self._skew.check(deadline)
            if search is None:
                appended = yield from writer.append(bodies, deadline)
            else:
                appended = yield from writer.append_once(
                    bodies, deadline, search.nonce, search.since
                )
            self._on_append(writer.partition, appended, bodies)
            return writer, appended

        writer, appended = yield from self._writers.use(partition, deadline, append)
        self._reaper.collect_if_due(writer)
        if partition is None and appended.contended:
            self._writers.move_on()
        return appended

    def owned(
        self,
        partition: int,
        on_fence: Callable[[str, int], None],
        on_settled: Callable[[int | None], None],
    ) -> OwnedPartition:
        """A partition, to be written by the owner of topics. Asks nothing.

        Raises:
            InvalidInputError: the queue has no such partition; or a callback is not a plain
                function.
        """
        check_callback(on_fence, "on_fence")
        check_callback(on_settled, "on_settled")
        return OwnedPartition(
            self._context.check_partition(partition),
            self._context,
            skew=self._skew,
            reaper=self._reaper,
            on_append=self._on_append,
            on_fence=on_fence,
            on_settled=on_settled,
        )

    def current_position(self, deadline: Deadline) -> Work[MessageID]:
        """The position of this moment, by a clock that was compared with the store's.

        Raises:
            ClockSkewError, StoreUnavailableError, QueueStateError: as `Queue.put`.
        """
        self._context.check_open()
        return MessageID((yield from self._skew.now_ms(deadline)))

    def claim_epoch(self, producer: str, epoch: int, deadline: Deadline) -> Work[MessageID]:
        """Like `Queue.claim_epoch`."""
        self._context.check_open()
        yield from self._skew.check(deadline)
        return (yield from self._epochs.claim(producer, epoch, deadline))

    def current_epoch(
        self, producer: str, deadline: Deadline
    ) -> Work[tuple[int, MessageID] | None]:
        """Like `Queue.current_epoch`."""
        self._context.check_open()
        return self._epochs.current(producer, deadline)

    def _compressed(self, given: Given) -> Given:
        bodies = compressed(given.bodies, self._codec)
        return given if bodies is given.bodies else given._replace(bodies=bodies)


def _expired_ms(context: QueueContext, skew: SkewGuard) -> Work[int | None]:
    """Up to when messages were written that have expired, by a clock that was found good; None if
    they are kept for ever.

    Raises:
        ClockSkewError, StoreUnavailableError, QueueStateError: that is not known now.
    """
    ttl_seconds = (yield from context.describe.steps()).ttl_seconds
    if ttl_seconds is None:
        return None
    deadline = context.deadline()
    return (yield from deadline.bound(skew.now_ms(deadline))) - ttl_seconds * 1_000


def _open_writer(clock: Clock, skew_ms_max: int, partition: int) -> PartitionWriter:
    return PartitionWriter(partition, clock, skew_ms_max)
