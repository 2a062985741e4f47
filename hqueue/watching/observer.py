"""What an observer of a process learns."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from hqueue.message import Headers, Message, ReceivedMessage

__all__ = ["FIRST_MAX", "End", "Observer"]

FIRST_MAX = 128
"""Observers see at most this many messages of a batch: the first ones."""

End = Callable[[Any, "BaseException | None"], object]
"""Called when something has ended, with its result, and with the error or None."""


def _ignore(result: Any, error: BaseException | None) -> None:
    pass


class Observer:
    """Watches what the process does. All methods are quick, raise nothing and may be called by any
    thread. This class ignores everything.
    """

    def put(
        self,
        queue: str,
        messages: Sequence[Message],
        count: int,
        partition: int | None,
        *,
        changeable: bool,
    ) -> tuple[Sequence[Message], End]:
        """A put or publish begins, in the caller's context.

        Args:
            queue: the queue.
            messages: the messages, or the first ones.
            count: how many there are.
            partition: the partition that the caller chose; None for any.
            changeable: whether the messages may get more headers.

        Returns:
            The messages to put, and the function that is called with their IDs at the end.
        """
        return messages, _ignore

    def create(self, queue: str, headers: Headers, size: int) -> Headers:
        """A message of this many bytes is given to a producer. Returns the headers to put."""
        return headers

    def append(self, queue: str, count: int, size: int) -> End:
        """A batch is appended to the log of a queue, with this many messages and bytes."""
        return _ignore

    def received(
        self, queue: str, group: str | None, first: Sequence[ReceivedMessage], count: int
    ) -> None:
        """A consumer handed out messages of a partition.

        Args:
            queue: the queue.
            group: the consumer's group; None without a group.
            first: the first messages; none if they were handed out as a record batch.
            count: how many messages there are.
        """

    def settle(self, queue: str, group: str, answer: str, count: int) -> End:
        """Offsets or answers are written: ``commit``, or ``acknowledge`` for a share group.

        Args:
            queue: the queue; empty if there are several.
            group: the group.
            answer: ``commit`` or ``acknowledge``.
            count: of how many partitions.
        """
        return _ignore

    def answered(self, queue: str, group: str, answer: str, count: int) -> None:
        """The program answered for messages of a share group: ``done``, ``release``, ``reject``."""

    def process(
        self, subscriber: str, messages: Sequence[ReceivedMessage]
    ) -> contextlib.AbstractContextManager[object]:
        """The block in which listeners process messages."""
        return contextlib.nullcontext()

    def deliver(self, queue: str, subscriber: str, call: Any) -> End:
        """A worker or a hub calls a subscriber.

        Args:
            queue: the queue.
            subscriber: the subscriber's name.
            call: the call, which has a `count` and gives its first messages by ``messages(count)``.
        """
        return _ignore
