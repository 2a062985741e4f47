"""What all consumers have: the partitions that are their own, and how far their group is."""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from hqueue.client import Client, cluster_of
from hqueue.connecting import connect
from hqueue.consume.scan import Scan
from hqueue.errors import ClosedError, HQueueError, InvalidInputError
from hqueue.groups.callbacks import Callbacks, OnPartitions
from hqueue.groups.catalog import Selection
from hqueue.groups.consumer_options import ConsumerOptions, ConsumerSettings
from hqueue.groups.consumption import Consumption
from hqueue.groups.offsets import UNSET
from hqueue.groups.offsets import Position as GroupPosition
from hqueue.groups.positions import BEGINNING, unreadable_offset
from hqueue.log.lag import PartitionLag
from hqueue.message import ConsumedMessage, ReceivedMessage
from hqueue.message_id import MessageID
from hqueue.metadata import PartitionKey
from hqueue.position import Position, as_message_id, is_time
from hqueue.runtime.forgotten import Watched
from hqueue.settings.attributes import check_queue_name
from hqueue.settings.kinds import check_kind, listed
from hqueue.settings.numbers import check_whole

__all__ = ["GroupConsumer", "Partition", "ToCommit"]

ConsumerT = TypeVar("ConsumerT", bound="GroupConsumer")

Partition = PartitionKey | tuple[str, int]
"""A partition of a queue: the queue's name, and a number."""

ToCommit = ReceivedMessage | Mapping[Partition, MessageID] | None
"""What to commit: the place after a message; for each partition the first ID that is not consumed;
or None: the place after all that was handed out."""


