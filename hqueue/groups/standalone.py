"""A group's offsets in a queue, for a program that keeps its positions elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from hqueue.errors import HQueueError
from hqueue.groups.assigned import HandAssigned
from hqueue.groups.committer import Committer
from hqueue.groups.offsets import GroupOffsets, Offset, Position
from hqueue.groups.positions import BEGINNING, unreadable_offset
from hqueue.message_id import MessageID
from hqueue.metadata import PartitionKey
from hqueue.runtime.steps import Wait, Work
from hqueue.runtime.stepwise import Stepwise, stepwise

__all__ = ["StandaloneOffsets"]


class StandaloneOffsets(Stepwise):
    """A group's offsets in a queue, for a program that is not a member of the group: one that keeps
    its positions elsewhere, such as a stream with checkpoints, and commits them for others to see.
    Thread-safe. Made by `hqueue.engine.Engine.standalone_offsets`.

    **Fencing**: as in Kafka, nobody changes the offsets of a group that has consumers of the queue.
    After `begin` this object's commits count until the offsets are taken over, by a consumer that
    joins the group, another program that begins, or an operator who resets the group. From then on
    this object commits nothing in those partitions any more.

    Args:
        offsets: the group's offsets.
        check_inactive: raises an error if the group has consumers of the queue.
        queue: the queue.
        writer: the name that the commits carry, which no other process has.
    """

    def __init__(
        self,
        offsets: GroupOffsets,
        check_inactive: Callable[[], Wait],
        queue: str,
        writer: str,
    ) -> None:
        self._offsets = offsets
        self._check_inactive = check_inactive
        self._queue = queue
        self._writer = writer
        self._held = HandAssigned(offsets, writer, ())
        self._committer = Committer(self._commit)
        self.partitions: frozenset[int] = frozenset()
        """The partitions in which it commits since `begin`."""

    @stepwise
    def committed(
        self, partitions: Iterable[int]
    ) -> Work[Any, dict[int, tuple[MessageID, int | None]]]:
        """The group's offset in each of these partitions: the first ID that is not consumed, and
        how many messages the partition had before it, if that is known. Partitions are left out in
        which the group has no offset, or begins with the oldest message.

        Raises:
            UnsupportedFormatError: the record of an offset can't be read.
            StoreUnavailableError: ZooKeeper was unavailable for ``operation_timeout_ms``.
        """
        found: Mapping[PartitionKey, Offset]
        found = yield self._offsets.read.asked(self._keys(partitions))
        for key, offset in sorted(found.items()):
            if offset.unreadable is not None:
                raise unreadable_offset(key, offset.unreadable)
        return {
            key.partition: (offset.position.next, offset.position.ordinal)
            for key, offset in found.items()
            if offset.position.next > BEGINNING.next
        }

    @stepwise
    def begin(self, partitions: Iterable[int]) -> Work[Any, None]:
        """Take these offsets over: the commits of a program that had them before are refused.
        The offsets stay what they are. The group need not exist.

        Raises:
            GroupActiveError: the group has consumers of the queue. Nothing was changed.
            StoreUnavailableError: ZooKeeper was unavailable for ``operation_timeout_ms``.
        """
        yield self._check_inactive()
        numbers = frozenset(partitions)
        held = HandAssigned(self._offsets, self._writer, self._keys(numbers))
        yield from held.begin.steps()
        self._held, self.partitions = held, numbers

    @stepwise
    def commit(self, positions: Mapping[int, tuple[MessageID, int | None]]) -> Work[Any, None]:
        """Commit these positions, as `committed` returns them, after those that `commit_later` has
        not committed yet. They may lie before the committed ones.

        Raises:
            CommitFailedError: some of these offsets were taken over; the others are committed.
            StoreUnavailableError: ZooKeeper was unavailable. The error's outcome says whether the
                offsets may have been committed.
        """
        yield from self._committer.commit.steps(self._as_positions(positions))

    def commit_later(
        self,
        positions: Mapping[int, tuple[MessageID, int | None]],
        on_commit: Callable[[HQueueError | None], None],
    ) -> None:
        """Commit these positions soon, in the background.

        Args:
            positions: as for `commit`.
            on_commit: called in a thread when they are committed, with None, or with the error of
                `commit`.
        """
        self._committer.commit_later(
            self._as_positions(positions), lambda _, error: on_commit(error)
        )

    def _as_positions(
        self, positions: Mapping[int, tuple[MessageID, int | None]]
    ) -> dict[PartitionKey, Position]:
        return {
            PartitionKey(self._queue, partition): Position(max(at, BEGINNING.next), ordinal)
            for partition, (at, ordinal) in positions.items()
        }

    def _keys(self, partitions: Iterable[int]) -> list[PartitionKey]:
        return [PartitionKey(self._queue, partition) for partition in partitions]

    @stepwise
    def _commit(
        self, positions: Mapping[PartitionKey, Position]
    ) -> Work[Any, Collection[PartitionKey]]:
        return (yield from self._held.commit.steps(positions))
