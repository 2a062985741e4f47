"""Exactly-once processing from queue to queue, shared by the processors of a group."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from hqueue.client import Client
from hqueue.connecting import connect
from hqueue.consumer import Consumer
from hqueue.errors import (
    ClosedError,
    CommitFailedError,
    IdempotencyKeyReusedError,
    InvalidInputError,
    MessageTooLargeError,
)
from hqueue.groups.consumer_options import ConsumerOptions, ConsumerSettings
from hqueue.groups.paths import GroupPaths
from hqueue.message import Message, ReceivedMessage
from hqueue.message_id import MessageID
from hqueue.metadata import PartitionKey
from hqueue.queue import Queue
from hqueue.runtime.held import Held
from hqueue.runtime.interrupts import is_interruption
from hqueue.settings.kinds import check_kind
from hqueue.settings.numbers import check_number, check_whole
from hqueue.settings.options import Unpack

__all__ = ["ExactlyOnceProcessor", "Process"]

RESULTS_MAX = 10_000
RESULT_BYTES_MAX = 4 * 1024 * 1024
"""Bytes of the results that are put at a time, unless those of one message are more."""

SHARE_MS = 1_000.0
"""How often a processor without partitions looks whether others have all of them."""

AGAIN = (
    "to process messages again, use another group or another target; to go on with later ones, "
    "reset the group's offsets to a place after all messages that were processed"
)

Process = Callable[[ReceivedMessage], Iterable[Message]]
"""Returns the results of a message: none, one or several."""


class ExactlyOnceProcessor:
    """Processes each message of a queue and puts the results into another queue exactly once: a
    read-process-write loop, for which Kafka uses transactions.

    The processors of one group share the partitions of the source. Any number of them may run; each
    may die or stand still at any point, and may be started again. The group guarantees:

    * **Each result is in the target once.** The results of one partition of the source are in its
      order, in the partition of the target with the same number (modulo the number of the target's
      partitions).
    * **No message is left out.** Messages whose results were not put and committed when a processor
      ended are processed by the one that gets the partition next. It finds results that were put
      already, and does not put them twice.

    The guarantees have these conditions:

    * `process` returns the same results for the same message each time. It is called again for
      messages whose results were not committed, perhaps by another processor.
    * The target keeps its messages for as long as a message of the source may wait to be processed.
      Otherwise a put that could be a second one is refused.
    * Only processors with the same source and target commit for the group, and its offsets are not
      set back. A batch of results is known by the offset at which it begins. So after a reset to an
      earlier place, results that are in the target already may be put twice or be left out. To
      process messages again, use another group or another target. A reset to a place after all
      messages that were processed, while no processor runs, leaves out the messages in between.

    Results are put in batches of up to 10,000 messages and 4 MiB; the results of one message may
    exceed this. The group's offset moves when a batch is put. After a partition was taken over, the
    offset does not move past messages without results until the first batch is put.

    Call `run` in one thread at a time; other threads may call `request_stop`. Use the processor as
    a context manager, or `close` it.

    Args:
        source: the name of the queue that is read.
        target: the name of the queue for the results.
        group: the group's name, as a `Consumer` takes it.
        process: returns the results of a message. An error that it raises ends `run`; the message
            comes again when `run` is called again.
        client: the connection, which stays open when the processor is closed. If None, the
            processor calls `connect` without arguments, and `close` closes that connection.
        messages_max: how many messages are taken at a time, 1 to 10,000.
        options: see `ConsumerOptions`; ``auto_commit`` is refused.

    Raises:
        InvalidInputError: an argument is out of range.
        QueueNotFoundError: one of the queues does not exist.
        SettingsError: no client is given, and a setting is wrong.
        StoreUnavailableError: HBase was unavailable.
    """

    def __init__(
        self,
        source: str,
        target: str,
        group: str,
        process: Process,
        *,
        client: Client | None = None,
        messages_max: int = 500,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        if "auto_commit" in options:
            raise InvalidInputError("the processor commits its input itself: leave auto_commit out")
        if not callable(process):
            raise InvalidInputError(
                "process must be a function that takes a message", process=process
            )
        self._messages_max = check_whole(messages_max, 1, 10_000, option="messages_max")
        self._group = check_kind(group, str, "group")
        self._process = process
        self._options: ConsumerOptions = {**options, "auto_commit": False}
        ConsumerSettings.of(self._options)
        self._stopping = self._closed = False
        self._running = threading.Lock()
        """Held while it runs or is being closed."""
        self._consumer: Consumer | None = None
        self._own_client = connect() if client is None else None
        self._client: Client = self._own_client or check_kind(client, Client, "client")
        try:
            GroupPaths(self._client.settings.zookeeper_root, self._group)
            self._source = self._client.queue(source)
            self._target = self._client.queue(target)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> ExactlyOnceProcessor:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def run(self, *, idle_ms_max: float | None = None) -> int:
        """Join the group, and process messages until a stop is requested.

        It starts over by itself when other processors took over its partitions, for example because
        its process stood still. After an error it can be called again, and continues at the group's
        offsets.

        Args:
            idle_ms_max: end after this long without a message; None for never. The time counts from
                when it has partitions, or other processors have all of them.

        Returns:
            How many messages were processed, with their results put and committed. 0 at once if a
            stop was requested before.

        Raises:
            InvalidInputError: it runs already, in another thread or around this call; or `process`
                returned something other than messages.
            IdempotencyKeyReusedError: the target has other results for these messages, or has them
                from before a reset of the group's offsets. Or messages expired or were truncated
                after their results were put and before the offset was committed. This batch was
                not put. To process messages again, use another group or another target; to
                continue with later ones, reset the group's offsets to a place after all messages
                that were processed.
            IdempotencyKeyTooOldError: the target did not keep its messages for long enough. Nothing
                was put.
            MessageTooLargeError: the results of one message exceed the limits of a batch.
            StoreUnavailableError: HBase or ZooKeeper was unavailable.
            QueueStateError: a queue is disabled, or was deleted.
            ClosedError: the processor or the client was closed.
        """
        idle_ms = float("inf")
        if idle_ms_max is not None:
            idle_ms = check_number(idle_ms_max, 0, float("inf"), option="idle_ms_max")
        with self._alone("wait until its run has returned, or make another processor"):
            if self._closed:
                raise ClosedError("the processor was closed; make another one")
            return self._run(idle_ms)

    def _run(self, idle_ms: float) -> int:
        """Like `run`, which holds the lock."""
        if self._stopping:
            return 0
        # The group has put nothing before that: the target is searched from there on.
        since = self._target.claim_epoch(_producer(self._group, self._source.name))
        processed = 0
        while True:
            with Consumer(group=self._group, client=self._client, **self._options) as consumer:
                loop = _Loop(consumer, self._source, self._target, self._process, since)
                self._consumer = consumer
                try:
                    while not self._stopping and loop.run(idle_ms, self._messages_max):
                        if self._is_without_share():
                            break
                    return processed + loop.processed
                except CommitFailedError:
                    processed += loop.processed  # Others have what it had: it begins again.
                finally:
                    self._consumer = None

    def _is_without_share(self) -> bool:
        """Whether others have all partitions."""
        partitions = self._client.describe_group(self._group, queue=self._source.name).partitions
        return sum(1 for each in partitions if each.owner) >= self._source.partitions

    def request_stop(self) -> None:
        """Make `run` return when the messages that it has taken are processed, put and committed.
        Every later `run` of this processor returns at once. Other threads and signal handlers may
        call it.
        """
        self._stopping = True
        consumer = self._consumer
        if consumer is not None:
            consumer.request_stop()

    def close(self) -> None:
        """Free all resources. Every later `run` raises `ClosedError`.

        Raises:
            InvalidInputError: `run` has not returned. Nothing was closed; call `request_stop`, and
                close the processor afterwards.
        """
        with self._alone("call request_stop, and close it when its run has returned"):
            self._closed = True
            if self._own_client is not None:
                self._own_client.close()

    def _alone(self, advice: str) -> Held:
        """Holds the processor for one call."""
        return Held(
            self._running, 0, lambda: InvalidInputError(f"the processor is running: {advice}")
        )


class Cut(NamedTuple):
    """Messages of a partition that follow one another, and their results."""

    first: MessageID
    end: MessageID
    messages: int
    """How many."""
    results: list[Message]


def cut(
    messages: Iterable[ReceivedMessage], process: Process, results_max: int, bytes_max: float
) -> Cut:
    """The first of these messages, and those after it whose results go with its own."""
    taken: list[ReceivedMessage] = []
    results: list[Message] = []
    size = 0
    for message in messages:
        try:
            more = _results(process, message)
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


def _results(process: Process, message: ReceivedMessage) -> list[Message]:
    """The results of a message.

    Raises:
        InvalidInputError: it is something else than messages.
    """
    returned: object = process(message)
    if isinstance(returned, Iterable):
        results = list(returned)
        if all(isinstance(each, Message) for each in results):
            return results
    if inspect.iscoroutine(returned):
        returned.close()
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
    """The group's offset. The batch of results that begins there is known by it: so the
    processor that has the partition next puts under the same key, and finds what was put."""
    target_end: MessageID
    """The end of the target's partition, read after this one was taken over."""
    taken_over: bool = True
    """Whether another processor may have begun there: then the batch that it has put, or puts yet,
    may begin with messages without results, and go on behind them. So these alone are not
    committed; else what follows them would be put again, under another key."""
    first: MessageID | None = None
    """The first message from there on, if there is one that is not committed."""
    held: int = 0
    """Messages without results that were processed and are not committed."""

    def hold(self, taken: Cut) -> bool:
        """Take in the next messages; whether they wait for others that have results."""
        self.first = self.first or taken.first
        if self.taken_over and not taken.results:
            self.held += taken.messages
            return True
        return False

    def was_reset(self, put_at: MessageID) -> bool:
        """Whether the group's offset was set back, as the place says of the batch that has the key.

        It was put before this processor took the partition over, by one that had the group's
        offset here. This processor brought the offset here from an earlier place.
        """
        return not self.taken_over and put_at < self.target_end

    def committed(self, end: MessageID) -> None:
        """The group is here now, and nobody else has begun here."""
        self.begin, self.taken_over, self.first, self.held = end, False, None, 0


