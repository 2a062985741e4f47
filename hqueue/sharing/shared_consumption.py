"""Hands out messages of all partitions of a share consumer, and writes the answers."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Sequence
from typing import Any, TypeVar

from hqueue.errors import ClosedError, CorruptLogError, HQueueError, StoreUnavailableError
from hqueue.metadata import PartitionKey
from hqueue.runtime.backoff import Backoff
from hqueue.runtime.clock import Deadline, do_step, do_step_in_loop
from hqueue.runtime.fork import OwnProcess
from hqueue.runtime.logs import Log
from hqueue.runtime.steps import Pause, Work
from hqueue.runtime.stepwise import Stepwise, stepwise
from hqueue.sharing.acquired_message import AcquiredMessage
from hqueue.sharing.acquisition import Taken
from hqueue.sharing.answering import Answering
from hqueue.sharing.hands import Hands
from hqueue.sharing.held import Answer
from hqueue.sharing.lock_renewal import RENEWED_BELOW, LockRenewal
from hqueue.sharing.looking import ShareRecords, poll_ends
from hqueue.sharing.membership import ShareMembership
from hqueue.watching.observers import OBSERVERS, watched

__all__ = ["SharedConsumption"]

logger = Log(__name__)

Result = TypeVar("Result")

PAUSES = Backoff(2.0, 50.0, growth=1.5)
"""The pauses between two looks for messages while none come."""
LOOK_EVERY_MS = 200.0
"""How often the group's records are read while no messages come: other consumers may have released
messages, or may be gone."""
CHECK_EVERY_MS = 5_000.0
"""How often the logs' ends are checked in the store: a log may have been truncated."""
WRITE_EVERY_MS = 1_000.0
"""How long answers wait at most to be written while the program asks for more messages."""
COUNT_EVERY_MS = 30_000.0
"""How often the consumer looks whether a queue was created again with other partitions."""


