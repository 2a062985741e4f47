"""A stream of a consumer: hands out the messages of some of the consumer's partitions."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, NamedTuple

from hqueue.consume.intake import FetchedBatches, Intake
from hqueue.consume.scan import Scan
from hqueue.dead_letters.of_groups import GroupDeadLetters, delivered_unasked
from hqueue.errors import HQueueError
from hqueue.groups.handout import Handout
from hqueue.groups.offsets import Position
from hqueue.groups.positions import BEGINNING, Positions
from hqueue.handle import QueueLog
from hqueue.log import Batch
from hqueue.log.offsets import passed_by
from hqueue.message_id import MessageID
from hqueue.metadata import PartitionKey
from hqueue.runtime.clock import Clock
from hqueue.runtime.program_loop import ProgramLoop
from hqueue.runtime.steps import Wait, Work
from hqueue.watching.observers import OBSERVERS

__all__ = ["Stream"]


class _Read(NamedTuple):
    """How a partition is read."""

    log: QueueLog
    topics: Collection[str]
    letters: GroupDeadLetters | None
    """The dead letters of the consumer's group."""

    def delivered(self, batches: Sequence[Batch]) -> Work[Any, Sequence[Batch]]:
        """Batches that were read, as the consumer gets them."""
        if self.letters is not None:
            return (yield from self.letters.delivered(batches, self.topics))
        return batches if self.topics else delivered_unasked(batches)


