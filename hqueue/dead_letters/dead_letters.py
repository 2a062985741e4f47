"""Dead letters, for threads."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hqueue.consume.scan import Scan
from hqueue.consume.scanners import Scanner
from hqueue.dead_letters.steps import DeadLetterSteps, OnUnreadable, by_partition, steps_of
from hqueue.dead_letters.waiting import Wanted
from hqueue.dead_letters.wrapping import DeadLetter
from hqueue.handle import QueueLog
from hqueue.message import ReceivedMessage
from hqueue.position import Position
from hqueue.runtime.steps import Work, each_given

__all__ = ["DeadLetters"]


class DeadLetters:
    """The dead letters in a queue, to read and to redrive. Made by `Queue.dead_letters`.

    Args:
        log: the queue's log.
    """

    def __init__(self, log: QueueLog) -> None:
        self._log = log

    def waiting(
        self,
        subscriber: str | None = None,
        partition: int | None = None,
        *,
        group: str | None = None,
        topic: str | None = None,
        reason: str | None = None,
        since: Position | None = None,
        until: Position | None = None,
        on_unreadable: OnUnreadable | None = None,
    ) -> Iterator[DeadLetter]:
        """Iterate over dead letters that were neither redriven nor deleted yet: the owners one
        after another, and each partition in the order of its log.

        The iterator holds the IDs of up to 100,000 dead letters, and one dead letter at a time. A
        message that became a dead letter several times is returned once, if no more than 100,000
        dead letters wait.

        Args:
            subscriber: the subscriber's name; or
            group: the group's name. If both are None, the iteration includes all subscribers and
                groups, 10,000 at most; the headers of the log are read to find them.
            partition: the partition; all if None.
            topic: only dead letters whose original has this topic.
            reason: only dead letters whose reason contains this text, in upper or lower case.
            since: only dead letters that were put at this position or later.
            until: only dead letters that were put before this position.
            on_unreadable: called with each message under the owner's topics that is neither a dead
                letter nor a redrive, or whose original can't be read, and with the reason. The
                iteration continues after the message. If None, such messages are logged, at most
                once a second.

        Raises:
            InvalidInputError: an argument is out of range.
            As `Queue.scan`.
        """
        wanted = Wanted(subscriber, group, partition, topic, reason, since, until)
        opened: list[Scanner] = []
        work = self._steps(opened).waiting(wanted, on_unreadable)
        return self._each(work, opened)

    def _each(self, work: Work[Any, None], opened: list[Scanner]) -> Iterator[DeadLetter]:
        with _closing(opened):
            yield from each_given(work, _nothing)

    def put(self, letters: Iterable[DeadLetter]) -> None:
        """Write dead letters, in their order, each into its message's partition. They are durable
        when the call returns.

        Raises:
            As `Queue.put`. Some of the dead letters may have been written.
        """
        self._steps([]).put(letters)

    def redrive(self, letters: Iterable[DeadLetter]) -> int:
        """Deliver dead letters to their subscriber or group again, and to no other. Returns how
        many were redriven.

        They are delivered like new messages: with new IDs, after the messages that the partition
        already has. The same append delivers a dead letter and ends its waiting, so a crash can't
        separate the two. A redrive that is repeated delivers again: after an error with an unknown
        outcome, look first which dead letters still wait.

        Raises:
            InvalidInputError: the value of a dead letter has expired, or the dead letter lies in
                another queue.
            As `Queue.put`. Some of the dead letters may have been redriven.
        """
        return self._steps([]).redrive(letters)

    def delete(self, letters: Iterable[DeadLetter]) -> int:
        """Delete dead letters, so that they wait no more and are not delivered. Returns how many
        were deleted.

        Their bytes stay in the log until they expire, as those of all messages do. Deleting a dead
        letter again changes nothing.

        Raises:
            InvalidInputError: a dead letter was never put, or lies in another queue.
            As `Queue.put`. Some of the dead letters may have been deleted.
        """
        return self._steps([]).delete(letters)

    def redriven(self, message: ReceivedMessage) -> ReceivedMessage | None:
        """The message that a redrive delivers, like `unwrap`. If the message is not a valid
        redrive, it is logged, and the result is None.

        Raises:
            As `Queue.scan`, if the original can't be read now.
        """
        return self._steps([]).redriven(message)

    def unwrap(self, message: ReceivedMessage) -> ReceivedMessage | None:
        """The message that a redrive delivers: the original under the redrive's ID; None if the
        original has expired, or if the message deletes a dead letter.

        Raises:
            UnsupportedFormatError: the message is not a redrive.
        """
        return self._steps([]).unwrap(message)

    def _steps(self, opened: list[Scanner]) -> DeadLetterSteps:
        """The steps of one call. They add the scanners that they open to `opened`."""

        def open_scan(scans: Mapping[int, Scan] | Scan) -> Scanner:
            reader = self._log.reader
            scanner = Scanner(reader, by_partition(scans, reader.partitions))
            opened.append(scanner)
            return scanner

        return steps_of(self._log, open_scan)


@contextlib.contextmanager
def _closing(scanners: list[Scanner]) -> Iterator[None]:
    """Close these scanners, and those that the block adds, when the block ends."""
    try:
        yield
    finally:
        for scanner in scanners:
            scanner.close()


def _nothing(step: object) -> None:
    """Does nothing: these steps only wait and give."""
