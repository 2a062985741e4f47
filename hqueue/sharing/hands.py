"""The messages of a partition that a consumer of a share group hands out, and their answers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence

from hqueue.dead_letters.of_groups import GroupDeadLetters, Rejection
from hqueue.sharing.acquired_message import AcquiredMessage
from hqueue.sharing.held import Answer, Held
from hqueue.sharing.partition_reading import slot_of
from hqueue.sharing.shared_partition import SharedPartition
from hqueue.sharing.window import NO_KEY

__all__ = ["Hands"]

PASSED_EVERY_MS = 1_000.0
"""The least time between two writes of a partition's record that only note that messages of other
topics were passed."""
RETURNED_AT = 0.5
"""A message that waits to be handed out is given back when less than this fraction of its lock's
time is left: another consumer may be less busy."""


class Hands:
    """The messages of a partition that a consumer has acquired: some wait to be handed out, the
    program has the others. Any thread may answer; one thread at a time does everything else.

    Args:
        partition: the partition.
        letters: the group's dead letters in the queue.
        lock_ms: how long a message is acquired for.
        now_ms: reads the clock that measures locks.
    """

    def __init__(
        self,
        partition: SharedPartition,
        letters: GroupDeadLetters,
        lock_ms: int,
        now_ms: Callable[[], float],
    ) -> None:
        self.partition = partition
        self.letters = letters
        self.out: dict[int, AcquiredMessage] = {}
        """The messages that the program has and has not answered for, by their IDs."""
        self.rejections: list[Rejection] = []
        """The messages that must become dead letters."""
        self._waiting: deque[AcquiredMessage] = deque()
        self._fresh: list[int] = []
        """The IDs of the messages that were handed out last."""
        self._lock_ms = lock_ms
        self._now_ms = now_ms
        self._passed_ms = -PASSED_EVERY_MS

    @property
    def waiting(self) -> int:
        """How many messages wait to be handed out."""
        return len(self._waiting)

    @property
    def takes_delays(self) -> bool:
        """Whether messages may be released for later."""
        return self.partition.takes_delays

    def notes_passed(self) -> bool:
        """Whether to note in the group's record that the log was read past it, so that messages of
        other topics don't count as lag. That is done now and then.
        """
        window, now_ms = self.partition.window, self._now_ms()
        if window is None or self.partition.reading.read_to <= window.end:
            return False
        if now_ms - self._passed_ms < PASSED_EVERY_MS:
            return False
        self._passed_ms = now_ms
        return True

    def add(self, messages: Sequence[AcquiredMessage], deliveries_max: int | None) -> None:
        """Add messages that were acquired. Those that were delivered `deliveries_max` times before
        are rejected.
        """
        for message in messages:
            if deliveries_max is not None and message.deliveries > deliveries_max:
                times = "once" if deliveries_max == 1 else f"{deliveries_max} times"
                reason = f"delivered {times}, and never acknowledged"
                self.rejections.append(Rejection(message, reason, deliveries_max, exhausted=True))
            else:
                self._waiting.append(message)

    def take(self, messages_max: int) -> list[AcquiredMessage]:
        """Hand out messages, in the order of their IDs. Where keys are kept in order, a message
        waits as long as the program has another one with its key.
        """
        self._return_old()
        if self.partition.reading.by_key:
            taken = self._take_by_key(messages_max)
        else:
            taken = self._take_first(messages_max)
        self._fresh = [int(each.id) for each in taken]
        self.out |= zip(self._fresh, taken, strict=True)
        for each in self._fresh:
            self.partition.held[each].delivered = True
        return taken

    def _take_first(self, messages_max: int) -> list[AcquiredMessage]:
        """Looks only at messages that it takes: an iteration takes one of many that wait."""
        taken: list[AcquiredMessage] = []
        while self._waiting and len(taken) < messages_max:
            message = self._waiting.popleft()
            if self._held(message) is not None:
                taken.append(message)
        return taken

    def _take_by_key(self, messages_max: int) -> list[AcquiredMessage]:
        busy = {slot_of(each) for each in list(self.out.values())}
        taken: list[AcquiredMessage] = []
        kept: deque[AcquiredMessage] = deque()
        for message in self._waiting:
            slot = slot_of(message)
            if self._held(message) is None:
                continue
            if len(taken) == messages_max or (slot != NO_KEY and slot in busy):
                kept.append(message)
            else:
                taken.append(message)
            busy.add(slot)
        self._waiting = kept
        return taken

    def take_back(self) -> None:
        """Give back the messages that were handed out last: the program never got them."""
        for each in self._fresh:
            self.answer(each, Answer.RETURN)

    def answer(self, message_id: int, answer: Answer, due_ms: int | None = None) -> bool:
        """Note the program's answer for a message. Returns whether the program has the message.

        Args:
            message_id: the message.
            answer: the answer. After any but `Answer.RENEW`, the program has the message no more.
            due_ms: when a released message is due again, in milliseconds since the epoch; None for
                at once.
        """
        held = self.partition.held.get(message_id)
        message = self.out.get(message_id)
        if held is None or message is None:
            self.out.pop(message_id, None)
            return False
        if answer is not Answer.RENEW:
            self.out.pop(message_id, None)
        held.due_ms = due_ms
        held.answer = answer
        if answer in (Answer.RELEASE, Answer.RETURN) and self.partition.reading.by_key:
            self._return_all_of(slot_of(message))
        return True

    def due(self, left_ms: float) -> list[int]:
        """The IDs of the program's messages whose locks lapse within this time."""
        until_ms = self._now_ms() + left_ms
        held = self.partition.held
        return [each for each in list(self.out) if each in held and held[each].until_ms <= until_ms]

    def reject(self, message: AcquiredMessage, reason: str, *, exhausted: bool = False) -> bool:
        """Note that a message must become a dead letter. Returns whether the program has it."""
        has = int(message.id) in self.partition.held
        if self.out.pop(int(message.id), None) is None or not has:
            return False
        rejection = Rejection(message, reason, message.deliveries, exhausted=exhausted)
        self.rejections.append(rejection)
        return True

    def rejected(self, rejections: Sequence[Rejection]) -> None:
        """Note that these messages are dead letters now: the group is done with them."""
        for each in rejections:
            self.rejections.remove(each)
            held = self.partition.held.get(int(each.message.id))
            if held is not None:
                held.answer = Answer.EXHAUSTED if each.exhausted else Answer.REJECTED

    def give_back_rejected(self) -> bool:
        """Release the messages that could not become dead letters: another consumer may reject
        them. Returns whether there are any.
        """
        rejections, self.rejections = self.rejections, []
        for each in rejections:
            held = self.partition.held.get(int(each.message.id))
            if held is not None:
                held.answer = Answer.RELEASE
        return bool(rejections)

    def answer_all(self, answer: Answer) -> None:
        """Note the same answer for all messages that the program has."""
        for message_id in list(self.out):
            self.answer(message_id, answer)

    def return_waiting(self, messages: Collection[int] | None = None) -> None:
        """Give back messages that wait to be handed out: those with these IDs, or all."""
        kept: deque[AcquiredMessage] = deque()
        for message in self._waiting:
            if messages is not None and int(message.id) not in messages:
                kept.append(message)
                continue
            held = self.partition.held.get(int(message.id))
            if held is not None:
                held.answer = Answer.RETURN
        self._waiting = kept

    def lapsed(self) -> list[int]:
        """The IDs of messages whose locks lapsed while the program had them. Each is returned once,
        and the program has it no more.
        """
        lapsed, self.partition.lapsed = set(self.partition.lapsed), []
        if lapsed:
            self._waiting = deque(each for each in self._waiting if int(each.id) not in lapsed)
        if lapsed and self.partition.reading.by_key:
            for each in lapsed:
                message = self.out.get(each)
                if message is not None:
                    self._return_all_of(slot_of(message))
        return [each for each in sorted(lapsed) if self.out.pop(each, None) is not None]

    def _return_old(self) -> None:
        """Give back messages that waited for too long. The first one was acquired first."""
        first = next((held for each in self._waiting if (held := self._held(each))), None)
        if first is not None and self._is_old(first):
            self.return_waiting(
                {
                    int(each.id)
                    for each in self._waiting
                    if (held := self._held(each)) is None or self._is_old(held)
                }
            )

    def _held(self, message: AcquiredMessage) -> Held | None:
        """The consumer's hold on a message; None if other consumers have taken the message."""
        return self.partition.held.get(int(message.id))

    def _is_old(self, held: Held) -> bool:
        return held.until_ms - self._now_ms() < RETURNED_AT * self._lock_ms

    def _return_all_of(self, slot: int) -> None:
        """Give back all waiting messages of a slot: an earlier one is delivered again first."""
        if slot != NO_KEY:
            self.return_waiting({int(m.id) for m in self._waiting if slot_of(m) == slot})
