"""Reading, processing and writing exactly once, as steps: a thread or an event loop carries them
out.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from hqueue.errors import (
    CommitFailedError,
    IdempotencyKeyReusedError,
    InvalidInputError,
    MessageTooLargeError,
)
from hqueue.groups.consumer_options import ConsumerOptions, ConsumerSettings
from hqueue.message import Message, ReceivedMessage
from hqueue.message_id import MessageID
from hqueue.metadata import PartitionKey
from hqueue.runtime.interrupts import is_interruption
from hqueue.runtime.steps import Wait, Work
from hqueue.runtime.stepwise import Stepwise, stepwise
from hqueue.settings.kinds import check_kind
from hqueue.settings.numbers import check_number, check_whole

__all__ = ["Bridge", "Cut", "Plan", "Process", "ProcessInLoop", "Progress", "cut", "each_of"]

RESULTS_MAX = 10_000
RESULT_BYTES_MAX = 4 * 1024 * 1024
"""Bytes of the results that are put at a time, unless those of one message are more."""

SHARE_MS = 1_000.0
"""How often a processor without partitions looks whether others have all of them."""

AGAIN = (
    "to process messages again, use another group or another target; to go on with later ones, "
    "reset the group's offsets to a position after all messages that were processed"
)

Process = Callable[[ReceivedMessage], Iterable[Message]]
"""Returns the results of a message: none, one or several."""

ProcessInLoop = Callable[[ReceivedMessage], Iterable[Message] | Awaitable[Iterable[Message]]]
"""The same in an event loop: a function, or a coroutine function."""

Following = Callable[[], Work[Any, ReceivedMessage | None]]
"""Gives the next message; None at the end."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a processor does.

    Args:
        group, process, messages_max: as `hqueue.ExactlyOnceProcessor` takes them.
        options: those of its consumers.

    Raises:
        InvalidInputError: an argument is out of range.
    """

    group: str
    process: ProcessInLoop
    messages_max: int
    options: ConsumerOptions

    def __post_init__(self) -> None:
        if "auto_commit" in self.options:
            raise InvalidInputError("the processor commits its input itself: leave auto_commit out")
        if not callable(self.process):
            raise InvalidInputError(
                "process must be a function that takes a message", process=self.process
            )
        check_whole(self.messages_max, 1, 10_000, option="messages_max")
        check_kind(self.group, str, "group")
        own: ConsumerOptions = {**self.options, "auto_commit": False}
        ConsumerSettings.of(own)
        object.__setattr__(self, "options", own)

    def producer(self, source: str) -> str:
        """The name by which the target knows those who bring over a source: any group has one."""
        named = f"{self.group}\0{source}".encode(errors="surrogatepass")
        return f"exactly-once.{hashlib.blake2b(named, digest_size=16).hexdigest()}"

    def idle_ms(self, idle_ms_max: float | None) -> float:
        """After how long without a message it ends."""
        if idle_ms_max is None:
            return float("inf")
        return check_number(idle_ms_max, 0, float("inf"), option="idle_ms_max")


class Cut(NamedTuple):
    """Messages of a partition that follow one another, and their results."""

    first: MessageID
    end: MessageID
    messages: int
    """How many."""
    results: list[Message]


def each_of(messages: Iterable[ReceivedMessage]) -> Following:
    """These messages, one after the other."""
    left = iter(messages)

    def following() -> Work[Any, ReceivedMessage | None]:
        return next(left, None)
        yield

    return following


def cut(
    following: Following, process: ProcessInLoop, results_max: int, bytes_max: float
) -> Work[Any, Cut]:
    """The first of these messages, and those after it whose results go with its own."""
    taken: list[ReceivedMessage] = []
    results: list[Message] = []
    size = 0
    while (message := (yield from following())) is not None:
        try:
            more = yield from _results(process, message)
        except Exception as exc:
            if not taken or is_interruption(exc):
                raise
            break  # It comes again, when what comes before it is put.
        size += sum(result.size for result in more)
        if taken and (len(results) + len(more) > results_max or size > bytes_max):
            break
        taken.append(message)
        results += more
    return Cut(taken[0].id, taken[-1].id.next(), len(taken), results)


def _results(process: ProcessInLoop, message: ReceivedMessage) -> Work[Any, list[Message]]:
    """The results of a message.

    Raises:
        InvalidInputError: it is something else than messages.
    """
    returned: object = process(message)
    if inspect.isawaitable(returned):
        returned = yield _awaited(returned)
    if isinstance(returned, Iterable):
        results = list(returned)
        if all(isinstance(each, Message) for each in results):
            return results
    if inspect.iscoroutine(returned):
        returned.close()  # A thread awaits nothing.
    raise InvalidInputError(
        "process must return an iterable of Message objects, also for one result or none",
        process=getattr(process, "__qualname__", process),
        returned=type(returned).__name__,
        message_id=str(message.id),
        partition=message.partition,
    )


@dataclasses.dataclass
class Progress:
    """A processor's progress in a partition of the source."""

    begin: MessageID
    """The group's offset. It identifies the batch of results that begins there: so the
    processor that has the partition next puts under the same key, and finds what was put."""
    target_end: MessageID
    """The end of the target's partition, read after this one was taken over."""
    taken_over: bool = True
    """Whether another processor may have begun there: then the batch that it has put, or puts yet,
    may begin with messages without results, and go on after them. So these alone are not
    committed; else what follows them would be put again, under another key."""
    first: MessageID | None = None
    """The first message from there on, if there is one that is not committed."""
    held: int = 0
    """Messages without results that were processed and are not committed."""

    def hold(self, taken: Cut) -> bool:
        """Take the next messages. Returns whether they wait for others that have results."""
        self.first = self.first or taken.first
        if self.taken_over and not taken.results:
            self.held += taken.messages
            return True
        return False

    def was_reset(self, put_at: MessageID) -> bool:
        """Whether the group's offset was set back, as the position of the batch with the key shows.

        The batch was put before this processor took the partition over, by one that had the group's
        offset here. This processor brought the offset here from an earlier position.
        """
        return not self.taken_over and put_at < self.target_end

    def committed(self, end: MessageID) -> None:
        """The group is here now, and nobody else has begun here."""
        self.begin, self.taken_over, self.first, self.held = end, False, None, 0


