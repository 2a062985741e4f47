"""The positions of a consumer in its partitions, and where it begins."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any

from hqueue.errors import InvalidInputError, OffsetOutOfRangeError, UnsupportedFormatError
from hqueue.groups.consumer_options import ERROR
from hqueue.groups.offsets import UNSET, Offset, Position
from hqueue.handle import QueueLog
from hqueue.log.offsets import PartitionOffsets
from hqueue.message_id import MessageID
from hqueue.metadata import PartitionKey
from hqueue.position import EARLIEST, LATEST, Start, as_message_id, is_time
from hqueue.runtime.logs import Log
from hqueue.runtime.steps import Wait, Work

__all__ = [
    "BEGINNING",
    "Positions",
    "end_of",
    "is_older",
    "is_to_come",
    "position_since",
    "start_positions",
    "unreadable_offset",
]

logger = Log(__name__)

BEGINNING = Position(MessageID(0, 1))
"""The position before every message. It is not `UNSET`."""


def end_of(offsets: PartitionOffsets) -> Position:
    """The position after the last message of a partition."""
    return Position(max(offsets.end, BEGINNING.next), offsets.end_ordinal)


def position_since(time: MessageID, end: Position) -> Position:
    """The position of the first message since a time, in a partition with this end. If the
    partition ends before the time, its end, so that no later message is skipped, even if a writer's
    clock is behind.
    """
    position = Position(max(time, BEGINNING.next))
    return position if position.next < end.next else end


def is_older(offsets: PartitionOffsets, position: MessageID, clock_skew_ms_max: int) -> bool:
    """Whether a partition's log certainly began before a position was reached in it: its oldest
    message was written earlier than that, by more than two writers' clocks may differ.
    """
    oldest = offsets.beginning
    return oldest is not None and oldest.timestamp < position.timestamp - 2 * clock_skew_ms_max


def is_to_come(time: MessageID, log: QueueLog) -> Work[Any, bool]:
    """Whether a time lies in the future, by the store's clock."""
    ask = log.appender.store_clock().now_ms
    now_ms: int = yield Wait(partial(log.reader.do, ask), partial(log.loop_reader.do, ask))
    return time.timestamp > now_ms + log.settings.clock_skew_ms_max


def start_positions(
    log: QueueLog, start: Start, partitions: Sequence[int]
) -> Work[Any, dict[int, Position]]:
    """The position of a start in each partition now. If a partition ends before the start, its
    position is the partition's end.

    Raises:
        InvalidInputError: the start is an ID beyond the end of every partition, or a future time.
    """
    if start == EARLIEST:
        return dict.fromkeys(partitions, BEGINNING)
    offsets: Sequence[PartitionOffsets] = yield Wait(
        partial(log.reader.offsets, partitions), partial(log.loop_reader.offsets, partitions)
    )
    ends = {each.partition: end_of(each) for each in offsets}
    if start == LATEST:
        return ends
    at = as_message_id(start)
    beyond = all(at > end.next for end in ends.values())
    if beyond and (not is_time(start) or (yield from is_to_come(at, log))):
        raise InvalidInputError(
            "this start lies beyond the end of the log: give 'latest' to start with the next "
            "message",
            queue=log.name,
            start=str(start),
        )
    return {partition: position_since(at, end) for partition, end in ends.items()}


def unreadable_offset(
    key: PartitionKey, reason: UnsupportedFormatError, **facts: object
) -> UnsupportedFormatError:
    """The error that names a partition whose group offset can't be read."""
    error = UnsupportedFormatError(
        "the record of a group's offset can't be read: seek the partition to a position, or "
        "reset the group"
    )
    error.facts = {**key._asdict(), "problem": reason.text, **reason.facts, **facts}
    error.__cause__ = reason
    return error


