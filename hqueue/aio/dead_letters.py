"""Dead letters in an event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

from hqueue.aio.scanner import Scanner
from hqueue.consume.scan import Scan
from hqueue.dead_letters.steps import DeadLetterSteps, OnUnreadable, by_partition, steps_of
from hqueue.dead_letters.waiting import Wanted
from hqueue.dead_letters.wrapping import DeadLetter
from hqueue.handle import QueueLog
from hqueue.message import ReceivedMessage
from hqueue.position import Position
from hqueue.runtime.steps import each_given_in_loop

__all__ = ["DeadLetters"]


class DeadLetters:
    """The dead letters in a queue, to read and to redrive, in an event loop. Like
    `hqueue.DeadLetters`. Made by `Queue.dead_letters`.

    If a caller of `put`, `redrive` or `delete` is cancelled, some of the dead letters may have been
    written, redriven or deleted, now or in a moment.

    Args:
        log: the queue's log.
    """

    def __init__(self, log: QueueLog) -> None:
        self._log = log

    async def waiting(
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
    ) -> AsyncIterator[DeadLetter]:
        """Iterate over dead letters that were neither redriven nor deleted yet. Like
        `hqueue.DeadLetters.waiting`.
        """
        wanted = Wanted(subscriber, group, partition, topic, reason, since, until)
        opened: list[Scanner] = []
        work = self._steps(opened).waiting(wanted, on_unreadable)
        try:
            async for letter in each_given_in_loop(work, _nothing):
                yield letter
        finally:
            await _close(opened)

    async def put(self, letters: Iterable[DeadLetter]) -> None:
        """Write dead letters, in their order, each into its message's partition. Like
        `hqueue.DeadLetters.put`.
        """
        await self._steps([]).put.in_loop(letters)

    async def redrive(self, letters: Iterable[DeadLetter]) -> int:
        """Deliver dead letters to their subscriber or group again, and to no other. Returns how
        many were redriven. Like `hqueue.DeadLetters.redrive`.
        """
        return await self._steps([]).redrive.in_loop(letters)

    async def delete(self, letters: Iterable[DeadLetter]) -> int:
        """Delete dead letters, so that they wait no more and are not delivered. Returns how many
        were deleted. Like `hqueue.DeadLetters.delete`.
        """
        return await self._steps([]).delete.in_loop(letters)

    async def redriven(self, message: ReceivedMessage) -> ReceivedMessage | None:
        """The message that a redrive delivers, or None. Like `hqueue.DeadLetters.redriven`."""
        return await self._steps([]).redriven.in_loop(message)

    async def unwrap(self, message: ReceivedMessage) -> ReceivedMessage | None:
        """The message that a redrive delivers. Like `hqueue.DeadLetters.unwrap`."""
        return await self._steps([]).unwrap.in_loop(message)

    def _steps(self, opened: list[Scanner]) -> DeadLetterSteps:
        """The steps of one call. They add the scanners that they open to `opened`."""

        def open_scan(scans: Mapping[int, Scan] | Scan) -> Scanner:
            reader = self._log.loop_reader
            scanner = Scanner(reader, by_partition(scans, reader.partitions))
            opened.append(scanner)
            return scanner

        return steps_of(self._log, open_scan)


async def _close(opened: list[Scanner]) -> None:
    for scanner in opened:
        await scanner.close()


async def _nothing(step: Any) -> None:
    """Does nothing: these steps only wait and give."""