class Bridge(Stepwise):
    """Brings one queue into another, for as long as its consumer has what it got.

    Args:
        plan: what is done.
        client, consumer, source, target: of the blocking face; or all of the one for event loops.
        since: the group has put nothing into the target before that.
        stopping: whether a stop was requested.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        client: Any,
        consumer: Any,
        source: Any,
        target: Any,
        since: MessageID,
        stopping: Callable[[], bool],
    ) -> None:
        self._plan = plan
        self._client, self._consumer, self._source, self._target = client, consumer, source, target
        self._since = since
        self._stopping = stopping
        self._progress: dict[int, Progress] = {}
        self.processed = 0
        """Messages whose results are put, and that are committed."""

    @stepwise
    def run(self, idle_ms: float) -> Work[Any, bool]:
        """Bring over what comes, until nothing comes for this long, or a stop is requested. False
        if others have what it had: it must be done again by another.

        The consumer has subscribed, with `begin` as its callback for assigned partitions.
        """
        try:
            while not self._stopping() and (yield from self._bring_all(idle_ms)):
                if (yield from self._is_without_share()):
                    break
        except CommitFailedError:
            return False
        return True

    def _is_without_share(self) -> Work[Any, bool]:
        """Whether others have all partitions."""
        name = self._source.name
        described = yield _call(self._client.describe_group, self._plan.group, queue=name)
        partitions: int = self._source.partitions
        return sum(1 for each in described.partitions if each.owner) >= partitions

    def _bring_all(self, idle_ms: float) -> Work[Any, bool]:
        """Bring over what comes, until nothing comes for this long, or a stop is requested. Returns
        whether it had no partition yet when it began to wait.
        """
        while True:
            joining = not self._progress
            wait_ms = max(idle_ms, SHARE_MS) if joining else idle_ms
            messages = yield _call(self._consumer.poll, wait_ms, self._plan.messages_max)
            if not messages:
                return joining
            left: Sequence[ReceivedMessage] = messages
            key = PartitionKey(self._source.name, messages[0].partition)
            while left:
                end = yield from self._bring(key, left)
                if end > messages[-1].id.next():
                    yield _call(self._consumer.seek, key, end)
                left = [message for message in left if message.id >= end]

    @stepwise
    def begin(self, partitions: list[PartitionKey]) -> Work[Any, None]:
        """Begin in these where the group is."""
        begins: dict[int, MessageID] = {}
        for each in partitions:
            begins[each.partition] = yield _call(self._consumer.position, each)
        numbers = sorted({self._partition_for(number) for number in begins})
        found = yield _call(self._target.offsets, numbers)
        ends = {each.partition: each.end for each in found}
        for number, begin in begins.items():
            self._progress[number] = Progress(begin, ends[self._partition_for(number)])

    def _partition_for(self, partition: int) -> int:
        """The target's partition for the results of one of the source."""
        count: int = self._target.partitions
        return partition % count

    def _bring(
        self, key: PartitionKey, messages: Sequence[ReceivedMessage]
    ) -> Work[Any, MessageID]:
        """Bring over the first of these messages, and what goes with it; where that ends."""
        progress = self._progress[key.partition]
        there = each_of(messages)
        taken = yield from cut(there, self._plan.process, RESULTS_MAX, RESULT_BYTES_MAX)
        if progress.hold(taken):
            return taken.end
        held = progress.held
        try:
            put_at = yield from self._put(key.partition, progress, taken)
        except IdempotencyKeyReusedError as other:
            # The one that has put it took more messages, or less. What comes of them is the same.
            held = 0
            taken, put_at = yield from self._put_again(key.partition, progress, other)
        if put_at is not None and progress.was_reset(put_at):
            raise self._reused(
                "the group's offset was set back: an earlier run has put the results from here on",
                key.partition,
                progress,
                len(taken.results),
                len(taken.results),
            )
        yield _call(self._consumer.commit, {key: taken.end})
        progress.committed(taken.end)
        self.processed += held + taken.messages
        return taken.end

    def _put(self, partition: int, progress: Progress, taken: Cut) -> Work[Any, MessageID | None]:
        """Put what comes of the messages from the group's offset on, unless that was done. Returns
        where it lies; None if nothing comes of them.
        """
        if not taken.results:
            return None
        assert progress.first is not None
        try:
            ids: Sequence[MessageID] = yield _call(
                self._target.put,
                taken.results,
                partition=self._partition_for(partition),
                idempotency_key=f"{self._plan.group} {self._source.name} {partition} "
                f"{progress.begin}",
                since=max(self._since, progress.first),
            )
        except MessageTooLargeError as exc:
            raise MessageTooLargeError(
                "the results that process returned are too large for one batch: let process return "
                "fewer or smaller results for a message",
                outcome=exc.outcome,
                **exc.facts
                | {
                    "queue": self._source.name,
                    "partition": partition,
                    "first": str(taken.first),
                    "messages": taken.messages,
                },
            ) from exc
        return ids[0]

    def _put_again(
        self, partition: int, progress: Progress, other: IdempotencyKeyReusedError
    ) -> Work[Any, tuple[Cut, MessageID | None]]:
        """Put as many results as the batch has that has the key."""
        again = self._source.scan(partition=partition, start=progress.begin)
        try:
            first = yield _call(again.next)
            if first is not None:
                there = _scanned(first, again)
                process, count = self._plan.process, other.count_before
                taken = yield from cut(there, process, count, float("inf"))
                try:
                    return taken, (yield from self._put(partition, progress, taken))
                except IdempotencyKeyReusedError as exc:
                    other = exc
        finally:
            yield _call(again.close)
        raise self._reused(
            "the target has other results from this offset on: process returned others before, "
            "messages are gone, or the group's offset was set back",
            partition,
            progress,
            other.count,
            other.count_before,
        ) from other

    def _reused(
        self, what: str, partition: int, progress: Progress, count: int, count_before: int
    ) -> IdempotencyKeyReusedError:
        return IdempotencyKeyReusedError(
            f"{what}; {AGAIN}",
            group=self._plan.group,
            queue=self._source.name,
            partition=partition,
            offset=str(progress.begin),
            count=count,
            count_before=count_before,
        )


def _scanned(first: ReceivedMessage, scanner: Any) -> Following:
    """A message, and those that a scanner gives after it."""
    begun = [first]

    def following() -> Work[Any, ReceivedMessage | None]:
        if begun:
            return begun.pop()
        message: ReceivedMessage | None = yield _call(scanner.next)
        return message

    return following


def _call(method: Callable[..., Any], *args: Any, **named: Any) -> Wait:
    """Asks for a call of an object of either face."""
    call = partial(method, *args, **named)
    return Wait(call, call)


def _awaited(returned: Awaitable[object]) -> Wait:
    """Asks for what an event loop awaits; for the same, in a thread."""
    return Wait(lambda: returned, lambda: returned)