class Positions:
    """The positions of the partitions that a consumer has. The consumer's thread uses it.

    Args:
        log: work that opens the log of a queue which has a partition of this number.
        reset: the value of ``auto_offset_reset``.
    """

    def __init__(self, log: Callable[[str, int], Work[Any, QueueLog]], reset: str) -> None:
        self._log = log
        self._reset = reset
        self._positions: dict[PartitionKey, Position] = {}
        self._committed: dict[PartitionKey, Position] = {}
        self._unreadable: dict[PartitionKey, UnsupportedFormatError] = {}
        """Why the group's offset can't be read, for partitions that have no other position."""
        self._unreported: set[PartitionKey] = set()
        self._had: set[PartitionKey] = set()
        """All partitions that the consumer ever had."""

    def __contains__(self, key: PartitionKey) -> bool:
        return key in self._positions

    def __getitem__(self, key: PartitionKey) -> Position:
        return self._positions[key]

    def __setitem__(self, key: PartitionKey, position: Position) -> None:
        self._positions[key] = position
        self._unreadable.pop(key, None)

    def keys(self) -> set[PartitionKey]:
        """The partitions that the consumer has."""
        return set(self._positions)

    def gave_up(self, key: PartitionKey) -> bool:
        """Whether the consumer had this partition and has it no more."""
        return key in self._had and key not in self._positions

    def begin(self, assigned: Mapping[PartitionKey, Offset]) -> None:
        """Add these partitions, with the group's offsets as their positions."""
        self._had.update(assigned)
        for key, offset in assigned.items():
            self[key] = self._committed[key] = offset.position
            if offset.unreadable is not None:
                self._unreadable[key] = offset.unreadable
                self._unreported.add(key)

    def remove(self, keys: Iterable[PartitionKey]) -> None:
        """Remove these partitions."""
        for key in keys:
            self._positions.pop(key, None)
            self._committed.pop(key, None)
            self._unreadable.pop(key, None)

    @property
    def unreadable(self) -> AbstractSet[PartitionKey]:
        """The partitions that the consumer has and can't begin, since the group's offset can't be
        read.
        """
        return self._unreadable.keys()

    def report(self, keys: Collection[PartitionKey]) -> None:
        """Raise an error if one of these partitions is `unreadable`: once each time that the
        consumer gets the partition, so that the others go on.

        Raises:
            UnsupportedFormatError: the group's offset can't be read.
        """
        if not self._unreported:
            return  # Nearly always.
        self._unreported &= self._unreadable.keys()
        for key in sorted(self._unreported.intersection(keys)):
            self._unreported.discard(key)
            raise unreadable_offset(key, self._unreadable[key])

    def moved(self, keys: Iterable[PartitionKey]) -> dict[PartitionKey, Position]:
        """The positions of these partitions, as far as they are not committed."""
        return self.changed({key: self._positions[key] for key in keys})

    def changed(self, positions: Mapping[PartitionKey, Position]) -> dict[PartitionKey, Position]:
        """Those of these positions that are not committed yet."""
        return {
            key: position
            for key, position in positions.items()
            if position not in (UNSET, self._committed.get(key))
        }

    def now(self) -> dict[PartitionKey, Position]:
        """All positions at one moment. Any thread may call this."""
        return self._positions.copy()

    def committed(self, positions: Mapping[PartitionKey, Position]) -> None:
        """Note that these positions are committed. Partitions that the consumer has no more are
        skipped.
        """
        for key in positions.keys() & self._committed.keys():
            self._committed[key] = positions[key]

    def resolve(self, key: PartitionKey) -> Work[Any, bool]:
        """Find a position at which the consumer can begin. Returns whether the group must learn the
        position, too: messages that are written from now on are the group's, even if this consumer
        never reads them.

        A committed offset is used as it is. Reading then shows whether the log is still the one in
        which the offset was reached: see `begin_again`.

        Raises:
            OffsetOutOfRangeError: no offset was committed, and ``auto_offset_reset`` is ``error``.
            UnsupportedFormatError: the group's offset can't be read.
            StoreUnavailableError: the partition's end can't be read now.
        """
        if key in self._unreadable:
            raise unreadable_offset(key, self._unreadable[key])
        if self._positions[key].next != UNSET.next:
            return False
        self._refuse("the group has no offset in this partition", key, lost=None)
        latest = self._reset == LATEST
        self._positions[key] = (yield from self.end(key)) if latest else BEGINNING
        return latest

    def begin_again(self, key: PartitionKey) -> Work[Any, None]:
        """Go on in a log that lacks messages which lay before the position.

        If the log is older than the position, only its newest messages are gone, as after the loss
        of power of all servers: the consumer goes on at the position, or at the log's end where
        the log ends before. Otherwise the log in which the position was reached is gone, since the
        queue was truncated, or was deleted and created again: the consumer goes on with the first
        message. The whole new log was written after the position was reached, so ``latest`` skips
        none of it.

        Raises:
            OffsetOutOfRangeError: ``auto_offset_reset`` is ``error``.
            StoreUnavailableError: the partition's ends can't be read now.
        """
        log = yield from self._log(*key)
        offsets = yield from self._offsets(key)
        position = self._positions[key].next
        known = not (yield from is_to_come(position, log))  # Else its writer's clock was wrong.
        if known and is_older(offsets, position, log.settings.clock_skew_ms_max):
            text = (
                "the log has lost its newest messages, which the group had consumed: the group "
                "continues after them"
            )
            again = end_of(offsets) if offsets.end < position else Position(position)
        else:
            text = (
                "the queue was truncated or created again: messages that were not consumed are gone"
            )
            again = BEGINNING
        logger.warning("%s", self._refuse(text, key, lost=None))
        self._positions[key] = again

    def lose(self, key: PartitionKey, lost: int) -> Work[Any, bool]:
        """Note that messages from the position on have expired. Returns whether the consumer goes
        on at the partition's end, and not with the next message.

        Args:
            key: the partition.
            lost: how many messages have expired.

        Raises:
            OffsetOutOfRangeError: ``auto_offset_reset`` is ``error``.
        """
        text = "messages expired before they were consumed"
        logger.warning("%s", self._refuse(text, key, lost=lost))
        if self._reset == LATEST:
            self._positions[key] = yield from self.end(key)
        return self._reset == LATEST

    def end(self, key: PartitionKey) -> Work[Any, Position]:
        """The position after the last message that is there now. Sends two small requests."""
        return end_of((yield from self._offsets(key)))

    def _offsets(self, key: PartitionKey) -> Work[Any, PartitionOffsets]:
        """Where a partition begins and ends now."""
        reader = (yield from self._log(*key)).reader
        numbers = [key.partition]
        found: Sequence[PartitionOffsets] = yield Wait(
            partial(reader.offsets, numbers), partial(reader.in_loop.offsets, numbers)
        )
        return found[0]

    def check_position(self, key: PartitionKey, message_id: MessageID) -> Work[Any, Position]:
        """The position of an ID, in a partition that the consumer has.

        Raises:
            InvalidInputError: the ID lies beyond the partition's end.
        """
        known = self._positions[key]
        if message_id == known.next:
            return known
        if message_id > known.next:
            end = yield from self.end(key)
            if message_id > end.next:
                raise self._beyond(key, message_id, end.next)
        return Position(max(message_id, BEGINNING.next))

    def since(self, key: PartitionKey, time: MessageID) -> Work[Any, Position]:
        """The position of the first message since a time, in a partition that the consumer has. If
        there is no such message, the partition's end.

        Raises:
            InvalidInputError: the time lies in the future.
        """
        if time <= self._positions[key].next:
            return Position(max(time, BEGINNING.next))
        end = yield from self.end(key)
        if time > end.next and (yield from is_to_come(time, (yield from self._log(*key)))):
            raise self._beyond(key, time, end.next)
        return position_since(time, end)

    def check(self, keys: Collection[PartitionKey]) -> None:
        """Check that the consumer has all of these partitions.

        Raises:
            InvalidInputError: the consumer does not have one of them.
        """
        for key in keys:
            if key not in self._positions:
                raise InvalidInputError(
                    "this partition is not assigned to the consumer",
                    queue=key.queue,
                    partition=key.partition,
                )

    def _beyond(self, key: PartitionKey, position: MessageID, end: MessageID) -> InvalidInputError:
        return InvalidInputError(
            "the position lies beyond the end of the partition",
            queue=key.queue,
            partition=key.partition,
            position=str(position),
            end=str(end),
        )

    def _refuse(self, text: str, key: PartitionKey, lost: int | None) -> OffsetOutOfRangeError:
        """Raise this if ``auto_offset_reset`` is ``error``; else return it, for the log."""
        error = OffsetOutOfRangeError(
            text,
            queue=key.queue,
            partition=key.partition,
            offset=str(self._positions[key].next),
            lost=lost,
        )
        if self._reset == ERROR:
            raise error
        return error
