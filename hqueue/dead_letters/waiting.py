"""Finds the dead letters that wait: those wanted, and neither redriven nor deleted."""

from __future__ import annotations

import dataclasses

from hqueue.consume.scan import Scan
from hqueue.dead_letters.topics import DeadLetterOwner, is_redrive
from hqueue.dead_letters.wrapping import Wrapping
from hqueue.message import ReceivedMessage
from hqueue.message_id import MessageID
from hqueue.position import Position, as_message_id
from hqueue.settings.kinds import check_kind
from hqueue.settings.limits import PARTITIONS_MAX
from hqueue.settings.numbers import check_whole

__all__ = ["Held", "Wanted"]


@dataclasses.dataclass(frozen=True)
class Wanted:
    """Which dead letters are wanted. The fields are the arguments of `DeadLetters.waiting`.

    Raises:
        InvalidInputError: a field is out of range.
    """

    subscriber: str | None = None
    group: str | None = None
    partition: int | None = None
    topic: str | None = None
    reason: str | None = None
    since: Position | None = None
    until: Position | None = None

    def __post_init__(self) -> None:
        self.owner  # noqa: B018  (checks the names)
        if self.partition is not None:
            check_whole(self.partition, 0, PARTITIONS_MAX - 1, option="partition")
        for name in ("topic", "reason"):
            if getattr(self, name) is not None:
                check_kind(getattr(self, name), str, name)
        Scan(self.since, self.until)  # Checks both.
        for name in ("since", "until"):
            if getattr(self, name) is not None:  # A timedelta counts from now, once and for all.
                object.__setattr__(self, name, as_message_id(getattr(self, name)))

    @property
    def owner(self) -> DeadLetterOwner | None:
        """The owner whose dead letters are wanted; None for all owners."""
        if self.subscriber is None and self.group is None:
            return None
        return DeadLetterOwner.of(self.subscriber, self.group)

    def matches(self, dead_letter: MessageID, wrapping: Wrapping) -> bool:
        """Whether a dead letter is wanted. It must be the owner's, and put at `since` or later."""
        if self.until is not None and dead_letter >= as_message_id(self.until):
            return False
        if self.topic is not None and wrapping.topic != self.topic:
            return False
        return self.reason is None or self.reason.casefold() in wrapping.reason.casefold()


class Held:
    """The dead letters that wait, as far as the log was read: one for each original.

    An original may have two dead letters: the program that put one did not learn that it had, or
    the message was delivered and rejected again. A redrive or a deletion of either ends all dead
    letters of that original before it.
    """

    def __init__(self, wanted: Wanted, count_max: int) -> None:
        self._wanted = wanted
        self.count = 0
        self.left: dict[int, MessageID] = {}
        """Where each partition has its first dead letter that could not be held."""
        self._count_max = count_max
        self._waiting: dict[int, dict[MessageID, MessageID]] = {}
        """The ID of the dead letter by that of its original, in each partition."""
        self._ids: dict[int, set[MessageID]] = {}

    def note(self, message: ReceivedMessage, wrapping: Wrapping) -> None:
        """Note the next message of a partition: a dead letter, a redrive or a deletion."""
        partition = message.partition
        waiting = self._waiting.setdefault(partition, {})
        if is_redrive(message.topic):
            if wrapping.dead_letter is not None and waiting.pop(wrapping.id, None) is not None:
                self.count -= 1
        elif partition not in self.left and wrapping.id not in waiting:
            if not self._wanted.matches(message.id, wrapping):
                return
            if self.count >= self._count_max:
                self.left[partition] = message.id
                return
            waiting[wrapping.id] = message.id
            self.count += 1

    def scans(self, topic: str) -> dict[int, Scan]:
        """The scans that read the waiting dead letters again. `has` then knows their IDs."""
        scans = {}
        for partition, waiting in self._waiting.items():
            if waiting:
                ids = waiting.values()
                scans[partition] = Scan(min(ids), max(ids).next(), [topic])
        self._ids = {partition: set(each.values()) for partition, each in self._waiting.items()}
        return scans

    def has(self, message: ReceivedMessage) -> bool:
        """Whether a message is one of the waiting dead letters."""
        return message.id in self._ids[message.partition]