class GroupConsumer:
    """What a consumer consumes, and how far its group is; messages are handed out by those that are
    made of it. One that is forgotten leaves its group when it is collected, with a
    `ResourceWarning`, and commits nothing.

    Args:
        queues: as `hqueue.Consumer` takes them.
        group: likewise.
        client: likewise.
        options: likewise.
        streams: among how many its partitions are parted, each for a thread of its own; None for
            one, of the thread that does all else, too.

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
            release = functools.partial(_release, consumption.release, self._own_client)
            self._watched = Watched(self, "a consumer", release)
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
        """What its group knows it by: the instance ID, or one of the form ``hostname:uuid``."""
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
        """Consume these queues, and no others: their partitions are shared with the group.

        The callbacks are called by the thread that polls, closes or unsubscribes. They may commit,
        seek and pause; closing, polling and changing what is consumed are refused in them.

        Args:
            queues: their names.
            pattern: instead of these: all queues whose whole names fit this regular expression,
                also those that are created later.
            topics: the topics wanted; all if empty. The same for all of a group.
            on_assigned: called when it got partitions, before anything of them is handed out: it
                may `seek`.
            on_revoked: called before partitions are given up, when all that was handed out of them
                is done with: it may `commit`. What ``auto_commit`` commits is committed before it.
            on_lost: called when others may have partitions already; `on_revoked` if None.

        Raises:
            InvalidInputError: an argument is out of range, or the consumer has no group, or was
                assigned partitions by hand.
            QueueNotFoundError: one of the queues isn't there.
            StoreUnavailableError: HBase or ZooKeeper stayed away.
            RequestRefusedError: another consumer of this ID is in the group.
            SettingsError: another cluster has registered the ``broker_id``.
        """
        self._check_usable()
        self._consumption.subscribe(
            Selection.chosen(queues, pattern),
            Scan(topics=topics).topics,
            Callbacks(on_assigned, on_revoked, on_lost),
        )

    def assign(self, partitions: Iterable[Partition]) -> None:
        """Consume these partitions, and no others, even if other consumers do.

        With a group it begins at the group's offsets, and takes them over: another consumer of the
        group that has these partitions commits nothing any more.

        Raises:
            InvalidInputError: there is no such partition, or it has subscribed.
            QueueNotFoundError: one of the queues isn't there.
            StoreUnavailableError: HBase or ZooKeeper stayed away.
            SettingsError: another cluster has registered the ``broker_id``.
        """
        self._check_usable()
        keys = _as_keys(partitions)
        for key in keys:
            partitions_there = self._consumption.log(*key).partitions
            check_whole(key.partition, 0, partitions_there - 1, option="partition")
        self._consumption.assign(keys)

    def unsubscribe(self) -> None:
        """Give up all partitions, and leave the group. ``auto_commit`` commits before."""
        self._check_usable()
        self._consumption.unsubscribe()

    def subscription(self) -> set[str]:
        """The queues that it has subscribed to, as far as they are there."""
        self._consumption.check_process()
        found = self._consumption.membership.found
        return set() if found is None else set(found.selected)

    def assignment(self) -> set[PartitionKey]:
        """The partitions that it has.

        Raises:
            ClosedError: this is a forked child: it has none.
        """
        self._consumption.check_process()
        return self._consumption.positions.keys()

    # Where it is.

    def position(self, partition: Partition) -> MessageID:
        """The ID from which on messages of a partition that it has are handed out next."""
        (key,) = self._chosen([partition])
        return self._consumption.resolve(key).next

    def seek(self, partition: Partition, to: Position) -> None:
        """Go on elsewhere in a partition that it has: at an ID, or with what was written since a
        time; where nothing was, at the end.

        Raises:
            InvalidInputError: it does not have the partition, the ID lies beyond its end, or the
                time is yet to come.
            StoreUnavailableError: HBase stayed away.
        """
        (key,) = self._chosen([partition])
        at, positions = as_message_id(to), self._consumption.positions
        place = positions.since(key, at) if is_time(to) else positions.place(key, at)
        self._consumption.seek(key, place)

    def seek_to_beginning(self, *partitions: Partition) -> None:
        """Go on with the oldest message that there is, in these partitions or in all."""
        for key in self._chosen(partitions):
            self._consumption.seek(key, BEGINNING)

    def seek_to_end(self, *partitions: Partition) -> None:
        """Go on with what is written from now on, in these partitions or in all."""
        for key in self._chosen(partitions):
            self._consumption.seek(key, self._consumption.positions.end(key))

    def pause(self, *partitions: Partition) -> None:
        """Hand out nothing of these partitions, or of all, until `resume`. They stay its own."""
        self._consumption.pause(self._chosen(partitions))

    def resume(self, *partitions: Partition) -> None:
        """Go on with these partitions, or with all."""
        self._consumption.resume(self._chosen(partitions))

    def paused(self) -> set[PartitionKey]:
        """The partitions that it has, and that are paused."""
        self._consumption.check_process()
        return set(self._consumption.paused)

    # How far it is.

    def commit(self, positions: ToCommit = None) -> None:
        """Write down how far the group is: where another consumer goes on. Many partitions in few
        round trips. What a `ConsumerStream` hands out counts only when more is asked of it.

        Raises:
            InvalidInputError: it never had a partition, or a place lies beyond its end; or there is
                no group.
            CommitFailedError: it has some of these partitions no more, and others may have them.
                Its outcome is unknown if they took them over before an answer came.
            StoreUnavailableError: ZooKeeper stayed away. With an outcome.
        """
        self._check_usable()
        self._consumption.commit(lambda: self._to_commit(positions))

    def commit_async(
        self,
        positions: ToCommit = None,
        on_commit: Callable[[dict[PartitionKey, MessageID], HQueueError | None], None]
        | None = None,
    ) -> None:
        """As `commit`, in another thread, in the order of the calls.

        Args:
            positions: as for `commit`.
            on_commit: called there with the offsets of this commit, and with the error if there was
                one. Without it errors are logged. It may commit and close the consumer; what it
                raises is logged.
        """
        self._check_usable()
        called = on_commit
        self._consumption.commit_later(
            lambda: self._to_commit(positions),
            None
            if called is None
            else lambda moves, error: called({k: to.next for k, to in moves.items()}, error),
        )

    def committed(
        self, partitions: Iterable[Partition] | None = None
    ) -> dict[PartitionKey, MessageID]:
        """How far the group is in these partitions, of whichever queues; in its own if None. One
        without an offset is left out.

        Raises:
            UnsupportedFormatError: the record of one of them can't be read. Facts: its `queue`,
                `partition` and `path`; and how far the group is in the others, as `committed`.
        """
        self._check_usable()
        offsets = self._consumption.membership.offsets()
        if offsets is None:
            raise InvalidInputError("without a group nothing is committed")
        keys = self.assignment() if partitions is None else _as_keys(partitions)
        found = offsets.read(keys)
        committed = {
            key: offset.position.next
            for key, offset in found.items()
            if offset.position.next != UNSET.next
        }
        for key in sorted(found):
            if (unreadable := found[key].unreadable) is not None:
                raise unreadable_offset(key, unreadable, committed=committed)
        return committed

    def lag(self, *partitions: Partition) -> dict[PartitionKey, PartitionLag]:
        """What lies between its positions and the ends, in these partitions or in all that it has
        a position in. Two or three small requests a partition.

        Raises:
            UnsupportedFormatError: the group's offset in one of these partitions can't be read.
        """
        places: dict[str, dict[int, MessageID]] = {}
        chosen = self._chosen(partitions)
        if not partitions:
            chosen -= self._consumption.positions.unreadable
        for key in chosen:
            places.setdefault(key.queue, {})[key.partition] = self._consumption.resolve(key).next
        return {
            PartitionKey(queue, number): lag
            for queue, each in places.items()
            for number, lag in self._consumption.log(queue, max(each)).reader.lag(each).items()
        }

    def close(self, *, commit: bool | None = None) -> None:
        """Give up all partitions at once, leave the group, and free everything. For the thread that
        polls; others call `request_stop`.

        Args:
            commit: whether to commit what was handed out; as ``auto_commit`` says if None. As a
                context manager it does not commit when the block ended with an error: the message
                that caused it comes again.

        Raises:
            CommitFailedError, StoreUnavailableError: it is closed, but not all was committed.
            InvalidInputError: a callback for partitions that come and go asks.
        """
        if self._consumption.inherited or self._freed:
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
        """Let `poll` return nothing from now on, and iterations end: so the thread that uses it
        comes to close it. For other threads, and for handlers of signals.
        """
        self._consumption.request_stop()

    def _to_commit(self, positions: ToCommit) -> dict[PartitionKey, GroupPosition]:
        if self.group is None:
            raise InvalidInputError("without a group nothing is committed")
        known = self._consumption.positions
        self._consumption.settle()
        if positions is None:
            return known.moved(known.keys())
        if isinstance(positions, ConsumedMessage):
            key = PartitionKey(positions.queue, positions.partition)
            positions = {key: positions.id.next()}
        if not isinstance(positions, Mapping):
            raise InvalidInputError(
                "commit takes a consumer's message, or IDs by partition",
                type=type(positions).__name__,
            )
        moves: dict[PartitionKey, GroupPosition] = {}
        for partition, place in positions.items():
            if not isinstance(place, MessageID):
                raise InvalidInputError("a position must be a MessageID", position=place)
            key = _as_key(partition)
            if known.gave_up(key):
                moves[key] = GroupPosition(place)  # Refused when the others are committed.
                continue
            known.check([key])
            moves[key] = known.place(key, place)
        return moves

    def _chosen(self, partitions: Iterable[Partition]) -> set[PartitionKey]:
        """These, after a check that it has each of them; or all that it has."""
        self._check_usable()
        self._consumption.settle()
        keys = {_as_key(each) for each in partitions}
        self._consumption.positions.check(keys)
        return keys or self.assignment()

    def _check_usable(self) -> None:
        self._consumption.check_process()
        if self._closed or self._closing not in (None, threading.current_thread()):
            raise ClosedError("the consumer was closed")


def _release(consumption: Callable[[], None], own_client: Client | None) -> None:
    try:
        consumption()
    finally:
        if own_client is not None:
            own_client.close()


def _as_keys(partitions: Iterable[Partition]) -> set[PartitionKey]:
    return {_as_key(each) for each in listed(partitions, "partitions")}


def _as_key(partition: Partition) -> PartitionKey:
    try:
        queue, number = partition
    except (TypeError, ValueError) as exc:
        raise InvalidInputError(
            "a partition must be a queue's name and a number", partition=partition
        ) from exc
    return PartitionKey(check_queue_name(queue), check_whole(number, 0, 32_766, option="partition"))
