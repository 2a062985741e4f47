"""Partitions that a consumer was assigned by hand."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from hqueue.errors import HQueueError
from hqueue.groups.changes import Changes
from hqueue.groups.offsets import UNSET, GroupOffsets, Offset, Position
from hqueue.metadata import PartitionKey
from hqueue.metadata.ports import NEW
from hqueue.runtime.steps import Work
from hqueue.runtime.stepwise import Stepwise, stepwise

__all__ = ["HandAssigned"]


class HandAssigned(Stepwise):
    """As a `GroupMember`, but that nobody else is asked: it has what it was given until the end.

    Args:
        offsets: the group's; None without a group: then nothing is committed.
        writer: as `GroupMember` takes it.
        partitions: what it has after `begin`.
    """

    failure: HQueueError | None = None
    idle = False
    certain_until_ms = float("inf")

    def __init__(
        self, offsets: GroupOffsets | None, writer: str, partitions: Collection[PartitionKey]
    ) -> None:
        self._offsets = offsets
        self._writer = writer
        self._known: Mapping[PartitionKey, Offset]
        self._known = dict.fromkeys(partitions, Offset(UNSET, NEW))
        self._changes = Changes()

    @stepwise
    def begin(self) -> Work[Any, None]:
        """Have the partitions. Who consumes by a group's offsets takes them over: another that has
        the same partitions commits nothing any more.

        Raises:
            StoreUnavailableError: the offsets can't be taken over now.
        """
        if self._offsets is not None:
            self._known = yield self._offsets.take_over.asked(self._writer, self._known)
        self._changes = Changes(assigned=dict(self._known))

    def changes(self, *, asked_ms: float | None = None) -> Changes:
        changes, self._changes = self._changes, Changes()
        return changes

    def accept(self, assigned: Mapping[PartitionKey, Offset]) -> None:
        """It had nothing of them before."""

    @stepwise
    def certain(self) -> Work[Any, bool]:
        return True
        yield

    @stepwise
    def commit(
        self, positions: Mapping[PartitionKey, Position]
    ) -> Work[Any, Collection[PartitionKey]]:
        if self._offsets is None:
            return ()
        moves = {key: (self._known[key], at) for key, at in positions.items() if key in self._known}
        commit = self._offsets.commit.asked(self._writer, moves)
        moved: Mapping[PartitionKey, Offset] = yield commit
        self._known = {**self._known, **moved}
        return positions.keys() - moved.keys()

    @stepwise
    def release(self, partitions: Collection[PartitionKey]) -> Work[Any, None]:
        """There is nobody who waits for them."""
        return
        yield

    def close(self) -> None:
        """No claim is held."""
        if self._offsets is not None:
            self._offsets.give_up()
