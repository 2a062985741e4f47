"""Dead letters, for threads."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from hqueue.consume.scan import Scan
from hqueue.consume.scanners import Scanner, open_scanner
from hqueue.dead_letters.steps import DeadLetterSteps, OnUnreadable
from hqueue.dead_letters.wrapping import DeadLetter
from hqueue.handle import QueueLog
from hqueue.message import Message, ReceivedMessage
from hqueue.runtime.loop import blocking
from hqueue.runtime.steps import Wait, Work, each_given

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
        subscriber: str,
        partition: int | None = None,
        *,
        on_unreadable: OnUnreadable | None = None,
    ) -> Iterator[DeadLetter]:
        """Iterate over a subscriber's dead letters that were not redriven yet, each partition in
        its order.

        Args:
            subscriber: the subscriber's name.
            partition: the partition; all if None.
            on_unreadable: called with each message under the subscriber's topics that is neither a
                dead letter nor a redrive, or whose original can't be read, and with the reason. The
                iteration continues after it. If None, such messages are logged, at most once a
                second.

        Raises:
            As `Queue.scan`.
        """
        opened: list[Scanner] = []
        work = self._steps(opened).waiting(subscriber, partition, on_unreadable)
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
        """Deliver dead letters to their subscriber again, and to no other. Returns how many.

        They are delivered like new messages: with new IDs, after the messages that the partition
        has already.

        Raises:
            InvalidInputError: the value of a dead letter has expired.
            As `Queue.put`. Some of the dead letters may have been redriven.
        """
        return self._steps([]).redrive(letters)

    def redriven(self, message: ReceivedMessage) -> ReceivedMessage | None:
        """The message that a redrive delivers, like `unwrap`. A message under a subscriber's topic
        of redrives that is not a redrive is logged, and the result is None.

        Raises:
            As `Queue.scan`, if the original can't be read now.
        """
        opened: list[Scanner] = []
        with _closing(opened):
            return self._steps(opened).redriven(message)

    def unwrap(self, message: ReceivedMessage) -> ReceivedMessage | None:
        """The message that a redrive delivers: the original under the redrive's ID; None if the
        original has expired.

        Raises:
            UnsupportedFormatError: the message is not a redrive.
        """
        opened: list[Scanner] = []
        with _closing(opened):
            return self._steps(opened).unwrap(message)

    def _steps(self, opened: list[Scanner]) -> DeadLetterSteps:
        """The steps of one call, that note which scanners they open."""

        def open_scan(partition: int | None, scan: Scan) -> Scanner:
            scanner = open_scanner(self._log.reader, partition, scan)
            opened.append(scanner)
            return scanner

        def put(messages: list[Message], partition: int) -> Wait:
            return blocking(partial(self._log.appender.put_system, messages, partition))

        return DeadLetterSteps(open_scan, put)


@contextlib.contextmanager
def _closing(scanners: list[Scanner]) -> Iterator[None]:
    """Close what is opened in a block."""
    try:
        yield
    finally:
        for scanner in scanners:
            scanner.close()


def _nothing(step: object) -> None:
    """There are no steps but those that wait."""