class SharedConsumption(Stepwise):
    """Consumes all partitions of some queues, as one consumer of a share group.

    One thread or task at a time uses it; any may answer for messages.

    Args:
        membership: the consumer's membership in its group.
    """

    def __init__(self, membership: ShareMembership) -> None:
        self._membership = membership
        self._settings = membership.settings
        self._clock = clock = membership.clock
        self._renewal: LockRenewal | None = None
        self._hands: dict[PartitionKey, Hands] = {}
        self._turns: list[PartitionKey] = []
        """The partitions, in the order in which they are asked for messages."""
        self._last: PartitionKey | None = None
        """The partition whose messages were handed out last."""
        self._looked_ms = self._checked_ms = clock.monotonic_ms()
        self._wrote_ms = self._counted_ms = clock.monotonic_ms()
        self._stopping = self._closed = False
        self.process = OwnProcess("a consumer")
        """The process that made the consumer, whose messages forked children don't have."""

    @property
    def consumer_id(self) -> str:
        """The consumer's ID, which no other consumer has."""
        return self._membership.consumer_id

    def check_open(self) -> None:
        """Check that this process made the consumer, and that it was not closed.

        Raises:
            ClosedError: the consumer is closed, or this process is a forked child.
        """
        self.process.check()
        if self._closed:
            raise ClosedError("the consumer was closed")

    @property
    def answering(self) -> Answering:
        """Takes the answers of the program, for what the consumer has now."""
        return Answering(self._membership, self._hands)

    @property
    def partitions(self) -> list[PartitionKey]:
        """The partitions that the consumer consumes."""
        return sorted(self._hands)

    @stepwise
    def begin(self) -> Work[Any, None]:
        """Join the group, unless the consumer has joined. After a failure it can be called again.

        Raises:
            QueueNotFoundError: one of the queues does not exist.
            GroupActiveError: the name belongs to a consumer group, which has offsets.
            SettingsError: another cluster has registered the ``broker_id``.
            StoreUnavailableError: HBase or ZooKeeper was unavailable.
        """
        if self._hands:
            return
        hands = yield from self._membership.join()
        if self._settings.auto_renew and self._renewal is None:
            # A call sends one request after the other, and each is bounded.
            wait_ms = 2.0 * self._membership.operation_timeout_ms
            loop = self._membership.store.loop
            self._renewal = LockRenewal(
                self._renew, self._settings.lock_ms, wait_ms, loop, self._clock
            )
        self._hands = hands
        self._turns = sorted(hands, key=lambda _: uuid.uuid4())

    # Handing messages out.

    @stepwise
    def take(
        self, timeout_ms: float, messages_max: int, acquire_max: int
    ) -> Work[Any, list[AcquiredMessage]]:
        """Hand out the next messages, all of one partition; none if none came in time, or if a stop
        was requested. Raises as `hqueue.ShareConsumer.poll`.

        Args:
            timeout_ms: how long to wait for the first message.
            messages_max: how many to hand out at most.
            acquire_max: how many to acquire at a time, at most.
        """
        self._last = None
        taking = self._take(timeout_ms, messages_max, acquire_max)
        return (yield from self._in_turn(taking))

    def _take(
        self, timeout_ms: float, messages_max: int, acquire_max: int
    ) -> Work[Any, list[AcquiredMessage]]:
        waiting = Deadline(self._clock, timeout_ms)
        pause_ms = 0.0
        while not self._stopping:
            self.check_open()
            yield from self._write_old()
            yield from self._look_at_queues()
            if self._renewal is not None:
                yield from self._renewal.renew()
            for key in list(self._turns):
                self._last = key
                messages = yield from self._take_of(self._hands[key], messages_max, acquire_max)
                if messages:
                    self._turns.remove(key)
                    self._turns.append(key)
                    for each in OBSERVERS:
                        each.received(key.queue, self._membership.group, messages, len(messages))
                    return messages
            if waiting.expired:
                break
            if not (yield from self._look()):
                pause_ms = PAUSES.longer(pause_ms)
                yield Pause(min(pause_ms, waiting.remaining_ms))
            else:
                pause_ms = 0.0
        return []

    def _take_of(
        self, hands: Hands, messages_max: int, acquire_max: int
    ) -> Work[Any, list[AcquiredMessage]]:
        messages = hands.take(messages_max)
        if messages:
            return messages
        shared = hands.partition
        more = shared.window is None or shared.reading.has_more(shared.window.end)
        more = more or hands.notes_passed()
        if not (more or shared.offers or shared.answers or hands.rejections):
            return []
        taken = yield from self._exchange(hands, acquire_max)
        yield from self._acquired(hands, taken)
        return hands.take(messages_max)

    def _exchange(self, hands: Hands, messages_max: int) -> Work[Any, list[Taken]]:
        """Write the answers, and acquire messages. Where dead letters can't be put, the other
        answers are written nevertheless.
        """
        failure: HQueueError | None = None
        rejections = list(hands.rejections)
        if rejections:
            try:
                yield hands.letters.put.asked(rejections)
            except HQueueError as exc:
                failure, messages_max = exc, 0
            else:
                hands.rejected(rejections)
        work = self._exchanged(hands, messages_max)
        if OBSERVERS and hands.partition.answers:
            queue = next(key.queue for key, each in self._hands.items() if each is hands)
            group = self._membership.group
            work = watched(work, lambda each: each.settle(queue, group, "acknowledge", 1))
        taken = yield from work
        self._report(hands)
        if failure is not None:
            raise failure
        return taken

    def _exchanged(self, hands: Hands, messages_max: int) -> Work[Any, list[Taken]]:
        taken: list[Taken] = yield hands.partition.exchange.asked(messages_max)
        return taken

    def _report(self, hands: Hands) -> None:
        lapsed = hands.lapsed()
        if lapsed:
            logger.warning(
                "the locks of %d messages lapsed before they were answered: other consumers may "
                "get the messages",
                len(lapsed),
            )

    def _acquired(self, hands: Hands, taken: Sequence[Taken]) -> Work[Any, None]:
        """Let acquired messages wait until they are handed out."""
        if not taken:
            return
        deliveries = {each.id: each.deliveries for each in taken}
        held = hands.partition.held
        try:
            read = yield from hands.partition.reading.messages(sorted(deliveries))
        except BaseException as exc:
            for each in deliveries:
                held[each].answer = Answer.RETURN
            if isinstance(exc, CorruptLogError):
                yield hands.partition.exchange.asked(0)
            raise
        acquired = []
        for each, count in deliveries.items():
            message = read.get(each)
            if message is not None:
                acquired.append(AcquiredMessage.of(message, count))
            else:
                held[each].answer = Answer.DONE if each in read else Answer.RETURN
        hands.add(acquired, self._settings.deliveries_max)

    def take_back(self) -> None:
        """Give back the messages that were handed out last: the program was interrupted before it
        got them.
        """
        if self._last is not None:
            self._hands[self._last].take_back()

    @stepwise
    def write(self) -> Work[Any, None]:
        """Write all answers. Raises as `hqueue.ShareConsumer.commit`."""
        yield from self._in_turn(self._write())

    def _write(self) -> Work[Any, None]:
        self._wrote_ms = self._clock.monotonic_ms()
        failure: HQueueError | None = None
        for hands in self._hands.values():
            if hands.partition.answers or hands.rejections:
                try:
                    yield from self._exchange(hands, 0)
                except StoreUnavailableError:
                    raise  # Each partition would wait as long.
                except HQueueError as exc:
                    failure = failure or exc
        if failure is not None:
            raise failure

    def _write_old(self) -> Work[Any, None]:
        if self._clock.monotonic_ms() - self._wrote_ms >= WRITE_EVERY_MS:
            yield from self._write()

    def _renew(self) -> Work[Any, None]:
        """Renew the locks of the program's messages of whose time too little is left."""
        left_ms = RENEWED_BELOW * self._settings.lock_ms
        for hands in self._hands.values():
            due = hands.due(left_ms)
            if due:
                yield hands.partition.exchange.asked(0, due)
                self._report(hands)

    def _in_turn(self, work: Work[Any, Result]) -> Work[Any, Result]:
        """The work of a call, during which no task renews locks."""
        return work if self._renewal is None else self._renewal.in_turn(work)

    # Looking for more messages.

    def _look(self) -> Work[Any, bool]:
        """Look for more messages. Returns whether there may be some to take."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._looked_ms >= LOOK_EVERY_MS:
            self._looked_ms = now_ms
            yield from self._see_records()
        check = now_ms - self._checked_ms >= CHECK_EVERY_MS
        if check:
            self._checked_ms = now_ms
        came = False
        for queue, log in self._membership.logs.items():
            hands = [each for key, each in self._hands.items() if key.queue == queue]
            readings = [each.partition.reading for each in hands]
            came = (yield from poll_ends(log, readings, check=check)) or came
        for key, each in self._hands.items():
            if each.partition.is_short and (yield each.partition.begin_again.asked()):
                text = "the queue was truncated or created again: the group starts over in %s/%d"
                logger.warning(text, *key)
                came = True
        partitions = [each.partition for each in self._hands.values()]
        return came or any(each.offers or each.delayed for each in partitions)

    def _look_at_queues(self) -> Work[Any, None]:
        """Look now and then whether the queues have other partitions. The messages that the
        consumer has of earlier ones are gone with their log.
        """
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._counted_ms < COUNT_EVERY_MS:
            return
        self._counted_ms = now_ms
        changed = yield from self._membership.look_at_queues()
        if not changed:
            return
        earlier = [each for key, each in self._hands.items() if key.queue in changed]
        hands = {key: each for key, each in self._hands.items() if key.queue not in changed}
        for queue, each in changed.items():
            text = "the queue %s was created again with %d partitions: the consumer consumes these"
            logger.warning(text, queue, len(each))
            hands |= each
        self._hands, self._last = hands, None
        self._turns = sorted(hands, key=lambda _: uuid.uuid4())
        for gone in earlier:
            yield from gone.partition.reading.release()

    def _see_records(self) -> Work[Any, None]:
        records = ShareRecords(self._membership.store, self._clock)
        yield records.read.asked([hands.partition for hands in self._hands.values()])
        for hands in self._hands.values():
            self._report(hands)

    # Stopping and closing.

    def request_stop(self) -> None:
        """Make `take` return nothing from now on. Any thread may call this."""
        self._stopping = True

    @stepwise
    def close(self, *, acknowledge: bool) -> Work[Any, None]:
        """Give back messages that were not handed out, write all answers, and leave the group.

        Args:
            acknowledge: whether messages without an answer are acknowledged. If not, they are
                released.
        """
        yield from self._in_turn(self._close(acknowledge))

    def _close(self, acknowledge: bool) -> Work[Any, None]:
        self._closed = True
        for hands in self._hands.values():
            hands.return_waiting()
        self.answering.answer_all(Answer.DONE if acknowledge else Answer.RELEASE)
        failure: HQueueError | None = None
        try:
            yield from self._write()
        except HQueueError as exc:
            failure = exc
            if any(hands.give_back_rejected() for hands in self._hands.values()):
                with contextlib.suppress(HQueueError):
                    yield from self._write()
        yield from self._release()
        if failure is not None:
            raise failure

    @stepwise
    def release(self) -> Work[Any, None]:
        """Leave the group without writing answers, and free everything. Other consumers get the
        messages when their locks lapse.
        """
        yield from self._in_turn(self._release())

    def _release(self) -> Work[Any, None]:
        self._closed = True
        if self._renewal is not None:
            self._renewal.close()
        for hands in self._hands.values():
            yield from hands.partition.reading.release()
        yield from self._membership.leave()

    def _do(self, step: Any) -> object:
        return do_step(None, self._clock, step)

    async def _do_in_loop(self, step: Any) -> object:
        return await do_step_in_loop(None, self._clock, step)
