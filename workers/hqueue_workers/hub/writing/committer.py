"""What waits for one partition is appended together, in the hub's loop."""

from __future__ import annotations

import asyncio
import collections
import itertools
import threading
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import TypeVar

from hqueue import (
    HQueueError,
    InvalidInputError,
    Message,
    MessageID,
    Outcome,
    QueueStateError,
    StoreUnavailableError,
)
from hqueue.engine import LoopOwnedLog
from hqueue.metadata.outcomes import own_copy
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock
from hqueue.runtime.foreign import call_foreign
from hqueue.runtime.logs import Log
from hqueue.runtime.waiting import Condition
from hqueue_workers.hub.limits import HubLimits
from hqueue_workers.hub.writing.gathering import fenced, gather
from hqueue_workers.hub.writing.owned_topic import (
    OwnedTopic,
    Publish,
    Published,
    PublishSequence,
)
from hqueue_workers.hub.writing.sequence_numbers import SequenceNumbers
from hqueue_workers.node.runtime import Runtime

__all__ = ["Committer"]

logger = Log(__name__)

IDLE_MS = 60_000.0
CALLBACK = "a callback of what a partition's writer did"
LISTENER = "a listener of topics that are fenced"

Answer = TypeVar("Answer")

OnFence = Callable[[str, int], None]
OnSettled = Callable[[int | None], None]
OnAppended = Callable[[Sequence[tuple[Publish, int]], Sequence[OwnedTopic], int], None]


