"""What a consumer does: it takes part in its group, and has messages ready to be handed out."""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections.abc import Callable, Collection, Mapping, Sequence

from hqueue.errors import ClosedError, HQueueError, InvalidInputError, QueueNotFoundError
from hqueue.groups.assigned import HandAssigned
from hqueue.groups.callbacks import Callbacks
from hqueue.groups.catalog import Selection
from hqueue.groups.changes import Changes
from hqueue.groups.committer import Committer, OnCommit
from hqueue.groups.handout import Handout
from hqueue.groups.member import GroupMember
from hqueue.groups.offsets import Offset, Position
from hqueue.groups.options import ConsumerSettings
from hqueue.groups.place import GroupPlace
from hqueue.groups.positions import Positions
from hqueue.groups.stream import Stream
from hqueue.handle import Cluster, QueueLog
from hqueue.metadata import PartitionKey
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock, monotonic_s_of
from hqueue.runtime.forgotten import weakly
from hqueue.runtime.fork import register

__all__ = ["Consumption"]

logger = logging.getLogger(__name__)

SERVE_EVERY_MS = 1_000.0
"""How long it waits for messages at most, before it looks after its group again."""
UNCERTAIN_MS = 20.0


class Consumption:
    """A consumer's part in its group, the partitions that it has, and what comes of them.

    One thread uses each of its streams; all else is done under a lock, by whichever of them comes.
    The group is watched by a thread of the member, the queues by one of the catalog, and both only
    leave a note here.

    Args:
        cluster: where the queues are.
        group: the group's name; None for one that is assigned partitions by hand, and commits
            nothing.
        settings: the consumer's.
        clock: where time comes from.

    Raises:
        InvalidInputError: the group or the instance ID has no possible name.
    """

    def __init__(
        self,
        cluster: Cluster,
        group: str | None,
        settings: ConsumerSettings,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._logs = _Logs(cluster)
        self.positions = Positions(self._logs, settings.auto_offset_reset)
        self.paused: set[PartitionKey] = set()
        self.lock = threading.RLock()
        """Held by who changes what it has, or where it is. Callbacks are called with it."""
        self.now_s = monotonic_s_of(clock)
        """The time by which streams say until when they are valid."""
        self.clock = clock
        self.streams = [Stream(self.positions, settings.bytes_max, clock)]
        """One, or as many as it was `split` into."""
        # What other threads have does not keep what the program holds, as its callbacks do.
        notes = weakly(self._take_notice), weakly(self._commit_done)
        self.place = GroupPlace(cluster, group, settings, *notes)
        """Its place in its group."""
        self.closed = False
        self.committer = Committer(self._commit)
        self._settings = settings
        self._callbacks = Callbacks()
        self._topics: frozenset[str] = frozenset()
        self._to_accept: dict[PartitionKey, Offset] = {}
        self._to_release: set[PartitionKey] = set()
        self._commit_due_ms = float("inf")
        self._serve_every_ms = min(SERVE_EVERY_MS, settings.poll_interval_ms_max / 2)
        self._stopping = False
        self._pid = os.getpid()
        register(self)

    def after_fork_in_child(self) -> None:
        """What is handed out is the parent's: a stream looks before it hands out more."""
        for stream in self.streams:
            stream.attention = True

    @property
    def inherited(self) -> bool:
        """Whether this is a forked child, which has nothing of what its parent consumes."""
        return os.getpid() != self._pid

    def check_process(self) -> None:
        """Return if this is the process that made it.

        Raises:
            ClosedError: it is a forked child.
        """
        if self.inherited:
            raise ClosedError("a consumer can't be used in a forked child; make one there")

    # What it consumes.

    def subscribe(
        self, selection: Selection, topics: Collection[str], callbacks: Callbacks
    ) -> None:
        """As `hqueue.Consumer.subscribe`."""
        self.check_no_callback()
        found = self.place.check_selection(selection)
        with self.lock:
            self.settle()
            if frozenset(topics) != self._topics:
                self._topics = frozenset(topics)
                for stream in self.streams:
                    stream.restart(list(stream.keys))
            self._callbacks = callbacks
            if self.place.subscribe(selection, found):
                self._schedule_commit()

    def assign(self, partitions: Collection[PartitionKey]) -> None:
        """As `hqueue.Consumer.assign`. The partitions are there."""
        self.check_no_callback()
        if isinstance(self.place.holder, GroupMember):
            raise InvalidInputError("it has subscribed; unsubscribe before partitions are assigned")
        self.unsubscribe()
        with self.lock:
            self.place.assign(partitions)
            self._schedule_commit()
            self._serve(self.streams[0])

    def unsubscribe(self) -> None:
        """As `hqueue.Consumer.unsubscribe`."""
        self.check_no_callback()
        with self.lock:
            failure = self._leave(commit=self._settings.auto_commit)
        if failure is not None:
            logger.warning("offsets were not committed: %s", failure)
        self._topics = frozenset()

    def split(self) -> None:
        """Have as many streams as the settings say. Nothing is being handed out."""
        with self.lock:
            self.settle()
            (whole,) = self.streams
            keys = sorted(whole.keys)
            whole.forget(keys)
            bytes_max = self._settings.bytes_max // self._settings.streams
            self.streams += [
                Stream(self.positions, bytes_max, self.clock)
                for _ in range(self._settings.streams - 1)
            ]
            self._deal(keys)

    def close(self, *, commit: bool) -> None:
        """As `hqueue.Consumer.close`."""
        self.check_no_callback()
        self.closed = True
        try:
            with self.lock:
                failure = self._leave(commit=commit)
        finally:
            for stream in self.streams:
                stream.close()
            self.place.close()
        if failure is not None:
            raise failure

    def log(self, queue: str, partition: int) -> QueueLog:
        """The log of a queue, which is opened once; and again for a partition that it had not: the
        queue may have been deleted, and made again with more.
        """
        return self._logs(queue, partition)

    @property
    def release(self) -> Callable[[], None]:
        """What frees everything, and commits nothing. It does not keep this object."""
        return functools.partial(_release, self.streams, self.place)

    # What is handed out.

    def refill(self, stream: Stream, timeout_ms: float | None) -> Handout | None:
        """What may be handed out next of a stream: until its `valid_until_s`, or until its
        `attention` is needed. What was handed out of it before is done with.

        Args:
            stream: one of `streams`.
            timeout_ms: how long to wait for it; None for ever.

        Returns:
            None if nothing came in time, or a stop was requested.

        Raises:
            InvalidInputError: it has neither subscribed nor been assigned anything; or a callback
                asks.
        """
        self.check_no_callback()
        began_ms = self.clock.monotonic_ms()
        ends_ms = float("inf") if timeout_ms is None else began_ms + timeout_ms
        with self.lock:
            stream.settle()  # Also if it is to stop: what is done with is committed at the end.
        while not self._stopping:
            with self.lock:
                if self.place.holder is None:
                    raise InvalidInputError("it consumes nothing: subscribe, or assign partitions")
                self._serve(stream)
                holder = self.place.holder
            # Asked only where there is something to hand out: so an idle consumer asks nothing.
            certain = stream.handout is not None and holder is not None and holder.certain()
            if certain and stream.attention:
                continue  # Perhaps of a session that has begun since: it read none of this.
            now_ms = self.clock.monotonic_ms()
            if stream.handout is not None and holder is not None and certain:
                until_ms = min(
                    holder.certain_until_ms, now_ms + self._serve_every_ms, self._commit_due_ms
                )
                stream.valid_until_s = until_ms / 1e3
                return stream.handout
            wait_ms = max(0.0, min(ends_ms - now_ms, self._serve_every_ms))
            if stream.handout is not None:
                self.clock.sleep_ms(min(wait_ms, UNCERTAIN_MS))
            else:
                portion = stream.take(wait_ms)
                if portion is not None:
                    with self.lock:
                        stream.hand_out(portion)
                    continue
            if now_ms >= ends_ms:
                break
        return None

    def settle(self) -> None:
        """Note how far it is, where one thread alone is handed out messages, and that one asks: a
        callback of a commit doesn't know what the thread that polls is done with.
        """
        if len(self.streams) == 1 and not self.committer.calls_back:
            self.streams[0].settle()

    def check_no_callback(self) -> None:
        """Raise an `InvalidInputError` if a callback for partitions that come and go asks: what it
        is called in the middle of has to be done first.
        """
        if self._callbacks.are_called_here:
            raise InvalidInputError(
                "a callback for partitions that come and go can't close its consumer, poll it or "
                "change what it consumes; call request_stop, or do it after the poll"
            )

    def seek(self, key: PartitionKey, to: Position) -> None:
        """Go on elsewhere in a partition that it has."""
        with self.lock:
            stream = self._stream_of(key)
            self.positions[key] = to
            stream.restart([key])
            stream.notice()

    def pause(self, keys: Collection[PartitionKey]) -> None:
        """Hand out nothing of these. What was read of them is read again."""
        with self.lock:
            self.settle()
            self.paused.update(keys)
            for stream in self.streams:
                stream.drop(keys)

    def resume(self, keys: Collection[PartitionKey]) -> None:
        """Go on with these."""
        with self.lock:
            for key in self.paused.intersection(keys):
                stream = self._stream_of(key)
                stream.to_begin.add(key)
                stream.notice()
            self.paused.difference_update(keys)

    def resolve(self, key: PartitionKey) -> Position:
        """The position of a partition that it has, where one can begin."""
        decision = threading.Lock()
        with decision:
            self.committer.expect(decision)
            if self.positions.resolve(key) and self.place.in_group:
                self.committer.commit({key: self.positions[key]})
            return self.positions[key]

    def request_stop(self) -> None:
        """Let `refill` give nothing from now on. From any thread, and from a handler of signals,
        which may come in the middle of a wait: no lock is taken that is not reentrant. In a forked
        child there is nothing to stop.
        """
        if self.inherited:
            return
        self._stopping = True
        self._take_notice()

    def _stream_of(self, key: PartitionKey) -> Stream:
        return next(stream for stream in self.streams if key in stream.keys)

    def _deal(self, keys: Collection[PartitionKey]) -> None:
        """Give partitions to the streams that have least."""
        for key in sorted(keys):
            stream = min(self.streams, key=lambda each: len(each.keys))
            stream.keys.add(key)
            stream.to_begin.add(key)
            stream.notice()

    # What its place in the group brings.

    def _take_notice(self) -> None:
        """Called by other threads: something is to be done."""
        for stream in self.streams:
            stream.notice()

    def _leave(self, *, commit: bool) -> HQueueError | None:
        """Give everything up; why not all of it is committed, if that is so."""
        failure: HQueueError | None = None
        self.settle()
        holder = self.place.holder
        held: set[PartitionKey] = set()
        try:
            if holder is not None:
                self._lose(holder.changes().lost)
                held = self.positions.keys()
                try:
                    if commit and self.place.in_group and holder.failure is None:
                        self.committer.commit(self.positions.moved(held))
                    self.committer.flush()
                except HQueueError as exc:
                    failure = exc
                if isinstance(holder, GroupMember):
                    self._callbacks.revoked(held)
                    self.committer.flush()  # What the callback commits later.
        finally:
            self._forget(held)
            self._to_accept.clear()
            self._to_release.clear()
            self.place.leave()
        return failure

    def _serve(self, stream: Stream) -> None:
        """Do what is to be done before messages of a stream are handed out: those that were are
        done with, and it is settled. The lock is held.
        """
        stream.attention = False
        stream.asked_ms = self.clock.monotonic_ms()
        holder = self.place.holder
        if holder is None:
            return
        if holder.failure is not None:
            raise holder.failure
        if holder.idle and isinstance(holder, GroupMember):
            self._rejoin()
            return
        changes = holder.changes(asked_ms=self._asked_ms())
        if changes.assigned or changes.revoked or changes.lost:
            self._note(changes)
            self._lose(changes.lost)
        if stream.revoked or self._to_release:
            self._revoke(holder, stream)
        if self._to_accept:
            self.committer.flush()  # What is still to be committed is of earlier claims.
            assigned, self._to_accept = self._to_accept, {}
            holder.accept(assigned)
            self.positions.begin(assigned)
            self._deal(assigned)
            self._callbacks.assigned(assigned)
        for key in sorted(stream.to_begin - self.paused - self.positions.unreadable):
            self.resolve(key)
            stream.begin(key, self.log(*key).reader, self._topics)
        self.positions.report(stream.keys)
        if self.place.missing:
            missing, self.place.missing = min(self.place.missing), frozenset()
            self._logs.drop(missing)
            raise QueueNotFoundError("a queue that is consumed is gone", queue=missing)
        if self.clock.monotonic_ms() >= self._commit_due_ms:
            self._schedule_commit()
            moved = self.positions.moved(self.positions.keys())
            if moved:
                self.committer.commit_later(moved)

    def _note(self, changes: Changes) -> None:
        """Keep in mind what is to be done: changes are told once, and a callback may fail."""
        for key in changes.lost | changes.revoked:
            self._to_accept.pop(key, None)
        self._to_accept |= changes.assigned
        revoked = changes.revoked & (self.positions.keys() - changes.lost)
        self._to_release -= changes.lost
        self._to_release |= changes.revoked - revoked
        for each in self.streams:
            if not revoked.isdisjoint(each.keys):
                each.revoked |= revoked & each.keys
                each.notice()

    def _asked_ms(self) -> float:
        """Since when every stream that has partitions was asked for messages."""
        return min(
            (stream.asked_ms for stream in self.streams if stream.keys),
            default=self.clock.monotonic_ms(),
        )

    def _rejoin(self) -> None:
        """Nothing was asked for so long that it left the group."""
        logger.warning("a consumer comes back to its group: %s", self.place.consumer_id)
        self._to_accept.clear()
        self._to_release.clear()
        self._lose(self.positions.keys())
        self.place.rejoin()
        self._schedule_commit()

    def _lose(self, keys: Collection[PartitionKey]) -> None:
        """Others may have these already."""
        for stream in self.streams:
            stream.drop(keys)
        try:
            self._callbacks.lost(self.positions.keys() & set(keys))
        finally:
            self._forget(keys)

    def _revoke(self, holder: GroupMember | HandAssigned, stream: Stream) -> None:
        """Give up what a stream is to give up, and what could not be given up before."""
        keys = set(stream.revoked)
        stream.drop(keys)
        try:
            if keys:
                if self._settings.auto_commit:
                    try:
                        self.committer.commit(self.positions.moved(keys))
                    except HQueueError as exc:
                        logger.warning("offsets were not committed: %s", exc)
                self.committer.flush()  # What is under way would be refused.
                self._callbacks.revoked(keys)
                self.committer.flush()  # What the callback commits later.
        finally:
            self._forget(keys)
            self._to_release |= keys
            if self._to_release:
                try:
                    holder.release(self._to_release)
                    self._to_release.clear()
                except HQueueError as exc:
                    logger.warning("partitions are not given up yet: %s", exc)

    def _forget(self, keys: Collection[PartitionKey]) -> None:
        for stream in self.streams:
            stream.forget(keys)
        self.positions.forget(keys)
        self.paused.difference_update(keys)

    # Commits.

    def commit(self, decide: Callable[[], Mapping[PartitionKey, Position]]) -> None:
        """Commit what is decided. Until it is done no later claim of these partitions counts."""
        decision = threading.Lock()
        with decision:
            with self.lock:
                self.committer.expect(decision)
                decided = decide()
            self.committer.commit(decided)

    def commit_later(
        self, decide: Callable[[], Mapping[PartitionKey, Position]], on_commit: OnCommit | None
    ) -> None:
        """The same, in another thread."""
        self.committer.await_room()
        with self.lock:  # So nobody waits for what is decided before it is to be done.
            self.committer.commit_later(decide(), on_commit)
        self.committer.call_back()

    def _schedule_commit(self) -> None:
        if self._settings.auto_commit and self.place.in_group:
            now_ms = self.clock.monotonic_ms()
            self._commit_due_ms = now_ms + self._settings.auto_commit_interval_ms

    def _commit_done(self) -> None:
        """Called by the member's thread, which takes no lock here: one may be held for as long as a
        callback takes. Nothing was asked for so long that it leaves the group; before that, what
        its program is done with is committed, but not what it still works on.
        """
        if not self._settings.auto_commit:
            return
        done: dict[PartitionKey, Position] = {}
        for stream in self.streams:
            done |= stream.done()
        try:
            self.committer.commit(done)
        except HQueueError as exc:
            logger.warning("offsets were not committed: %s", exc)

    def _commit(self, positions: Mapping[PartitionKey, Position]) -> Collection[PartitionKey]:
        """Called by whichever thread commits."""
        holder = self.place.holder
        if holder is None:
            return positions.keys()
        refused = holder.commit(positions)
        done = {key: position for key, position in positions.items() if key not in refused}
        self.positions.committed(done)
        return refused


class _Logs:
    """The logs of a cluster's queues, opened once."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._open: dict[str, QueueLog] = {}

    def __call__(self, queue: str, partition: int) -> QueueLog:
        """As `Consumption.log`."""
        log = self._open.get(queue)
        if log is None or partition >= log.partitions:
            log = self._open[queue] = self._cluster.log(queue)
        return log

    def drop(self, queue: str) -> None:
        """Open it again when it is needed."""
        self._open.pop(queue, None)


def _release(streams: Sequence[Stream], place: GroupPlace) -> None:
    try:
        place.leave()
    finally:
        for stream in streams:
            stream.close()
        place.close()