class Stream:
    """Hands out messages of some of a consumer's partitions. One thread or task takes the messages.
    By taking the next one it says that it is done with those before.

    A thread that holds the consumer's lock may change the partitions.

    Args:
        positions: the consumer's positions.
        group: the group's name; None for a consumer without a group.
        bytes_max: as `Intake` takes it.
        clock: where time comes from.
        loop: as `Intake` takes it.
    """

    def __init__(
        self,
        positions: Positions,
        group: str | None,
        bytes_max: int,
        clock: Clock,
        loop: ProgramLoop | None = None,
    ) -> None:
        self.keys: set[PartitionKey] = set()
        """The stream's partitions."""
        self.to_begin: set[PartitionKey] = set()
        """The partitions that must be read from their positions on."""
        self.revoked: set[PartitionKey] = set()
        """Partitions to give up when the program is done with the messages that were handed out."""
        self.attention = False
        """Whether something must be done before the next message."""
        self.valid_until_s = float("-inf")
        """Until when messages may be handed out without another look, by `Consumption.now_s`."""
        self.asked_ms = clock.monotonic_ms()
        """When the stream was last asked for messages."""
        self.handout: Handout | None = None
        """The messages that are being handed out."""
        self.in_columns = False
        """Whether the program asks for record batches: then no messages are decoded."""
        self.doubted = False
        """Whether a signal handler interrupted the thread while messages were handed out to it: the
        next message may have been lost on its way."""
        self._positions = positions
        self._group = group
        self._bytes_max = bytes_max
        self._clock = clock
        self._loop = loop
        self._reads: dict[PartitionKey, _Read] = {}
        """How it reads each partition."""
        self._fetched: FetchedBatches[PartitionKey] | None = None
        """Batches that came, until all requests before their hand-out are answered."""
        self._intake: Intake[PartitionKey] = Intake(bytes_max, clock, loop)

    def notice(self) -> None:
        """Wake the thread that waits for messages, since something must be done. Any thread may
        call this.
        """
        self.attention = True
        self._intake.wake()

    def take(self, timeout_ms: float) -> Work[Any, bool]:
        """Whether batches for `hand_out` came in time. Raises like `Intake.take`."""
        if self._fetched is None:
            take = partial(self._intake.take, timeout_ms)
            self._fetched = yield Wait(take, partial(self._intake.take_in_loop, timeout_ms))
        return self._fetched is not None

    def begin(self, key: PartitionKey, log: QueueLog, topics: Collection[str]) -> None:
        """Read a partition from its position on, with the redrives to the group."""
        position = self._positions[key]
        letters = None if self._group is None else GroupDeadLetters(log, self._group)
        self._reads[key] = _Read(log, topics, letters)
        read_topics = topics if letters is None else letters.read_topics(topics)
        scan = Scan(position.next, topics=read_topics)
        self._intake.add(key, log.reader, key.partition, scan, position.ordinal)
        self.to_begin.discard(key)

    def hand_out(self) -> Work[Any, None]:
        """Hand out the batches that came next in a partition, unless earlier ones are missing.

        Raises:
            OffsetOutOfRangeError: as `Positions.lose` and `Positions.begin_again`. It is raised
                again until the program seeks.
            CorruptLogError, StoreUnavailableError: as `Handout.advance`. It is raised again as long
                as the first batch can't be read.
        """
        fetched = self._fetched
        assert fetched is not None
        key = fetched.key
        if key not in self._intake:
            self._fetched = None  # It was given up meanwhile.
            return
        position = self._positions[key]
        begun = position.next > BEGINNING.next
        another = fetched.short and begun
        if fetched.batches and position.ordinal is not None:
            header = fetched.batches[0].header
            another = passed_by(header, position.next) < position.ordinal
        lost = fetched.expired if begun else 0
        try:
            if another:
                yield from self._positions.begin_again(key)
            if another or (lost and (yield from self._positions.lose(key, lost))):
                self.restart([key])
                return
            if fetched.batches:
                batches = yield from self._reads[key].delivered(fetched.batches)
                fetched = dataclasses.replace(fetched, batches=batches)
            if fetched.batches:
                in_loop = None if self._loop is None else self._reads[key].log.loop_reader
                handout = Handout(fetched, self._group, in_loop)
                if self.in_columns:
                    handout.begin()
                else:
                    yield from handout.advance.steps()
                self.handout = handout
            else:
                cursor = MessageID.from_int(fetched.cursor)
                self._positions[key] = Position(cursor, fetched.ordinal)
        except HQueueError:
            if fetched.short:
                self._fetched = None
            else:
                self.restart([key])
            raise
        self._fetched = None

    def settle(self) -> None:
        """Note that the program is done with all messages handed out so far. The thread that takes
        messages says so. Before that, no position passes the messages that it works on.
        """
        handout = self.handout
        if handout is not None and OBSERVERS:
            handout.report()
        if handout is not None and handout.position is not None:
            self._positions[handout.key] = handout.position
            if handout.over:
                self.handout = None
        if self.doubted:
            self._begin_again()

    def done(self) -> dict[PartitionKey, Position]:
        """The positions up to which the program is done with messages and that are not committed.
        Any thread may call this, also while the program works on a message.
        """
        positions = {key: at for key, at in self._positions.now().items() if key in self.keys}
        handout = self.handout
        done = None if handout is None else handout.done()
        if handout is not None and done is not None and handout.key in positions:
            positions[handout.key] = done
        return self._positions.changed(positions)

    def _begin_again(self) -> None:
        """Read all partitions from their positions on, which follow what the program was given."""
        self.handout = None
        self.to_begin.update(self.keys)
        self.attention = True
        self._fetched = None
        before, self._intake = self._intake, Intake(self._bytes_max, self._clock, self._loop)
        self.doubted = False
        before.close()

    def drop(self, keys: Collection[PartitionKey]) -> None:
        """Stop reading these partitions, and hand out nothing that was read of them."""
        if not keys:
            return
        self._intake.remove(keys)
        self.to_begin.difference_update(keys)
        if self.handout is not None and self.handout.key in keys:
            self.handout = None
        if self._fetched is not None and self._fetched.key in keys:
            self._fetched = None
        self.attention = True

    def remove(self, keys: Collection[PartitionKey]) -> None:
        """Take these partitions from the stream."""
        self.drop(keys)
        self.keys.difference_update(keys)
        for key in keys:
            self._reads.pop(key, None)
        self.revoked.difference_update(keys)

    def restart(self, keys: Collection[PartitionKey]) -> None:
        """Read these partitions from their positions on, and not from where reading is now."""
        self.drop(keys)
        self.to_begin.update(keys)

    def close(self) -> None:
        """Stop reading."""
        self._intake.close()