class Committer:
    """The writer of one partition at this hub. Thread-safe: the event loop appends, and calls back.
    An idle writer has no other object.

    Publishes that wait while an append is under way are appended together in the next one, in the
    order in which they came, each as a whole. So a publisher waits only for the append under way
    and its own, however many others publish. A publish to a topic that was fenced ends with
    `FencedTopicError`, and none of its messages is in the log.

    Messages with sequence numbers are appended only if the topic does not have them. This is
    looked up when everything before them in the log is known.

    Args:
        partition: the partition.
        runtime: the hub's runtime.
        open_log: opens the partition's log. It is given two functions: one to call with the topic
            and epoch of each control record, before anything is appended after that record; and one
            to call with the result of an append of unknown outcome, before the next append.
        on_append: called with how many publishes, messages and topics an append had.
        on_fence: called with a topic that is fenced.
        on_appended: called with what was appended, before the callers are; like `OwnedListener`.
        clock: the clock.
        publishers_max: the most publishers whose sequence numbers are remembered.
    """

    def __init__(
        self,
        partition: int,
        runtime: Runtime,
        open_log: Callable[[int, OnFence, OnSettled], LoopOwnedLog],
        *,
        on_append: Callable[[int], None] = lambda publishes: None,
        on_fence: Callable[[OwnedTopic], None] = lambda owned: None,
        on_appended: OnAppended = lambda publishes, uncertain, end: None,
        clock: Clock = SYSTEM_CLOCK,
        publishers_max: int = HubLimits.publishers_max,
    ) -> None:
        self.partition = partition
        self.sequence_numbers = SequenceNumbers(publishers_max)
        self._runtime = runtime
        self._open_log = open_log
        self._on_append = on_append
        self._on_fence = on_fence
        self._on_appended = on_appended
        self._clock = clock
        self._log: LoopOwnedLog | None = None
        self._lock = threading.RLock()
        self._work = Condition(self._lock)
        self._opens: list[Future[int]] = []
        self._closes: list[tuple[str, int, int, Future[int]]] = []
        self._publishes: collections.deque[Publish] = collections.deque()
        self._topics: dict[str, OwnedTopic] = {}
        self._uncertain: dict[str, OwnedTopic] = {}
        """The topics of failed appends: their messages may be in the log, or get there with the
        next append."""
        self._in_doubt: list[Publish] = []
        """The publishes of the last append, if its outcome is unknown."""
        self._closed = False
        self._running = False
        """Whether the event loop is working for this writer."""
        self._used_ms = clock.monotonic_ms()

    def open(self) -> Future[int]:
        """Find out where the partition ends, if this is not known: an ID that no later batch is
        below. Call it before a range is opened in the partition.
        """
        done: Future[int] = Future()
        log = self._log
        if log is not None and not self._closed:
            self._used_ms = self._clock.monotonic_ms()
            done.set_result(log.end)  # This waits for no append that is under way.
            return done
        self._add(lambda: self._opens.append(done))
        return done

    @property
    def end(self) -> int:
        """No message that is appended from now on has an ID below this one.

        Raises:
            StoreUnavailableError: that is not known now.
        """
        log = self._log
        if log is None:
            raise StoreUnavailableError(
                "the hub does not know the partition's end now",
                outcome=Outcome.NOT_APPLIED,
                partition=self.partition,
            )
        return log.end

    def register(self, owned: OwnedTopic) -> None:
        """Have a topic fenced from now on when its time comes. Before its range is opened: what is
        met meanwhile counts.

        Raises:
            StoreUnavailableError: the partition's end has to be learned again before.
        """
        with self._lock:
            if self._closed or self._log is None:
                raise StoreUnavailableError(
                    "the hub has stopped writing to the partition",
                    outcome=Outcome.NOT_APPLIED,
                    partition=self.partition,
                )
            self._log.own(owned.name, owned.epoch)
            before = self._topics.get(owned.name)
            if before is not None:
                before.fenced = True
            self._topics[owned.name] = owned
            self._used_ms = self._clock.monotonic_ms()

    def drop(self, owned: OwnedTopic) -> None:
        """A topic is not this hub's any more. What waits of it is appended, or fenced; nothing more
        is taken, also if the topic comes again: that is another ownership.
        """
        with self._lock:
            owned.left = True
            self._drop_if_done(owned)

    def close_range(self, topic: str, epoch: int, floor: int = 0) -> Future[int]:
        """Close a topic's range in this partition for owners of lower epochs; the ID of the record
        that does so, which is not below the floor. Those that are asked for at once share one.
        """
        done: Future[int] = Future()
        self._add(lambda: self._closes.append((topic, epoch, floor, done)))
        return done

    def submit(
        self,
        owned: OwnedTopic,
        messages: Sequence[Message],
        size: int,
        sequence: PublishSequence | None = None,
    ) -> Future[Published]:
        """Append messages of a topic.

        Raises:
            FencedTopicError: it is not this hub's any more; also by the future.
            UnknownSequenceNumbersError: by the future: the publisher's must be learned first.
        """
        done: Future[Published] = Future()

        def add() -> None:
            if owned.fenced or owned.left:
                raise fenced(owned)
            owned.waiting += 1
            self._publishes.append(Publish(owned, messages, size, done, sequence))

        self._add(add)
        return done

    def drained(self, owned: OwnedTopic, wait_s: float) -> bool:
        """Wait until nothing of a topic waits any more; whether that came in time."""
        with self._lock:
            return self._work.wait_for(lambda: owned.waiting == 0, wait_s)

    def close_if_idle(self) -> bool:
        """End if there is nothing to do, nor will be: no topic, and unused for a while; whether it
        has ended.
        """
        with self._lock:
            idle = self._clock.monotonic_ms() - self._used_ms > IDLE_MS
            if idle and not (self._topics or self._opens or self._closes or self._publishes):
                self._end()
            return self._closed

    def close(self, wait_s: float) -> None:
        """Append what waits, and take no more."""
        with self._lock:
            self._end()
            self._work.wait_for(lambda: not self._running, wait_s)

    def _end(self) -> None:
        self._closed = True
        self._work.notify_all()

    def _add(self, add: Callable[[], None]) -> None:
        with self._lock:
            if self._closed:
                raise StoreUnavailableError(
                    "the hub has stopped writing to the partition",
                    outcome=Outcome.NOT_APPLIED,
                    partition=self.partition,
                )
            add()
            self._used_ms = self._clock.monotonic_ms()
            if not self._running:
                self._running = True
                self._runtime.start_soon(self._run)

    async def _run(self) -> None:
        while True:
            with self._lock:
                opens, self._opens = self._opens, []
                closes, self._closes = self._closes, []
                publishes = bool(self._publishes)
                if not (opens or closes or publishes):
                    self._running = False
                    self._work.notify_all()
                    return
            try:
                if opens:
                    await self._do(self._read_end(), opens)
                if closes:
                    await self._do(self._close_ranges(closes), [each[-1] for each in closes])
                if publishes:
                    await self._commit()
            except asyncio.CancelledError:
                self._abandon()
                raise
            except BaseException:  # The callers have the error already; the writer starts over.
                logger.exception("giving up partition %d", self.partition)
                self._give_up()

    async def _opened(self) -> LoopOwnedLog:
        if self._log is None:
            self._in_doubt = []
            opening = self._open_log(self.partition, self._fence, self._settled)
            await opening.open()
            self._log = opening
        return self._log

    async def _read_end(self) -> int:
        return (await self._opened()).end

    async def _close_ranges(self, closes: list[tuple[str, int, int, Future[int]]]) -> int:
        epochs: dict[str, int] = {}
        for topic, epoch, _, _ in closes:
            epochs[topic] = max(epoch, epochs.get(topic, 0))
        log = await self._opened()
        return await log.close_ranges(epochs, max(floor for _, _, floor, _ in closes))

    async def _do(self, work: Awaitable[int], waiting: list[Future[int]]) -> None:
        """Do what callers wait for, and give them the result."""
        try:
            answer = await work
        except BaseException as exc:
            self._see(exc)  # First: a caller that tries again finds the partition given up.
            self._fail(waiting, exc)
            _pass_cancellation(exc)
        else:
            self._answer([(done, answer) for done in waiting])

    async def _commit(self) -> None:
        """Append the waiting publishes, as many as fit into one append."""
        batch: list[Publish] = []

        def make() -> tuple[Sequence[Message], int, Mapping[str, int]] | None:
            self._gather(batch)
            if not batch:
                return None
            messages = [message for each in batch for message in each.messages]
            # This hub may have lost and regained the topic: the epoch is that of the publish.
            epochs = {each.owned.name: each.owned.epoch for each in batch}
            return messages, max(each.owned.first for each in batch), epochs

        try:
            log = await self._opened()
            base = await log.append(make)
        except BaseException as exc:
            if not batch:  # It was interrupted before that.
                self._gather(batch)
            self._uncertain.update((each.owned.name, each.owned) for each in batch)
            if isinstance(exc, HQueueError) and exc.outcome is Outcome.UNKNOWN:
                self._in_doubt = batch
            self._end_publishes(batch)
            self._see(exc)
            self._fail([each.done for each in batch], exc)
            _pass_cancellation(exc)
            return
        if base is None:
            return
        appended = _with_ids(batch, base)
        try:
            self._note(appended, log)
        finally:  # Whatever fails here, they are in the log.
            self._end_publishes(batch)
            self._answer(
                [
                    (each.done, _published(each, first, first + len(each.messages) - 1))
                    for each, first in appended
                ]
            )

    def _note(self, appended: list[tuple[Publish, int]], log: LoopOwnedLog) -> None:
        """Have those that look at the partition know what was appended."""
        for each, _ in appended:
            each.owned.published += len(each.messages)
        self.sequence_numbers.note(appended)
        uncertain, self._uncertain = list(self._uncertain.values()), {}
        self._on_appended(appended, uncertain, log.end)
        self._on_append(len(appended))

    def _settled(self, first: int | None) -> None:
        """It is known now whether what was in doubt is in the log, and where."""
        if first is not None:
            self.sequence_numbers.note(_with_ids(self._in_doubt, first))
        self._in_doubt = []

    def _gather(self, batch: list[Publish]) -> None:
        """Take out of a batch what is fenced, and into it what waits."""
        with self._lock:
            ended = gather(batch, self._publishes, self.sequence_numbers)
        self._end_publishes([each for each, _ in ended])
        for each, outcome in ended:
            if isinstance(outcome, HQueueError):
                call_foreign(CALLBACK, each.done.set_exception, outcome)
            else:
                self._answer([(each.done, _published(each, outcome.id, outcome.id))])

    def _end_publishes(self, ended: Collection[Publish]) -> None:
        if ended:
            with self._lock:
                for each in ended:
                    each.owned.waiting -= 1
                    self._drop_if_done(each.owned)
                self._work.notify_all()

    def _drop_if_done(self, owned: OwnedTopic) -> None:
        if owned.left and not owned.waiting and self._topics.get(owned.name) is owned:
            del self._topics[owned.name]
            self.sequence_numbers.drop(owned)
            if self._log is not None:
                self._log.disown(owned.name)

    def _see(self, error: BaseException) -> None:
        """Give the partition up if an error of the log demands it."""
        if not isinstance(error, (StoreUnavailableError, InvalidInputError, QueueStateError)):
            logger.warning("giving up partition %d: %s", self.partition, error)
            self._give_up()

    def _fence(self, topic: str, epoch: int) -> None:
        """Fence a topic: a control record says that owners with lower epochs write no more."""
        with self._lock:
            owned = self._topics.get(topic)
            if owned is None or owned.epoch >= epoch:
                return
            owned.fenced = True
            del self._topics[topic]
        self.sequence_numbers.drop(owned)
        call_foreign(LISTENER, self._on_fence, owned)

    def _give_up(self) -> None:
        """Give up all topics: the log can't be followed, so their owners are unknown."""
        with self._lock:
            self._log = None
            lost, self._topics = list(self._topics.values()), {}
            for owned in lost:
                owned.fenced = True
        for owned in lost:
            self.sequence_numbers.drop(owned)
            call_foreign(LISTENER, self._on_fence, owned)

    def _abandon(self) -> None:
        """End all waiting calls, because the event loop ends."""
        with self._lock:
            self._end()
            self._running = False
            opens, self._opens = self._opens, []
            closes, self._closes = self._closes, []
            publishes, self._publishes = self._publishes, collections.deque()
        self._end_publishes(publishes)
        waiting = [*opens, *(done for _, _, _, done in closes)]
        self._fail(waiting, asyncio.CancelledError())
        self._fail([each.done for each in publishes], asyncio.CancelledError())

    @staticmethod
    def _answer(answers: Sequence[tuple[Future[Answer], Answer]]) -> None:
        """Give each caller its answer. A callback that fails does not affect the others."""
        for done, answer in answers:
            call_foreign(CALLBACK, done.set_result, answer)

    @staticmethod
    def _fail(
        waiting: Sequence[Future[int]] | Sequence[Future[Published]], exc: BaseException
    ) -> None:
        if isinstance(exc, asyncio.CancelledError):
            exc = StoreUnavailableError("the hub is shutting down", outcome=Outcome.UNKNOWN)
        for done in waiting:
            call_foreign(CALLBACK, done.set_exception, own_copy(exc))


def _pass_cancellation(error: BaseException) -> None:
    if isinstance(error, asyncio.CancelledError):
        raise error


def _with_ids(batch: Sequence[Publish], base: int) -> list[tuple[Publish, int]]:
    """Publishes that were appended together, and the ID of the first message of each."""
    firsts = itertools.accumulate((len(each.messages) for each in batch), initial=base)
    return list(zip(batch, firsts, strict=False))  # The last is where the batch ends.


def _published(publish: Publish, first: int, last: int) -> Published:
    return Published(
        MessageID.from_int(first),
        publish.owned.partition,
        len(publish.messages),
        publish.duplicates,
        None if publish.sequence is None else MessageID.from_int(last),
    )
