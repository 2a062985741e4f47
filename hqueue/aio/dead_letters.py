"""Dead letters in an event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from functools import partial
from typing import Any

from hqueue.aio.scanner import Scanner
from hqueue.consume.scan import Scan
from hqueue.dead_letters.steps import DeadLetterSteps, OnUnreadable
from hqueue.dead_letters.wrapping import DeadLetter
from hqueue.handle import QueueLog
from hqueue.message import Message, ReceivedMessage
from hqueue.runtime.steps import Wait, each_given_in_loop
from hqueue.settings.attributes import check_partition

__all__ = ["DeadLetters"]


class DeadLetters:
    """The dead letters in a queue, to read and to redrive, in an event loop. Like
    `hqueue.DeadLetters`. Made by `Queue.dead_letters`.

    If a caller of `put` or `redrive` is cancelled, some of the dead letters may have been written,
    now or in a moment.

    Args:
        log: the queue's log.
    """

    def __init__(self, log: QueueLog) -> None:
        self._log = log

    async def waiting(
        self,
        subscriber: str,
        partition: int | None = None,
        *,
        on_unreadable: OnUnreadable | None = None,
    ) -> AsyncIterator[DeadLetter]:
        """Iterate over a subscriber's dead letters that were not redriven yet, each partition in
        its order. Like `hqueue.DeadLetters.waiting`.
        """
        opened: list[Scanner] = []
        work = self._steps(opened).waiting(subscriber, partition, on_unreadable)
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
        """Deliver dead letters to their subscriber again, and to no other. Returns how many. Like
        `hqueue.DeadLetters.redrive`.
        """
        return await self._steps([]).redrive.in_loop(letters)

    async def redriven(self, message: ReceivedMessage) -> ReceivedMessage | None:
        """The message that a redrive delivers, or None. Like `hqueue.DeadLetters.redriven`."""
        opened: list[Scanner] = []
        try:
            return await self._steps(opened).redriven.in_loop(message)
        finally:
            await _close(opened)

    async def unwrap(self, message: ReceivedMessage) -> ReceivedMessage | None:
        """The message that a redrive delivers. Like `hqueue.DeadLetters.unwrap`."""
        opened: list[Scanner] = []
        try:
            return await self._steps(opened).unwrap.in_loop(message)
        finally:
            await _close(opened)

    def _steps(self, opened: list[Scanner]) -> DeadLetterSteps:
        """The steps of one call, that note which scanners they open."""

        def open_scan(partition: int | None, scan: Scan) -> Scanner:
            count = self._log.partitions
            chosen = range(count) if partition is None else [check_partition(partition, count)]
            scanner = Scanner(self._log.loop_reader, dict.fromkeys(chosen, scan))
            opened.append(scanner)
            return scanner

        def put(messages: list[Message], partition: int) -> Wait:
            call = partial(self._log.loop_appender.put_system, messages, partition)
            return Wait(call, call)

        return DeadLetterSteps(open_scan, put)


async def _close(opened: list[Scanner]) -> None:
    for scanner in opened:
        await scanner.close()


async def _nothing(step: Any) -> None:
    """There are no steps but those that wait."""
