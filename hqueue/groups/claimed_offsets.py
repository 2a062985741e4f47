"""The offsets of what a member of a group has claimed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from typing import Any

from hqueue.errors import CommitFailedError, StoreUnavailableError
from hqueue.groups.offsets import UNSET, GroupOffsets, Offset, Position
from hqueue.metadata import PartitionKey
from hqueue.metadata.ports import NEW
from hqueue.metadata.steps import Work
from hqueue.runtime.logs import Log

__all__ = ["ClaimedOffsets"]

logger = Log(__name__)


class ClaimedOffsets:
    """Where a member begins in what it claims, and by what its commits count. Thread-safe.

    A claim's commits count from `accept` on, until it is given up, lost or one of them is refused:
    then others have the partition, or had it meanwhile, or another hand changed the offset, and no
    later commit of the same claim would count. It is lost, and may be claimed again.

    Args:
        offsets: the group's; None without: then all positions are `UNSET`, and nothing is
            committed.
        writer: how commits are signed.
        lock: held, by this and its user, where claims come and go; not while anything is asked.
        on_refused: called, with the lock held, with claims whose commit was refused; with
            those of them that are lost by that.
    """

    def __init__(
        self,
        offsets: GroupOffsets | None,
        writer: str,
        lock: AbstractContextManager[object],
        on_refused: Callable[[Collection[PartitionKey]], Collection[PartitionKey]],
    ) -> None:
        self._offsets = offsets
        self._writer = writer
        self._lock = lock
        self._on_refused = on_refused
        self._known: dict[PartitionKey, Offset] = {}
        self._refused_at: dict[PartitionKey, Position] = {}
        """What was committed last of claims that were lost by a refused commit, in this session."""

    def take_over(
        self, claimed: Collection[PartitionKey], certain: Callable[[], Work[bool]]
    ) -> Work[dict[PartitionKey, Offset]]:
        """Make these claims the only ones whose commits will count; where each begins.

        Args:
            claimed: claims of this session, which are not accepted yet.
            certain: as `GroupOffsets.take_over` takes it.

        Returns:
            Those that could be taken over. Offsets that another hand removed are set back to what
            this member committed last: what comes next must not be skipped, nor all be handed out
            again. Where others changed one since, it is left out.

        Raises:
            HQueueError: as `GroupOffsets.take_over`.
        """
        if self._offsets is None:
            return dict.fromkeys(claimed, Offset(UNSET, NEW))
        taken = yield from self._offsets.take_over.steps(self._writer, claimed, certain)
        with self._lock:
            before = {key: self._refused_at[key] for key in taken.keys() & self._refused_at.keys()}
        removed = {
            key: (taken[key], position)
            for key, position in before.items()
            if taken[key].position == UNSET != position and taken[key].unreadable is None
        }
        moved: Mapping[PartitionKey, Offset] = {}
        if removed:
            moved = yield from self._offsets.commit.steps(self._writer, removed)
        with self._lock:
            for key in before.keys() - (removed.keys() - moved.keys()):
                self._refused_at.pop(key, None)
        return {
            key: moved.get(key, offset)
            for key, offset in taken.items()
            if key not in removed or key in moved
        }

    def accept(self, assigned: Mapping[PartitionKey, Offset]) -> None:
        """Let commits of these claims count. The lock is held."""
        self._known |= assigned

    def drop(self, keys: Collection[PartitionKey]) -> None:
        """These claims are gone. The lock is held."""
        for key in keys:
            self._known.pop(key, None)

    def lose(self) -> None:
        """All claims are gone, with their session. The lock is held."""
        self._known.clear()
        self._refused_at.clear()

    def commit(self, positions: Mapping[PartitionKey, Position]) -> Work[Collection[PartitionKey]]:
        """Like `GroupMember.commit`."""
        if self._offsets is None:
            return []
        with self._lock:
            known = {key: self._known[key] for key in filter(self._known.__contains__, positions)}
        try:
            moved = yield from self._offsets.commit.steps(
                self._writer, {key: (offset, positions[key]) for key, offset in known.items()}
            )
        except (CommitFailedError, StoreUnavailableError) as exc:
            named: list[Any] = [exc.facts.get(name, ()) for name in ("partitions", "refused")]
            refused = known.keys() & set().union(*named)
            self._refuse({key: known[key] for key in refused})
            raise
        self._refuse({key: known[key] for key in known.keys() - moved.keys()})
        with self._lock:
            same = filter(lambda key: self._known.get(key) is known[key], moved)
            self._known |= {key: moved[key] for key in same}
        return positions.keys() - moved.keys()

    def give_up(self) -> None:
        """Like `GroupOffsets.give_up`."""
        if self._offsets is not None:
            self._offsets.give_up()

    def _refuse(self, refused: Mapping[PartitionKey, Offset]) -> None:
        with self._lock:
            current = [*filter(lambda key: self._known.get(key) is refused[key], refused)]
            gone = self._on_refused(current) if current else ()
            for key in gone:
                self._refused_at[key] = self._known.pop(key).position
        if gone:
            text = (
                "commits of these partitions were refused; those that are still wanted will be "
                "claimed again: %s"
            )
            logger.warning(text, sorted(gone)[:10])
