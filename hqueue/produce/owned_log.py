"""One partition to which the owner of topics writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from hqueue.format.cells import encode_bodies
from hqueue.format.compression import CODECS, compressed
from hqueue.format.header import Bodies
from hqueue.log import Appended, PartitionWriter
from hqueue.log.context import QueueContext
from hqueue.log.owned_writer import OwnedBatch, OwnedPartitionWriter
from hqueue.log.ports import WritePort
from hqueue.log.skew import SkewGuard
from hqueue.log.steps import Work
from hqueue.log.table_ports import AsyncLogPort
from hqueue.message import Message
from hqueue.produce.header_reaper import HeaderReaper
from hqueue.runtime.clock import Deadline, drive, drive_in_loop
from hqueue.runtime.loop import computing, is_much

__all__ = ["LoopOwnedLog", "OwnedLog", "OwnedPartition"]

Made = tuple[Sequence[Message], int, Mapping[str, int]]


class OwnedPartition:
    """What is decided of one partition that is written by the owner of topics: by steps.

    Args:
        partition: the partition.
        context: the queue.
        skew: checks the clock.
        reaper: collects headers.
        on_append: as `Appender` takes it.
        on_fence: called with a topic that is not owned here any more, and its new owner's epoch.
        on_settled: called when it is known what became of an `append` that ended with an unknown
            outcome, before another batch is made: with the ID of its first message, or None.
    """

    def __init__(
        self,
        partition: int,
        context: QueueContext,
        *,
        skew: SkewGuard,
        reaper: HeaderReaper,
        on_append: Callable[[int, Appended, Bodies], None],
        on_fence: Callable[[str, int], None],
        on_settled: Callable[[int | None], None],
    ) -> None:
        self._on_settled = on_settled
        self.partition = partition
        self.deadline = context.deadline
        self._skew = skew
        self._reaper = reaper
        self._on_append = on_append
        self._codec = CODECS[context.settings.compression_type]
        self._collecting = PartitionWriter(partition, context.clock)
        self.writer = OwnedPartitionWriter(
            partition,
            on_fence=on_fence,
            on_settled=self._settled,
            clock=context.clock,
        )

    def open(self, deadline: Deadline) -> Work[int]:
        """Like `OwnedLog.open`."""
        yield from self.writer.open(deadline)
        return int(self.writer.end)

    def close_ranges(self, topics: Mapping[str, int], floor: int, deadline: Deadline) -> Work[int]:
        """Like `OwnedLog.close_ranges`."""
        yield from self._skew.check(deadline)
        return int((yield from self.writer.close_ranges(topics, deadline, floor=floor)))

    def append(self, make: Callable[[], Made | None], deadline: Deadline) -> Work[int | None]:
        """Like `OwnedLog.append`."""
        yield from self._skew.check(deadline)
        bodies: Bodies | None = None

        def encoded() -> Work[OwnedBatch | None]:
            nonlocal bodies
            made = make()
            if made is None:
                return None
            messages, floor, epochs = made
            encode = partial(self._encoded, messages)
            if is_much(len(messages), lambda: sum(each.size for each in messages)):
                bodies = yield computing(encode)
            else:
                bodies = encode()
            return OwnedBatch(bodies, floor, epochs)

        appended = yield from self.writer.append(encoded, deadline)
        if appended is None:
            return None
        assert bodies is not None
        self._on_append(self.partition, appended, bodies)
        self._reaper.collect_if_due(self._collecting)
        return appended.base

    def _encoded(self, messages: Sequence[Message]) -> Bodies:
        return compressed(encode_bodies(messages), self._codec)

    def _settled(self, batch: OwnedBatch, appended: Appended | None) -> None:
        if appended is not None:
            self._on_append(self.partition, appended, batch.bodies)
        self._on_settled(None if appended is None else appended.base)


class _Owned:
    """What both faces have."""

    def __init__(self, owned: OwnedPartition) -> None:
        self._owned = owned
        self.partition = owned.partition

    def own(self, topic: str, epoch: int) -> None:
        """Own a topic: allow appends of its messages, until a control record has a higher epoch of
        the topic.

        Raises:
            InvalidInputError: the epoch is out of range.
            OwnershipLostError: the partition is not open.
        """
        self._owned.writer.own(topic, epoch)

    def disown(self, topic: str) -> None:
        """Refuse further appends of a topic. A topic that is not owned stays so."""
        self._owned.writer.disown(topic)

    @property
    def end(self) -> int:
        """The known end of the log: no message that is appended later has an ID below it.

        Raises:
            OwnershipLostError: the end is not known.
        """
        return int(self._owned.writer.end)


class OwnedLog(_Owned):
    """One partition to which the owner of topics writes. Made by `OpenLog.own`.

    A topic's owner has an epoch, which grows with every owner. A hub that takes a topic over
    appends a control record with its epoch, by `close_ranges`. An earlier owner reads that record
    before it can append anything after it, and then appends no messages of the topic any more. That
    needs no lease and no clock. It needs this order:

    - `open` the partition, and `own` a topic, before you publish that the topic lies here;
    - after an `OwnershipLostError` this object owns no topics: open the partition again, and take
      the topics over again.

    Messages are encoded and compressed, each call is bounded by ``operation_timeout_ms``, the clock
    is checked, workers are notified, and old headers are deleted. One thread uses it; `own` and
    `disown` may be called by others meanwhile.

    Args:
        owned: decides what to write.
        port: reads and writes the queue's rows.
    """

    def __init__(self, owned: OwnedPartition, port: WritePort) -> None:
        super().__init__(owned)
        self._port = port

    def open(self) -> int:
        """Find the end of the log, and return it: no message that is appended later has an ID below
        it. Afterwards this object owns no topic.

        Raises:
            StoreUnavailableError: the store was unavailable for ``operation_timeout_ms``.
            QueueStateError: the queue was deleted, or is disabled.
        """
        deadline = self._owned.deadline()
        return drive(self._owned.open(deadline), self._port, deadline)

    def close_ranges(self, topics: Mapping[str, int], floor: int = 0) -> int:
        """Close the ranges of these topics that other owners have in this partition, and return the
        ID of the control record.

        After that ID neither an owner with a lower epoch nor this one can append a message of these
        topics. Repeating the call is harmless.

        Args:
            topics: the topics, each with the epoch of its owner from here on.
            floor: the control record's ID is not below this one.

        Raises:
            InvalidInputError: no topic is given, or a name, an epoch or an ID is out of range.
            ClockSkewError: this machine's clock is off by more than the limit.
            Other errors are those of `append`. The ranges are closed only if the call returns.
        """
        deadline = self._owned.deadline()
        return drive(self._owned.close_ranges(topics, floor, deadline), self._port, deadline)

    def append(self, make: Callable[[], Made | None]) -> int | None:
        """Append messages at the end of the log: exactly once, or with an error.

        Args:
            make: returns the messages, the floor of their IDs, and the epoch with which each
                topic's messages were accepted; None if nothing is left to append. It is called when
                the whole log is known, and again each time that another writer was faster.

        Returns:
            The ID of the first message; the others have the IDs that follow. None if `make`
            returned None.

        Raises:
            InvalidInputError: there are no messages.
            TopicFencedError: this object does not own a topic. Nothing was sent.
            OwnershipLostError: the log can't be followed from its known end. This object owns no
                topic any more.
            ClockSkewError: this machine's clock is off by more than the limit.
            StoreUnavailableError: the store was unavailable for ``operation_timeout_ms``. If the
                outcome is *unknown*, `on_settled` later reports whether the messages are in the
                log.
            QueueStateError, RequestRefusedError: the store refuses the write.
            CorruptLogError: a header can't be read. This object owns no topic any more.
        """
        deadline = self._owned.deadline()
        return drive(self._owned.append(make, deadline), self._port, deadline)


class LoopOwnedLog(_Owned):
    """Like `OwnedLog`, for an event loop. Made by `LoopLog.own`. Only one coroutine at a time may
    use it; any thread may call `own` and `disown` meanwhile. A coroutine that is cancelled leaves
    the outcome of its append unknown: `on_settled` reports it later.

    Args:
        owned: decides what to write.
        port: reads and writes the queue's rows.
    """

    def __init__(self, owned: OwnedPartition, port: AsyncLogPort) -> None:
        super().__init__(owned)
        self._port = port

    async def open(self) -> int:
        """Like `OwnedLog.open`."""
        deadline = self._owned.deadline()
        return await drive_in_loop(self._owned.open(deadline), self._port, deadline)

    async def close_ranges(self, topics: Mapping[str, int], floor: int = 0) -> int:
        """Like `OwnedLog.close_ranges`."""
        deadline = self._owned.deadline()
        work = self._owned.close_ranges(topics, floor, deadline)
        return await drive_in_loop(work, self._port, deadline)

    async def append(self, make: Callable[[], Made | None]) -> int | None:
        """Like `OwnedLog.append`."""
        deadline = self._owned.deadline()
        return await drive_in_loop(self._owned.append(make, deadline), self._port, deadline)
