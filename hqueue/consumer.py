"""Consumers: of one thread, or of several."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from hqueue.client import Client
from hqueue.consumer_stream import ConsumerStream
from hqueue.group_consumer import GroupConsumer
from hqueue.groups.consumer_options import ConsumerOptions
from hqueue.message import ConsumedMessage
from hqueue.metadata.encoding import STREAMS_MAX
from hqueue.settings.numbers import check_whole
from hqueue.settings.options import Unpack

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Consumer", "ParallelConsumer"]


class Consumer(GroupConsumer):
    """Gets the messages of queues: those of partitions that no other consumer of its group has.

    A queue here is what Kafka calls a topic: it has partitions, consumers subscribe to it, and
    their groups have offsets in it. A topic here is a label of messages inside a queue; `subscribe`
    can leave out the messages of all topics but some.

    Consumers of one group share the partitions of the queues that they subscribe to, evenly, and
    each partition is one's: its messages come in order. A consumer that joins or leaves moves as
    few partitions as evenness needs, and what stays is not stopped. How far the group is in each
    partition is kept in ZooKeeper: there the next one goes on when a consumer ends, orderly or not.

    **Every message at least once**: what was handed out, and not committed, comes again to the
    consumer that has the partition next. A consumer that lost its partitions, because its process
    stood still or its session ended, commits nothing any more, and hands out nothing.

    Iterate over it, or `poll`; or take `arrow_batches`. Use it as a context manager, or `close` it.
    One that is forgotten leaves its group when it is collected, with a `ResourceWarning`, and
    commits nothing.
    One thread uses it, and `request_stop` is for others; several threads share the messages of a
    `ParallelConsumer`.
    In a forked child every call raises `ClosedError`, but for `close` and `request_stop`, which do
    nothing there.

    Args:
        queues: subscribe to these at once. To a pattern, to topics, or with callbacks by
            `subscribe`; to single partitions by `assign`.
        group: the group's name, 1 to 200 of any characters. Without one it only gets partitions
            that it is assigned by hand, and commits nothing.
        client: the connection, which stays open when the consumer is closed; if None one by
            `connect` without arguments, which it closes.
        options: see `ConsumerOptions`.

    Raises:
        InvalidInputError: an argument is out of range.
        QueueNotFoundError: one of the queues isn't there.
        SettingsError: there is no client, and the settings don't make one; or another cluster has
            registered the ``broker_id``.
        StoreUnavailableError: HBase or ZooKeeper stayed away.
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
        """The next messages, all of one partition and in order; none if none came in time.

        Raises as `ConsumerStream.poll`.

        Args:
            timeout_ms: how long to wait for the first one.
            messages_max: how many at most.
        """
        return self._stream().poll(timeout_ms, messages_max)

    def __iter__(self) -> Iterator[ConsumedMessage]:
        """All messages as they come, without an end. As `messages`."""
        return self.messages()

    def messages(self, *, idle_ms_max: float | None = None) -> Iterator[ConsumedMessage]:
        """Messages one by one, until `request_stop` or `close`. Raises as `poll`.

        Args:
            idle_ms_max: end after so long without a message; None for never.
        """
        return self._stream().messages(idle_ms_max=idle_ms_max)

    def arrow_batches(self, *, idle_ms_max: float | None = None) -> Iterator[pyarrow.RecordBatch]:
        """As `messages`, in Arrow record batches, each of one partition and some megabytes: the
        columns of `Scanner.arrow_batches` after one with the name of the
        ``queue``. Needs the extra ``hqueue[arrow]``.
        """
        return self._stream().arrow_batches(idle_ms_max=idle_ms_max)

    def _stream(self) -> ConsumerStream:
        """Its only one, made for each call: an iterator over it keeps this object, which must not
        keep itself by way of it. So a consumer that is forgotten is collected at once.
        """
        (stream,) = self._consumption.streams
        return ConsumerStream(self._consumption, stream, self._check_usable)


class ParallelConsumer(GroupConsumer):
    """A consumer whose partitions are parted among several threads: each takes the messages of one
    of its `streams`. As Kafka's `ConsumerConnector.createMessageStreams`.

    It counts as so many consumers as it has streams when partitions are shared. A stream keeps a
    partition for as long as the consumer has it. The callbacks of `subscribe` are called by
    whichever stream's thread finds that partitions came or have to go, one at a time. All else is
    as for a `Consumer`: its guarantees, how it ends, and forked children.

    One thread at a time uses its other methods, beside those of the streams: it may commit, seek
    and pause; what a stream's thread works on meanwhile counts as done with when that thread asks
    for more, and may come again after a `seek` or `pause`. `close` it when the threads of all
    streams have ended: `request_stop` lets them.

    Args:
        queues: as for a `Consumer`.
        group: likewise.
        streams: how many, 1 to 1,000.
        client: as for a `Consumer`.
        options: see `ConsumerOptions`.

    Raises:
        HQueueError: as a `Consumer`.
    """

    streams: list[ConsumerStream]
    """Each hands out the messages of its share of the partitions, to one thread."""

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
