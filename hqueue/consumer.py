"""Consumers: one for a single thread, one for several threads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from hqueue.client import Client
from hqueue.consumer_stream import ConsumerStream
from hqueue.group_consumer import GroupConsumer
from hqueue.groups.consumer_options import ConsumerOptions
from hqueue.message import ConsumedMessage
from hqueue.metadata.encoding import STREAMS_MAX
from hqueue.settings.keyword_options import Unpack
from hqueue.settings.numbers import check_whole

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Consumer", "ParallelConsumer"]


class Consumer(GroupConsumer):
    """Reads messages of queues, as a member of a group that shares the queues' partitions.

    A queue here is what Kafka calls a topic: it has partitions, consumers subscribe to it, and
    their groups have offsets in it. A topic here is a label of messages inside a queue; `subscribe`
    can choose the topics to read.

    The consumers of one group share the partitions of their queues evenly. Each partition belongs
    to one consumer, which gets its messages in order. When a consumer joins or leaves, as few
    partitions move as an even share needs, and the others are consumed without a pause. The group's
    offset in each partition is kept in ZooKeeper: when a consumer ends, cleanly or not, the next
    one continues there.

    **Every message at least once**: messages that were returned and not committed are delivered
    again, to the consumer that gets the partition next. A consumer that lost its partitions,
    because its process stood still or its session ended, can't commit in them any more, and returns
    none of their messages.

    Iterate over it, call `poll`, or take `arrow_batches`. Use it as a context manager, or `close`
    it. A consumer that was never closed leaves its group when Python collects it, with a
    `ResourceWarning`, and commits nothing. Use it in one thread; other threads may call only
    `request_stop`. For several threads use a `ParallelConsumer`. In a forked child every call
    raises `ClosedError`, except for `close` and `request_stop`, which do nothing there.

    Args:
        queues: the queues to subscribe to at once. Call `subscribe` instead to give a pattern,
            topics or callbacks, and `assign` for single partitions.
        group: the group's name, 1 to 200 characters of any kind. A consumer without a group
            reads only partitions that `assign` gives it, and commits nothing.
        client: the connection, which stays open when the consumer is closed. If None, the consumer
            calls `connect` without arguments, and closes that connection.
        options: see `ConsumerOptions`.

    Raises:
        InvalidInputError: an argument is out of range.
        QueueNotFoundError: one of the queues does not exist.
        SettingsError: no client is given, and a setting is wrong; or another cluster has registered
            the ``broker_id``.
        StoreUnavailableError: HBase or ZooKeeper was unavailable.
    """

    def __init__(
        self,
        queues: str | Iterable[str] | None = None,
        *,
        group: str | None = None,
        client: Client | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        super().__init__(queues, group, client, options)

    def poll(self, timeout_ms: float = 0, messages_max: int = 500) -> list[ConsumedMessage]:
        """Return the next messages, all of one partition and in order; an empty list if none came
        in time.

        Raises as `ConsumerStream.poll`.

        Args:
            timeout_ms: how long to wait for the first message.
            messages_max: how many messages to return at most.
        """
        return self._stream().poll(timeout_ms, messages_max)

    def __iter__(self) -> Iterator[ConsumedMessage]:
        """All messages as they come, without an end. Like `messages`."""
        return self.messages()

    def messages(self, *, idle_ms_max: float | None = None) -> Iterator[ConsumedMessage]:
        """Iterate over messages one by one, until `request_stop` or `close`. Raises as `poll`.

        Args:
            idle_ms_max: end after this long without a message; None for never.
        """
        return self._stream().messages(idle_ms_max=idle_ms_max)

    def arrow_batches(self, *, idle_ms_max: float | None = None) -> Iterator[pyarrow.RecordBatch]:
        """Iterate over messages in Arrow record batches, each of one partition and some megabytes,
        until `request_stop` or `close`. The columns are ``queue``, with the queue's name, and those
        of `Scanner.arrow_batches`. Needs the extra ``hqueue-hbase[arrow]``.
        """
        return self._stream().arrow_batches(idle_ms_max=idle_ms_max)

    def _stream(self) -> ConsumerStream:
        """Its only one, made for each call: an iterator over it keeps this object, which must not
        keep itself by way of it. So a consumer that is forgotten is collected at once.
        """
        (stream,) = self._consumption.streams
        return ConsumerStream(self._consumption, stream, self._check_usable)


class ParallelConsumer(GroupConsumer):
    """A consumer for several threads: each thread reads one of its `streams`, which divide its
    partitions among them. Like Kafka's `ConsumerConnector.createMessageStreams`.

    In its group it counts as one consumer for each stream. A stream keeps a partition for as long
    as the consumer has it. The thread of a stream that finds a change of the assignment calls the
    callbacks of `subscribe`, one at a time. Everything else is as for a `Consumer`: the guarantees,
    closing, and forked children.

    Beside the streams' threads, one thread at a time may call the other methods: commit, seek and
    pause. Messages that a stream's thread is processing meanwhile count as processed when that
    thread asks for more, and may come again after a `seek` or `pause`. Call `request_stop` to let
    the threads of all streams end, and then `close`.

    Args:
        queues: as for a `Consumer`.
        group: as for a `Consumer`.
        streams: how many streams, 1 to 1,000.
        client: as for a `Consumer`.
        options: see `ConsumerOptions`.

    Raises:
        HQueueError: the errors of `Consumer`.
    """

    streams: list[ConsumerStream]
    """The streams. Each returns the messages of its share of the partitions, to one thread."""

    def __init__(
        self,
        queues: str | Iterable[str] | None = None,
        *,
        group: str | None = None,
        streams: int,
        client: Client | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        count = check_whole(streams, 1, STREAMS_MAX, option="streams")
        super().__init__(queues, group, client, options, count)
        self.streams = [
            ConsumerStream(self._consumption, stream, self._check_usable)
            for stream in self._consumption.streams
        ]
