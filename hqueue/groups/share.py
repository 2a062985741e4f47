"""A consumer's share of its group's partitions, as they come and go."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from hqueue.errors import HQueueError, QueueNotFoundError
from hqueue.groups.assigned import HandAssigned
from hqueue.groups.callbacks import Callbacks
from hqueue.groups.changes import Changes
from hqueue.groups.committer import Committer
from hqueue.groups.consumer_options import ConsumerSettings
from hqueue.groups.member import GroupMember
from hqueue.groups.membership import GroupMembership
from hqueue.groups.offsets import Offset, Position
from hqueue.groups.positions import Positions
from hqueue.groups.stream import Stream
from hqueue.handle import Cluster, QueueLog
from hqueue.metadata import PartitionKey
from hqueue.runtime.clock import Clock
from hqueue.runtime.forgotten import weakly
from hqueue.runtime.interrupts import is_interruption
from hqueue.runtime.logs import Log
from hqueue.runtime.program_loop import ProgramLoop
from hqueue.runtime.steps import Wait, Work
from hqueue.runtime.stepwise import Stepwise, stepwise

__all__ = ["Share"]

logger = Log(__name__)


class Share(Stepwise):
    """The partitions of a consumer, distributed among its streams, with their positions and
    commits.

    Used under the consumer's lock, except where a method says otherwise. An event loop watches the
    group and the queues, and only leaves notes here.

    Methods that send requests are work: the consumer's thread or event loop executes their steps.

    Args:
        cluster: as `Consumption` takes it.
        group: as `Consumption` takes it.
        settings: the consumer's settings.
        streams: how many streams the consumer has. Each has a thread of its own, which alone says
            which messages it is done with. None for one stream, whose thread does all else, too.
        clock: where time comes from.
        loop: the event loop that the consumer belongs to; None if threads use it.

    Raises:
        InvalidInputError: the group's name or the instance ID is not valid.
    """

    def __init__(
        self,
        cluster: Cluster,
        group: str | None,
        settings: ConsumerSettings,
        streams: int | None,
        clock: Clock,
        *,
        loop: ProgramLoop | None = None,
    ) -> None:
        self.logs = _Logs(cluster)
        self.new_lock: Callable[[], AbstractContextManager[object]] = threading.RLock
        """Makes a lock for the consumer. In an event loop it locks nothing: one task uses a
        consumer."""
        self.changing: Callable[[Wait], Wait] = _same
        """Asks for a change of the membership. No other change begins before its end."""
        if loop is not None:
            self.new_lock, self.changing = contextlib.nullcontext, loop.to_end
        self.positions = Positions(self.logs.opened, settings.auto_offset_reset)
        self.paused: set[PartitionKey] = set()
        count = streams or 1
        self.streams = [
            Stream(self.positions, group, settings.bytes_max // count, clock, loop)
            for _ in range(count)
        ]
        """The streams, which the partitions are distributed among."""
        self._one_thread = streams is None
        # What other threads have does not keep what the program holds, as its callbacks do.
        self.membership = GroupMembership(
            cluster,
            group,
            settings,
            weakly(self.take_notice),
            partial(_commit_done, weakref.ref(self)),
            streams=count,
            loop=loop,
        )
        """The consumer's membership of its group."""
        self.committer = Committer(self._commit, loop, group=group)
        self.callbacks = Callbacks()
        self.topics: frozenset[str] = frozenset()
        """The topics that are read; all if empty."""
        self.commit_due_ms = float("inf")
        """When positions must be committed next."""
        self._settings = settings
        self._clock = clock
        self._to_accept: dict[PartitionKey, Offset] = {}
        self._to_lose: set[PartitionKey] = set()
        self._to_release: set[PartitionKey] = set()

    def settle(self) -> None:
        """Note how far the program is, if the thread that gets the messages asks: a commit's
        callback doesn't know which messages that thread is done with.
        """
        if self._one_thread and not self.committer.calls_back:
            self.streams[0].settle()

    def resolve(self, key: PartitionKey) -> Work[Any, Position]:
        """The position of a partition that the consumer has, at which reading can begin."""
        decision = self.new_lock()
        with decision:
            self.committer.expect(decision)
            if (yield from self.positions.resolve(key)) and self.membership.in_group:
                yield from self.committer.commit.steps({key: self.positions[key]})
            return self.positions[key]

    def stream_of(self, key: PartitionKey) -> Stream:
        """The stream that has a partition."""
        return next(stream for stream in self.streams if key in stream.keys)

    def _deal(self, keys: Collection[PartitionKey]) -> None:
        """Give partitions to the streams that have the fewest."""
        for key in sorted(keys):
            stream = min(self.streams, key=lambda each: len(each.keys))
            stream.keys.add(key)
            stream.to_begin.add(key)
            stream.notice()

    def take_notice(self) -> None:
        """Note that something must be done. Any thread may call this, also one that was interrupted
        anywhere: all locks that it takes are reentrant.
        """
        for stream in self.streams:
            stream.notice()

    def leave(self, *, commit: bool) -> Work[Any, HQueueError | None]:
        """Give up all partitions. Returns the error if not all positions could be committed."""
        failure: HQueueError | None = None
        self.settle()
        holder = self.membership.holder
        held: set[PartitionKey] = set()
        try:
            if holder is not None:
                yield from self._lose(self._to_lose | holder.changes().lost)
                held = self.positions.keys()
                try:
                    if commit and self.membership.in_group and holder.failure is None:
                        yield from self.committer.commit.steps(self.positions.moved(held))
                    yield from self.committer.flush.steps()
                except HQueueError as exc:
                    failure = exc
                if isinstance(holder, GroupMember):
                    yield from self.callbacks.revoked(held)
                    yield from self.committer.flush.steps()  # What the callback commits later.
        finally:
            self._remove(held)
            for noted in (self._to_accept, self._to_lose, self._to_release):
                noted.clear()
            yield self.changing(self.membership.leave.asked())
        return failure

    def look(self, stream: Stream) -> bool:
        """Note that messages of a stream are asked for, and how its partitions have changed.
        Returns whether `serve` must be called before messages are handed out.
        """
        stream.attention = False
        stream.asked_ms = now_ms = self._clock.monotonic_ms()
        holder = self.membership.holder
        if holder is None:
            return False
        if holder.failure is not None:
            raise holder.failure
        if holder.idle:
            return True
        changes = holder.changes(asked_ms=self._asked_ms())
        if changes.assigned or changes.revoked or changes.lost:
            self._note(changes)
        return bool(
            now_ms >= self.commit_due_ms
            or self._to_lose
            or self._to_release
            or self._to_accept
            or stream.revoked
            or stream.to_begin
            or self.membership.missing
            or self.positions.unreadable
        )

    def serve(self, stream: Stream) -> Work[Any, None]:
        """Do what must be done before messages of a stream are handed out. The program is done with
        those that were handed out before, and the stream is settled.
        """
        holder = self.membership.holder
        if holder is None:
            return
        if holder.idle and isinstance(holder, GroupMember):
            yield from self._rejoin()
            return
        yield from self._lose(self._to_lose)
        self._to_lose.clear()
        if stream.revoked or self._to_release:
            yield from self._revoke(holder, stream)
        if self._to_accept:
            # Positions that are not committed yet belong to earlier claims.
            yield from self.committer.flush.steps()
            assigned, self._to_accept = self._to_accept, {}
            holder.accept(assigned)
            self.positions.begin(assigned)
            self._deal(assigned)
            yield from self.callbacks.assigned(assigned)
        for key in sorted(stream.to_begin - self.paused - self.positions.unreadable):
            yield from self.resolve(key)
            log = yield from self.logs.opened(*key)
            stream.begin(key, log, self.topics)
        self.positions.report(stream.keys)
        if self.membership.missing:
            missing, self.membership.missing = min(self.membership.missing), frozenset()
            self.logs.drop(missing)
            raise QueueNotFoundError("a queue that the consumer reads was deleted", queue=missing)
        if self._clock.monotonic_ms() >= self.commit_due_ms:
            self.schedule_commit()
            moved = self.positions.moved(self.positions.keys())
            if moved:
                self.committer.commit_later(moved)

    def _note(self, changes: Changes) -> None:
        """Note the changes of the membership: each is reported once, and a callback may fail."""
        for key in changes.lost | changes.revoked:
            self._to_accept.pop(key, None)
        self._to_accept |= changes.assigned
        self._to_lose |= changes.lost
        revoked = changes.revoked & (self.positions.keys() - self._to_lose)
        self._to_release -= changes.lost
        self._to_release |= changes.revoked - revoked
        for each in self.streams:
            if not revoked.isdisjoint(each.keys):
                each.revoked |= revoked & each.keys
                each.notice()

    def _asked_ms(self) -> float:
        """Since when every stream with partitions has been asked for messages."""
        return min(
            (stream.asked_ms for stream in self.streams if stream.keys),
            default=self._clock.monotonic_ms(),
        )

    def _rejoin(self) -> Work[Any, None]:
        """Join the group again, which the consumer left because nothing was asked for too long."""
        logger.warning("consumer %s rejoins its group", self.membership.consumer_id)
        for noted in (self._to_accept, self._to_lose, self._to_release):
            noted.clear()
        yield from self._lose(self.positions.keys())
        yield self.changing(self.membership.rejoin.asked())
        self.schedule_commit()

    def _lose(self, keys: Collection[PartitionKey]) -> Work[Any, None]:
        """Drop partitions that other consumers may have already."""
        for stream in self.streams:
            stream.drop(keys)
        try:
            yield from self.callbacks.lost(self.positions.keys() & set(keys))
        finally:
            self._remove(keys)

    def _revoke(self, holder: GroupMember | HandAssigned, stream: Stream) -> Work[Any, None]:
        """Give up the partitions that a stream must give up, and those that could not be given up
        before. If a call is interrupted before the callback, the next call completes it.
        """
        keys = set(stream.revoked)
        stream.drop(keys)
        if keys:
            yield from self._commit_before(keys)
        try:
            if keys:
                yield from self.callbacks.revoked(keys)
                yield from self.committer.flush.steps()  # What the callback commits later.
        finally:
            self._remove(keys)
            self._to_release |= keys
            if self._to_release:
                try:
                    yield holder.release.asked(self._to_release)
                    self._to_release.clear()
                except HQueueError as exc:
                    if is_interruption(exc):
                        raise
                    logger.warning("partitions were not released yet: %s", exc)

    def _commit_before(self, keys: Collection[PartitionKey]) -> Work[Any, None]:
        """Commit positions of partitions that are given up, as far as the program is done."""
        try:
            if self._settings.auto_commit:
                yield from self.committer.commit.steps(self.positions.moved(keys))
        except HQueueError as exc:
            if is_interruption(exc):
                raise
            logger.warning("offsets were not committed: %s", exc)
        yield from self.committer.flush.steps()  # Commits that are under way would be refused.

    def _remove(self, keys: Collection[PartitionKey]) -> None:
        for stream in self.streams:
            stream.remove(keys)
        self.positions.remove(keys)
        self.paused.difference_update(keys)

    def schedule_commit(self) -> None:
        """Commit positions after the interval, if the consumer commits automatically."""
        if self._settings.auto_commit and self.membership.in_group:
            now_ms = self._clock.monotonic_ms()
            self.commit_due_ms = now_ms + self._settings.auto_commit_interval_ms

    @stepwise
    def commit_done(self) -> Work[Any, None]:
        """Commit the positions of messages that the program is done with, and not of those that it
        still works on, before the consumer leaves the group because nothing was asked for too long.
        The member's task calls this, and takes no lock: one may be held for as long as a callback
        takes.
        """
        if not self._settings.auto_commit:
            return
        done: dict[PartitionKey, Position] = {}
        for stream in self.streams:
            done |= stream.done()
        try:
            yield from self.committer.commit.steps(done)
        except HQueueError as exc:
            logger.warning("offsets were not committed: %s", exc)

    @stepwise
    def _commit(
        self, positions: Mapping[PartitionKey, Position]
    ) -> Work[Any, Collection[PartitionKey]]:
        """Commit positions. The committing thread calls this."""
        holder = self.membership.holder
        if holder is None:
            return positions.keys()
        refused: Collection[PartitionKey] = yield holder.commit.asked(positions)
        done = {key: position for key, position in positions.items() if key not in refused}
        self.positions.committed(done)
        return refused


def _same(wait: Wait) -> Wait:
    return wait


async def _commit_done(share: Callable[[], Share | None]) -> None:
    there = share()
    if there is not None:
        await there.commit_done.in_loop()


class _Logs:
    """The logs of a cluster's queues. Each is opened once."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._open: dict[str, QueueLog] = {}

    def opened(self, queue: str, partition: int) -> Work[Any, QueueLog]:
        """The log of a queue, which is opened once. It is opened again for a partition that it did
        not have: the queue may have been deleted, and created again with more.
        """
        log = self._open.get(queue)
        if log is None or partition >= log.partitions:
            log = self._open[queue] = yield self._cluster.log.asked(queue)
        return log

    def drop(self, queue: str) -> None:
        """Drop the log of a queue, which is opened again when it is needed."""
        self._open.pop(queue, None)
