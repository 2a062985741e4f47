"""What every consumer has: its assignment, and its group's offsets."""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

from hqueue.client import Client, cluster_of
from hqueue.connecting import connect
from hqueue.consume.scan import Scan
from hqueue.errors import ClosedError, HQueueError
from hqueue.groups.callbacks import Callbacks, OnPartitions
from hqueue.groups.calls import ConsumerCalls, Partition, ToCommit
from hqueue.groups.catalog import Selection
from hqueue.groups.consumer_options import ConsumerOptions, ConsumerSettings
from hqueue.groups.consumption import Consumption
from hqueue.log.lag import PartitionLag
from hqueue.message import ConsumedMessage
from hqueue.message_id import MessageID
from hqueue.metadata import PartitionKey
from hqueue.position import Position
from hqueue.runtime.forgotten import Watched
from hqueue.settings.kinds import check_callback, check_kind

__all__ = ["GroupConsumer", "release"]

ConsumerT = TypeVar("ConsumerT", bound="GroupConsumer")


class GroupConsumer:
    """The assignment and the group's offsets of a consumer; its subclasses return the messages. A
    consumer that was never closed leaves its group when Python collects it, with a
    `ResourceWarning`, and commits nothing.

    Args:
        queues: as `hqueue.Consumer` takes them.
        group: as `hqueue.Consumer` takes it.
        client: as `hqueue.Consumer` takes it.
        options: as `hqueue.Consumer` takes them.
        streams: how many streams divide its partitions, each with a thread of its own. None for a
            single stream, of the thread that also calls everything else.

    Raises:
        HQueueError: as `hqueue.Consumer`.
    """

    def __init__(
        self,
        queues: str | Iterable[str] | None,
        group: str | None,
        client: Client | None,
        options: ConsumerOptions,
        streams: int | None = None,
    ) -> None:
        self._settings = ConsumerSettings.of(options)
        if client is not None:
            check_kind(client, Client, "client")
        self._closed = False
        self._closing: threading.Thread | None = None
        self._freed = False
        self._own_client = connect() if client is None else None
        used = self._own_client if client is None else client
        assert used is not None
        self.group = group
        """The group's name."""
        try:
            self._consumption = consumption = Consumption(
                cluster_of(used), group, self._settings, streams=streams
            )
            self._calls = ConsumerCalls(consumption, group)
            released = functools.partial(release, consumption.release, self._own_client)
            self._watched = Watched(self, "a consumer", released)
            try:
                if queues is not None:
                    self.subscribe(queues)
            except BaseException:
                consumption.close(commit=False)
                self._watched.closed()
                raise
        except BaseException:
            if self._own_client is not None:
                self._own_client.close()
            raise

    def __enter__(self: ConsumerT) -> ConsumerT:
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        self.close(commit=self._settings.auto_commit and kind is None)

    @property
    def consumer_id(self) -> str:
        """The consumer's ID in its group: the instance ID, or one of the form ``hostname:uuid``."""
        return self._consumption.membership.consumer_id

    # What it consumes.

    def subscribe(
        self,
        queues: str | Iterable[str] | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        topics: Iterable[str] = (),
        on_assigned: OnPartitions | None = None,
        on_revoked: OnPartitions | None = None,
        on_lost: OnPartitions | None = None,
    ) -> None:
        """Consume these queues instead of earlier ones, sharing their partitions with the group.

        The thread that polls, closes or unsubscribes calls the callbacks. A callback may commit,
        seek and pause. It may not close, poll, subscribe, unsubscribe or assign: these calls are
        refused.

        Args:
            queues: the names of the queues.
            pattern: instead of names, a regular expression. All queues whose whole name matches it
                are consumed, also queues that are created later.
            topics: the topics to read; all if empty. All consumers of a group must give the same
                topics.
            on_assigned: called when the consumer got partitions, before it returns any message of
                them. It may `seek`.
            on_revoked: called before partitions are given up, when all messages that were returned
                of them are processed. It may `commit`. With ``auto_commit`` the offsets are
                committed before this call.
            on_lost: called when partitions were lost, and other consumers may have them already. If
                None, `on_revoked` is called.

        Raises:
            InvalidInputError: an argument is out of range, the consumer has no group, or the
                consumer has partitions by `assign`.
            QueueNotFoundError: one of the queues does not exist.
            StoreUnavailableError: HBase or ZooKeeper was unavailable.
            RequestRefusedError: another consumer with this ID is in the group.
            SettingsError: another cluster has registered the ``broker_id``.
        """
        self._check_usable()
        self._consumption.subscribe(
            Selection.chosen(queues, pattern),
            Scan(topics=topics).topics,
            Callbacks(on_assigned, on_revoked, on_lost),
        )

    def assign(self, partitions: Iterable[Partition]) -> None:
        """Consume these partitions instead of earlier ones, even if other consumers consume them
        too.

        With a group, the consumer begins at the group's offsets and takes them over: another
        consumer of the group that has these partitions can't commit in them any more.

        Raises:
            InvalidInputError: there is no such partition, or the consumer is subscribed to queues.
            QueueNotFoundError: one of the queues does not exist.
            StoreUnavailableError: HBase or ZooKeeper was unavailable.
            SettingsError: another cluster has registered the ``broker_id``.
        """
        self._check_usable()
        self._calls.assign(partitions)

    def unsubscribe(self) -> None:
        """Give up all partitions, and leave the group. With ``auto_commit`` the offsets are
        committed first.
        """
        self._check_usable()
        self._consumption.unsubscribe()

    def subscription(self) -> set[str]:
        """The queues that this consumer has subscribed to, as far as they exist."""
        return self._calls.subscription()

    def assignment(self) -> set[PartitionKey]:
        """The partitions that this consumer has now.

        Raises:
            ClosedError: this process is a forked child, which has no partitions.
        """
        return self._calls.assignment()

    # Where it is.

    def position(self, partition: Partition) -> MessageID:
        """The ID at which this consumer continues in one of its partitions."""
        self._check_usable()
        return self._calls.position(partition)

    def seek(self, partition: Partition, to: Position) -> None:
        """Continue elsewhere in one of its partitions: at an ID, or with the messages that were
        written since a time. If none were, at the end.

        Raises:
            InvalidInputError: the consumer does not have the partition, the ID lies beyond the
                partition's end, or the time lies in the future.
            StoreUnavailableError: HBase was unavailable.
        """
        self._check_usable()
        self._calls.seek(partition, to)

    def seek_to_beginning(self, *partitions: Partition) -> None:
        """Continue with the oldest message of these partitions; without arguments, of all that it
        has.
        """
        self._check_usable()
        self._calls.seek_to_beginning(*partitions)

    def seek_to_end(self, *partitions: Partition) -> None:
        """Continue with messages that are written from now on to these partitions; without
        arguments, to all that it has.
        """
        self._check_usable()
        self._calls.seek_to_end(*partitions)

    def pause(self, *partitions: Partition) -> None:
        """Return no messages of these partitions until `resume`; without arguments, of all that it
        has. They stay assigned.
        """
        self._check_usable()
        self._calls.pause(*partitions)

    def resume(self, *partitions: Partition) -> None:
        """Return messages of these partitions again; without arguments, of all that it has."""
        self._check_usable()
        self._calls.resume(*partitions)

    def paused(self) -> set[PartitionKey]:
        """The partitions that this consumer has and that are paused."""
        return self._calls.paused()

    # How far it is.

    def commit(self, positions: ToCommit = None) -> None:
        """Commit the group's offsets, at which another consumer would continue. Many partitions
        take few round trips. Messages that a `ConsumerStream` returned count only when its thread
        has asked for more.

        Raises:
            InvalidInputError: the consumer never had one of the partitions, a position lies beyond
                the end of its partition, or there is no group.
            CommitFailedError: the consumer lost some of these partitions, and others may have them.
                The outcome is unknown if others took them over before an answer came.
            StoreUnavailableError: ZooKeeper was unavailable. The error's outcome says whether the
                offsets may have been committed.
        """
        self._check_usable()
        self._calls.commit(positions)

    def commit_async(
        self,
        positions: ToCommit = None,
        on_commit: Callable[[dict[PartitionKey, MessageID], HQueueError | None], None]
        | None = None,
    ) -> None:
        """Commit as `commit` does, in another thread and in the order of the calls.

        Args:
            positions: as for `commit`.
            on_commit: called in that thread with the offsets of this commit, and with the error or
                None. It may commit, and close the consumer. An error that it raises is logged.
                Without a callback, the commit's error is logged.

        Raises:
            InvalidInputError: an argument is out of range; or the callback is not a plain function.
        """
        self._check_usable()
        check_callback(on_commit, "on_commit")
        called = on_commit
        self._calls.commit_later(
            positions,
            None
            if called is None
            else lambda moves, error: called({k: to.next for k, to in moves.items()}, error),
        )

    def reject(self, message: ConsumedMessage, reason: str = "") -> None:
        """Make one of this consumer's messages a dead letter of the group, with its topic, key,
        headers, value, ID and partition. The dead letter is durable when the call returns; see
        `Queue.dead_letters`. Any thread may call this.

        The message then counts as processed, like every other one: the call commits nothing, and
        the position passes the message when the program asks for more, or commits. If the consumer
        dies before that, the message is delivered again, to the group's next consumer; if it is
        rejected again, it is still one dead letter.

        The principal needs the right to write to the queue.

        Args:
            message: a message that this consumer returned.
            reason: why the message is rejected, in at most 1,000 characters. Everyone who may read
                the queue can read it.

        Raises:
            InvalidInputError: the message is not of a partition that the consumer has, the reason
                is not valid, or the consumer has no group. Nothing was put.
            CommitFailedError: the consumer lost the partition. Nothing was put: another consumer
                gets the message.
            RequestRefusedError: the principal may not write to the queue.
            StoreUnavailableError: HBase was unavailable for ``operation_timeout_ms``. If the
                outcome is unknown, reject the message again.
        """
        self._check_usable()
        self._calls.reject(message, reason)

    def committed(
        self, partitions: Iterable[Partition] | None = None
    ) -> dict[PartitionKey, MessageID]:
        """The group's committed offsets in these partitions, which may be of any queues; in its own
        partitions if None. A partition without an offset is left out.

        Raises:
            UnsupportedFormatError: the record of one offset can't be read. Facts: its `queue`,
                `partition` and `path`; and the offsets of the others, as `committed`.
        """
        self._check_usable()
        return self._calls.committed(partitions)

    def lag(self, *partitions: Partition) -> dict[PartitionKey, PartitionLag]:
        """The lag between this consumer's positions and the ends of these partitions; without
        arguments, of all partitions in which it has a position. Sends two or three small requests
        for each partition.

        Raises:
            UnsupportedFormatError: the group's offset in one of these partitions can't be read.
        """
        self._check_usable()
        return self._calls.lag(*partitions)

    def close(self, *, commit: bool | None = None) -> None:
        """Give up all partitions at once, leave the group, and free all resources. Call it in the
        thread that polls; other threads call `request_stop`.

        Args:
            commit: whether to commit the messages that were returned; if None, ``auto_commit``
                decides. A context manager whose block ended with an error does not commit, so the
                message that caused the error comes again.

        Raises:
            CommitFailedError, StoreUnavailableError: the consumer is closed, but not all offsets
                were committed.
            InvalidInputError: a callback of `subscribe` called it.
        """
        if self._consumption.process.is_left or self._freed:
            return
        self._consumption.check_no_callback()
        if self._closing is not None:
            return
        try:
            self._closing = threading.current_thread()  # Its callbacks may still use the consumer.
            if not self._closed:
                self._close(self._settings.auto_commit if commit is None else commit)
        finally:
            self._closing = None  # Where it was interrupted it can be closed again.
            if self._own_client is not None:
                self._own_client.close()
            if self._closed:
                self._watched.closed()
                self._freed = True

    def _close(self, commit: bool) -> None:
        try:
            self._consumption.close(commit=commit)
        except HQueueError:
            self._closed = True
            raise
        self._closed = True

    def request_stop(self) -> None:
        """Make `poll` return nothing from now on, and end iterations, so that the thread that uses
        the consumer can close it. Other threads and signal handlers may call it.
        """
        self._consumption.request_stop()

    def _check_usable(self) -> None:
        self._consumption.process.check()
        if self._closed or self._closing not in (None, threading.current_thread()):
            raise ClosedError("the consumer was closed")


def release(consumption: Callable[[], None], own_client: Client | None) -> None:
    """Free what a consumer has that a program forgot, and the connection if that is its own."""
    try:
        consumption()
    finally:
        if own_client is not None:
            own_client.close()
