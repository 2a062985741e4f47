"""The answers that a program gives for messages of a share group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from hqueue.errors import BufferFullError
from hqueue.metadata import PartitionKey
from hqueue.sharing.acquired_message import AcquiredMessage
from hqueue.sharing.hands import Hands
from hqueue.sharing.held import Answer
from hqueue.sharing.membership import ShareMembership
from hqueue.watching.observers import OBSERVERS

__all__ = ["Answering"]


class Answering:
    """Notes answers, which the consumer writes later. Any thread may call the methods.

    Args:
        membership: the consumer's membership in its group.
        hands: what the consumer has of each partition. A queue that was created again may have
            fewer partitions than before.
    """

    def __init__(self, membership: ShareMembership, hands: Mapping[PartitionKey, Hands]) -> None:
        self._membership = membership
        self._hands = hands

    def foreign(self, messages: Iterable[AcquiredMessage]) -> AcquiredMessage | None:
        """The first of these messages whose queue the consumer does not consume; None if it
        consumes all.
        """
        return next((each for each in messages if each.queue not in self._membership.logs), None)

    def answer(
        self, messages: Sequence[AcquiredMessage], answer: Answer, due_ms: int | None = None
    ) -> bool:
        """Note the program's answer for messages. Those that it no longer has are skipped. Returns
        whether the program has all of them.

        Args:
            messages: the messages.
            answer: the answer to each.
            due_ms: as `Hands.answer` takes it.

        Raises:
            BufferFullError: the group has no room for more delayed messages. No answer was noted.
        """
        held = self._held(messages)
        for message, hands in zip(messages, held, strict=True):
            if due_ms is not None and hands is not None and not hands.takes_delays:
                raise BufferFullError(
                    "the group has no room for more delayed messages of the partition: release "
                    "the message without a time, or keep it until its time",
                    queue=message.queue,
                    partition=message.partition,
                )
        noted = [
            hands is not None and hands.answer(int(message.id), answer, due_ms)
            for message, hands in zip(messages, held, strict=True)
        ]
        if answer is not Answer.RENEW:
            self._report(messages, noted, _named(answer))
        return all(noted)

    def reject(
        self, messages: Sequence[AcquiredMessage], reason: str, *, exhausted: bool = False
    ) -> bool:
        """Note that messages must become dead letters. Those that the program no longer has are
        skipped. Returns whether the program has all of them.
        """
        noted = [
            hands is not None and hands.reject(message, reason, exhausted=exhausted)
            for message, hands in zip(messages, self._held(messages), strict=True)
        ]
        self._report(messages, noted, "reject")
        return all(noted)

    def answer_all(self, answer: Answer) -> None:
        """Note the same answer for all messages that the program has."""
        for key, hands in self._hands.items():
            for each in OBSERVERS if hands.out else ():
                each.answered(key.queue, self._membership.group, _named(answer), len(hands.out))
            hands.answer_all(answer)

    def _held(self, messages: Sequence[AcquiredMessage]) -> list[Hands | None]:
        """What the consumer has of each message's partition; None if the partition is gone."""
        keys = (PartitionKey(each.queue, each.partition) for each in messages)
        return [self._hands.get(key) for key in keys]

    def _report(
        self, messages: Sequence[AcquiredMessage], noted: Sequence[bool], answer: str
    ) -> None:
        if not OBSERVERS:
            return
        for message, is_noted in zip(messages, noted, strict=True):
            for each in OBSERVERS if is_noted else ():
                each.answered(message.queue, self._membership.group, answer, 1)


def _named(answer: Answer) -> str:
    """The name of an answer for those that watch the process."""
    return "done" if answer is Answer.DONE else "release"
