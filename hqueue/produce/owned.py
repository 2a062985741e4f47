"""One partition, to be written by the owner of topics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hqueue.format import CODECS, Bodies, compressed, encode_bodies
from hqueue.log import Appended, PartitionWriter
from hqueue.log.context import QueueContext
from hqueue.log.owned import OwnedBatch, OwnedPartitionWriter
from hqueue.log.ports import WritePort
from hqueue.log.skew import SkewGuard
from hqueue.message import Message
from hqueue.produce.header_reaper import HeaderReaper

__all__ = ["OwnedLog"]


class OwnedLog:
    """As `OwnedPartitionWriter`, for messages: they are encoded and compressed, each call is
    bounded by ``operation_timeout_ms``, the clock is checked, workers are notified, and old headers
    are collected. Used by one thread, but for `own` and `disown`.

    Args:
        partition: the partition.
        context: the queue.
        port: its rows.
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
        port: WritePort,
        *,
        skew: SkewGuard,
        reaper: HeaderReaper,
        on_append: Callable[[int, Appended, Bodies], None],
        on_fence: Callable[[str, int], None],
        on_settled: Callable[[int | None], None],
    ) -> None:
        self._on_settled = on_settled
        self.partition = partition
        self._context = context
        self._skew = skew
        self._reaper = reaper
        self._on_append = on_append
        self._codec = CODECS[context.settings.codec]
        self._collecting = PartitionWriter(partition, port, context.clock)
        self._writer = OwnedPartitionWriter(
            partition,
            port,
            on_fence=on_fence,
            on_settled=self._settled,
            clock=context.clock,
        )

    def open(self) -> int:
        """As `OwnedPartitionWriter.open`; the ID that no message appended later is below."""
        self._writer.open(self._context.deadline())
        return int(self._writer.end)

    def own(self, topic: str, epoch: int) -> None:
        """As `OwnedPartitionWriter.own`."""
        self._writer.own(topic, epoch)

    def disown(self, topic: str) -> None:
        """As `OwnedPartitionWriter.disown`."""
        self._writer.disown(topic)

    @property
    def end(self) -> int:
        """As `OwnedPartitionWriter.end`."""
        return int(self._writer.end)

    def close_ranges(self, topics: Mapping[str, int], floor: int = 0) -> int:
        """As `OwnedPartitionWriter.close_ranges`; the ID of the record."""
        deadline = self._context.deadline()
        self._skew.check(deadline)
        return int(self._writer.close_ranges(topics, deadline, floor=floor))

    def append(
        self, make: Callable[[], tuple[Sequence[Message], int, Mapping[str, int]] | None]
    ) -> int | None:
        """As `OwnedPartitionWriter.append`, of messages, the floor of their IDs, and the epoch by
        which those of each topic were taken in.

        Returns:
            The ID of the first one; the others' follow. None if `make` gave nothing.
        """
        deadline = self._context.deadline()
        self._skew.check(deadline)
        bodies: Bodies | None = None

        def encoded() -> OwnedBatch | None:
            nonlocal bodies
            made = make()
            if made is None:
                return None
            messages, floor, epochs = made
            bodies = compressed(encode_bodies(messages), self._codec)
            return OwnedBatch(bodies, floor, epochs)

        appended = self._writer.append(encoded, deadline)
        if appended is None:
            return None
        assert bodies is not None
        self._on_append(self.partition, appended, bodies)
        self._reaper.collect_if_due(self._collecting)
        return appended.base

    def _settled(self, batch: OwnedBatch, appended: Appended | None) -> None:
        if appended is not None:
            self._on_append(self.partition, appended, batch.bodies)
        self._on_settled(None if appended is None else appended.base)
