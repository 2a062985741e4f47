"""Exactly-once processing from queue to queue, shared by the processors of a group."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from hqueue.client import Client
from hqueue.connecting import connect
from hqueue.consumer import Consumer
from hqueue.errors import CommitFailedError, IdempotencyKeyReusedError, InvalidInputError
from hqueue.groups.consumer_options import ConsumerOptions, ConsumerSettings
from hqueue.groups.paths import GroupPaths
from hqueue.message import Message, ReceivedMessage
from hqueue.message_id import MessageID
from hqueue.metadata import PartitionKey
from hqueue.queue import Queue
from hqueue.runtime.interrupts import is_interruption
from hqueue.settings.kinds import check_kind
from hqueue.settings.numbers import check_number, check_whole
from hqueue.settings.options import Unpack

__all__ = ["ExactlyOnceProcessor", "Process"]

RESULTS_MAX = 10_000
RESULT_BYTES_MAX = 4 * 1024 * 1024
"""Of the results that are put at a time, unless those of one message are more."""

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
    * Only processors with the same source and target commit for the group. The group's offsets may
      be reset while no processor runs; results of messages that are read again are then put again.

    Results are put in batches of up to 10,000 messages and 4 MiB; the results of one message may
    exceed this. The group's offset moves when a batch is put. After a partition was taken over, the
    offset does not move past messages without results until the first batch is put.

    Call `run` in one thread; other threads may call `request_stop`. Use the processor as a context
    manager, or `close` it.

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
            raise InvalidInputError("a processor commits what it has put: leave auto_commit out")
        if not callable(process):
            raise InvalidInputError("process is a function of a message", process=process)
        self._messages_max = check_whole(messages_max, 1, 10_000, option="messages_max")
        self._group = check_kind(group, str, "group")
        self._process = process
        self._options: ConsumerOptions = {**options, "auto_commit": False}
        ConsumerSettings.of(self._options)
        self._stopping = False
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
            idle_ms_max: end after this long without a message; None for never.

        Returns:
            How many messages were processed, with their results put and committed.

        Raises:
            IdempotencyKeyReusedError: `process` returned other results for a message than before;
                or messages expired or were truncated after their results were put and before the
                offset was committed. Nothing was put twice. To continue after them, reset the
                group's offsets.
            IdempotencyKeyTooOldError: the target did not keep its messages for long enough. Nothing
                was put.
            MessageTooLargeError: the results of one message exceed the limits of a batch.
            StoreUnavailableError: HBase or ZooKeeper was unavailable.
            QueueStateError: a queue is disabled, or was deleted.
            ClosedError: the client was closed.
        """
        idle_ms = float("inf")
        if idle_ms_max is not None:
            idle_ms = check_number(idle_ms_max, 0, float("inf"), option="idle_ms_max")
        # The group has put nothing before that: the target is searched from there on.
        since = self._target.claim_epoch(_producer(self._group, self._source.name))
        processed = 0
        while True:
            with Consumer(group=self._group, client=self._client, **self._options) as consumer:
                loop = _Loop(consumer, self._source, self._target, self._process, since)
                self._consumer = consumer
                try:
                    if not self._stopping:
                        loop.run(idle_ms, self._messages_max)
                    return processed + loop.processed
                except CommitFailedError:
                    processed += loop.processed  # Others have what it had: it begins again.
                finally:
                    self._consumer = None

    def request_stop(self) -> None:
        """Make `run` return when the messages that it has taken are processed, put and committed.
        Other threads and signal handlers may call it.
        """
        self._stopping = True
        consumer = self._consumer
        if consumer is not None:
            consumer.request_stop()

    def close(self) -> None:
        """Free all resources. Call it in the thread that called `run`, after `run` has returned."""
        self.request_stop()
        if self._own_client is not None:
            self._own_client.close()


class Cut(NamedTuple):
    """Messages of a partition that follow one another, and what comes of them."""

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
            more = list(process(message))
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


@dataclasses.dataclass
class Progress:
    """How far a processor is in a partition of the source."""

    begin: MessageID
    """The group's offset. The batch of results that begins there is known by it: so the
    processor that has the partition next puts under the same key, and finds what was put."""
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

    def run(self, idle_ms: float, messages_max: int) -> None:
        """Bring over what comes, until nothing comes for so long, or a stop is requested."""
        while messages := self._consumer.poll(idle_ms, messages_max):
            left: Sequence[ReceivedMessage] = messages
            key = PartitionKey(self._source.name, messages[0].partition)
            while left:
                end = self._bring(key, left)
                if end > messages[-1].id.next():
                    self._consumer.seek(key, end)
                left = [message for message in left if message.id >= end]

    def _begin(self, partitions: list[PartitionKey]) -> None:
        for each in partitions:
            self._progress[each.partition] = Progress(self._consumer.position(each))

    def _bring(self, key: PartitionKey, messages: Sequence[ReceivedMessage]) -> MessageID:
        """Bring over the first of these messages, and what goes with it; where that ends."""
        progress = self._progress[key.partition]
        taken = cut(messages, self._process, RESULTS_MAX, RESULT_BYTES_MAX)
        if progress.hold(taken):
            return taken.end
        held = progress.held
        try:
            self._put(key.partition, progress, taken.results)
        except IdempotencyKeyReusedError as other:
            # The one that has put it took more messages, or less. What comes of them is the same.
            with self._source.scan(partition=key.partition, start=progress.begin) as again:
                first = again.next()
                if first is None:
                    raise
                there = itertools.chain((first,), again)
                taken = cut(there, self._process, other.count_before, float("inf"))
            held = 0
            self._put(key.partition, progress, taken.results)
        self._consumer.commit({key: taken.end})
        progress.committed(taken.end)
        self.processed += held + taken.messages
        return taken.end

    def _put(self, partition: int, progress: Progress, results: Sequence[Message]) -> None:
        """Put what comes of the messages from the group's offset on, unless that was done."""
        if results:
            assert progress.first is not None
            self._target.put(
                results,
                partition=partition % self._target.partitions,
                idempotency_key=f"{self._consumer.group} {self._source.name} {partition} "
                f"{progress.begin}",
                since=max(self._since, progress.first),
            )


def _producer(group: str, source: str) -> str:
    """The name by which the target knows those who bring over a source: any group has one."""
    named = f"{group}\0{source}".encode(errors="surrogatepass")
    return f"exactly-once.{hashlib.blake2b(named, digest_size=16).hexdigest()}"
