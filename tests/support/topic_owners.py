"""What a hub does with one topic, "t", in a process of no hub."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from hqueue import Message, MessageID
from hqueue.format.cells import encode_bodies
from hqueue.log.owned_writer import OwnedBatch, OwnedPartitionWriter, made
from hqueue.log.steps import Work
from hqueue.metadata.managers import LogRange, TopicMetadata, TopicPersistenceInfo
from hqueue.metadata.ports import NEW, Version
from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline, drive
from hqueue.store import StorePort

__all__ = ["TopicOwner"]


Result = TypeVar("Result")


class TopicOwner:
    """An owner of topic "t", in a queue of two partitions, that writes to one of them."""

    def __init__(self, ranges: TopicMetadata, store: StorePort, queue: str, partition: int) -> None:
        self.ranges = ranges
        self.fenced: list[tuple[str, int]] = []
        self._log = store.log(queue)
        self._writers = [
            OwnedPartitionWriter(
                each,
                on_fence=lambda topic, epoch: self.fenced.append((topic, epoch)),
                on_settled=lambda batch, appended: None,
            )
            for each in range(2)
        ]
        for writer in self._writers:
            self.do(writer.open)
        self._partition = partition
        self._floor = 0

    def do(self, decide: Callable[[Deadline], Work[Result]]) -> Result:
        deadline = Deadline(SYSTEM_CLOCK, 60_000)
        return drive(decide(deadline), self._log, deadline)

    def read(self) -> tuple[list[LogRange], Version]:
        known = self.ranges.persistence.read_topic_persistence_info("t").result()
        return ([], NEW) if known is None else (list(known.value.ranges), known.version)

    def take(self) -> None:
        """Take the topic over."""
        self.change(*self.read())

    def change(self, ranges: list[LogRange], version: Version) -> None:
        """Take it over from where it lay when it was read."""
        writer, epoch, first = self._writers[self._partition], 1, None
        if ranges:
            last = ranges[-1]
            epoch = last.epoch + 1
            closed = self.close("t", epoch, last)
            ranges[-1] = dataclasses.replace(last, last=closed)
            first = MessageID.from_int(closed + 1)
        writer.own("t", epoch)
        first = writer.end if first is None else first
        opened = LogRange(self._partition, first, None, epoch, marked=True)
        new = TopicPersistenceInfo((*ranges, opened))
        self.ranges.persistence.write_topic_persistence_info("t", new, version).result()
        self._floor = int(first)

    def close(self, topic: str, epoch: int, last: LogRange) -> MessageID:
        """Append the control record that ends a topic's last range."""
        writer = self._writers[last.partition]
        return self.do(partial(writer.close_ranges, {topic: epoch}, floor=int(last.first)))

    def publish(self, *values: bytes) -> None:
        for value in values:
            batch = OwnedBatch(encode_bodies([Message("t", value)]), self._floor)
            writer = self._writers[self._partition]
            assert self.do(partial(writer.append, partial(made, batch))) is not None
