"""Consumer groups: a read begins at a group's offsets, and commits to a group what was finished."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hqueue import Client, HQueueError, MessageID
from hqueue.engine import Engine, StandaloneOffsets
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock
from hqueue.runtime.logs import Log
from hqueue.runtime.seldom import FaultLog
from pyspark_hqueue.reading.plan import Position, partitions_of
from pyspark_hqueue.reading.read_options import ReadOptions

__all__ = ["GroupCommits", "commits_of", "committed_by"]

logger = Log(__name__)

RETRY_MS = 5_000


def committed_by(client: Client, options: ReadOptions) -> dict[int, Position]:
    """The offsets of ``startingGroup`` in the partitions that are read; only those that it has.

    Raises:
        UnsupportedFormatError: the record of an offset can't be read.
        StoreUnavailableError: ZooKeeper was unavailable.
    """
    if options.start_group is None:
        return {}
    queue = client.queue(options.queue)
    partitions = partitions_of(queue, options)
    offsets = Engine(client).standalone_offsets(options.start_group, options.queue)
    committed = offsets.committed(partitions)
    if not committed:
        logger.warning(
            "the group %r has no offsets in the queue %r yet: the read begins where "
            "startingOffsets says, or with the oldest message",
            options.start_group,
            options.queue,
        )
    return {
        partition: Position(
            int(at), queue.count_before(partition, at) if ordinal is None else ordinal
        )
        for partition, (at, ordinal) in committed.items()
    }


def commits_of(client: Client, group: str, queue: str) -> GroupCommits:
    """What commits to a group."""
    return GroupCommits(Engine(client).standalone_offsets(group, queue), group)


class GroupCommits:
    """Commits to a group what a read has finished. Used by one thread.

    A group's offsets are for others to see: no error here is one of the read, except in `begin`.

    Args:
        offsets: the group's.
        group: its name, for the log.
        clock: where time comes from.
    """

    def __init__(self, offsets: StandaloneOffsets, group: str, clock: Clock = SYSTEM_CLOCK) -> None:
        self._offsets = offsets
        self._group = group
        self._clock = clock
        self._last: Mapping[int, Position] = {}
        self._running = False
        """Whether a commit is on its way: the next one waits for it."""
        self._failed = False
        self._retry_ms = 0.0
        self._faults = FaultLog(logger)

    def begin(self, partitions: Iterable[int]) -> None:
        """Take the group's offsets over, unless it has done so before in these partitions.

        Raises:
            GroupActiveError: the group has consumers of the queue.
            StoreUnavailableError: ZooKeeper was unavailable.
        """
        wanted = frozenset(partitions)
        if not wanted <= self._offsets.partitions:
            self._offsets.begin(wanted | self._offsets.partitions)

    def finished(self, positions: Mapping[int, Position], *, wait: bool = False) -> None:
        """All before these positions is finished: commit them, in the background unless `wait`.

        A commit that fails is logged, and tried again by a call that comes 5 s later. Where another
        took the offsets over, every commit fails.
        """
        if self._failed and (wait or self._clock.monotonic_ms() >= self._retry_ms):
            self._failed, self._last = False, {}
        moved = {
            partition: (MessageID.from_int(position.id), position.ordinal)
            for partition, position in positions.items()
            if self._last.get(partition) != position
        }
        if wait:
            try:
                self._offsets.commit(moved)
            except HQueueError as exc:
                self._on_commit(exc)
            else:
                self._last = {**self._last, **positions}
        elif moved and not self._running and not self._failed:
            self._running, self._last = True, {**self._last, **positions}
            self._offsets.commit_later(moved, self._on_commit)

    def _on_commit(self, error: HQueueError | None) -> None:
        self._running = False
        if error is None:
            self._faults.over("commits", "the group %r has the stream's offsets again", self._group)
            return
        self._retry_ms = self._clock.monotonic_ms() + RETRY_MS
        self._failed = True
        text = "the group %r does not have what the stream has finished: %s"
        self._faults.met("commits", text, self._group, error)