class _Loop:
    """Brings one queue into another, for as long as its consumer has what it got."""

    def __init__(
        self, consumer: Consumer, source: Queue, target: Queue, process: Process, since: MessageID
    ) -> None:
        self._consumer, self._source, self._target = consumer, source, target
        self._process, self._since = process, since
        self._progress: dict[int, Progress] = {}
        self.processed = 0
        """Messages whose results are put, and that are committed."""
        consumer.subscribe(source.name, on_assigned=self._begin)

    def run(self, idle_ms: float, messages_max: int) -> bool:
        """Bring over what comes, until nothing comes for this long, or a stop is requested; whether
        it had no partition yet when it began to wait.
        """
        while True:
            joining = not self._progress
            wait_ms = max(idle_ms, SHARE_MS) if joining else idle_ms
            messages = self._consumer.poll(wait_ms, messages_max)
            if not messages:
                return joining
            left: Sequence[ReceivedMessage] = messages
            key = PartitionKey(self._source.name, messages[0].partition)
            while left:
                end = self._bring(key, left)
                if end > messages[-1].id.next():
                    self._consumer.seek(key, end)
                left = [message for message in left if message.id >= end]

    def _begin(self, partitions: list[PartitionKey]) -> None:
        """Begin in these where the group is."""
        begins = {each.partition: self._consumer.position(each) for each in partitions}
        found = self._target.offsets(sorted({self._partition_for(number) for number in begins}))
        ends = {each.partition: each.end for each in found}
        for number, begin in begins.items():
            self._progress[number] = Progress(begin, ends[self._partition_for(number)])

    def _partition_for(self, partition: int) -> int:
        """The target's partition for the results of one of the source."""
        return partition % self._target.partitions

    def _bring(self, key: PartitionKey, messages: Sequence[ReceivedMessage]) -> MessageID:
        """Bring over the first of these messages, and what goes with it; where that ends."""
        progress = self._progress[key.partition]
        taken = cut(messages, self._process, RESULTS_MAX, RESULT_BYTES_MAX)
        if progress.hold(taken):
            return taken.end
        held = progress.held
        try:
            put_at = self._put(key.partition, progress, taken)
        except IdempotencyKeyReusedError as other:
            # The one that has put it took more messages, or less. What comes of them is the same.
            held = 0
            taken, put_at = self._put_again(key.partition, progress, other)
        if put_at is not None and progress.was_reset(put_at):
            raise self._reused(
                "the group's offset was set back: an earlier run has put the results from here on",
                key.partition,
                progress,
                len(taken.results),
                len(taken.results),
            )
        self._consumer.commit({key: taken.end})
        progress.committed(taken.end)
        self.processed += held + taken.messages
        return taken.end

    def _put(self, partition: int, progress: Progress, taken: Cut) -> MessageID | None:
        """Put what comes of the messages from the group's offset on, unless that was done. Returns
        where it lies; None if nothing comes of them.
        """
        if not taken.results:
            return None
        assert progress.first is not None
        try:
            ids = self._target.put(
                taken.results,
                partition=self._partition_for(partition),
                idempotency_key=f"{self._consumer.group} {self._source.name} {partition} "
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
    ) -> tuple[Cut, MessageID | None]:
        """Put as many results as the batch has that has the key."""
        with self._source.scan(partition=partition, start=progress.begin) as again:
            first = again.next()
            if first is not None:
                there = itertools.chain((first,), again)
                taken = cut(there, self._process, other.count_before, float("inf"))
                try:
                    return taken, self._put(partition, progress, taken)
                except IdempotencyKeyReusedError as exc:
                    other = exc
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
            group=self._consumer.group,
            queue=self._source.name,
            partition=partition,
            offset=str(progress.begin),
            count=count,
            count_before=count_before,
        )


def _producer(group: str, source: str) -> str:
    """The name by which the target knows those who bring over a source: any group has one."""
    named = f"{group}\0{source}".encode(errors="surrogatepass")
    return f"exactly-once.{hashlib.blake2b(named, digest_size=16).hexdigest()}"
