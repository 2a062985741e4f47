"""What a consumer is asked to do, and the messages that it has ready to be handed out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from hqueue.errors import ClosedError, InvalidInputError
from hqueue.groups.callbacks import Callbacks
from hqueue.groups.catalog import Selection
from hqueue.groups.committer import OnCommit
from hqueue.groups.consumer_options import ConsumerSettings
from hqueue.groups.handout import Handout
from hqueue.groups.member import GroupMember
from hqueue.groups.membership import GroupMembership
from hqueue.groups.offsets import Position
from hqueue.groups.share import Share
from hqueue.groups.stream import Stream
from hqueue.handle import Cluster, QueueLog
from hqueue.metadata import PartitionKey
from hqueue.runtime.clock import (
    SYSTEM_CLOCK,
    Clock,
    Deadline,
    do_step,
    do_step_in_loop,
    monotonic_s_of,
)
from hqueue.runtime.fork import OwnProcess, register
from hqueue.runtime.logs import Log
from hqueue.runtime.program_loop import ProgramLoop
from hqueue.runtime.steps import Pause, Work
from hqueue.runtime.stepwise import Stepwise, stepwise

__all__ = ["Consumption", "Decide"]

logger = Log(__name__)

Decide = Callable[[], Work[Any, Mapping[PartitionKey, Position]]]
"""Decides what to commit."""

SERVE_EVERY_MS = 1_000.0
"""How long it waits for messages at most, before it looks after its group again."""
UNCERTAIN_MS = 20.0


class Consumption(Stepwise):
    """What a consumer hands out, of its `Share` of its group's partitions, and what it is asked.

    One thread uses each of its streams; all else is done under a lock, by whichever of them comes.
    Or one task at a time of an event loop does all of it, but for commits: any task makes those.

    Args:
        cluster: where the queues are.
        group: the group's name; None for one that is assigned partitions by hand, and commits
            nothing.
        settings: the consumer's.
        streams: as `Share` takes it.
        clock: where time comes from.
        loop: as `Share` takes it.

    Raises:
        InvalidInputError: the group or the instance ID has no possible name.
    """

    def __init__(
        self,
        cluster: Cluster,
        group: str | None,
        settings: ConsumerSettings,
        *,
        streams: int | None = None,
        clock: Clock = SYSTEM_CLOCK,
        loop: ProgramLoop | None = None,
    ) -> None:
        self._share = share = Share(cluster, group, settings, streams, clock, loop=loop)
        self.positions = share.positions
        self.paused = share.paused
        self.streams = share.streams
        """Its partitions are parted among these."""
        self.membership = share.membership
        """Its membership of its group."""
        self.committer = share.committer
        self.lock = share.new_lock()
        """Held to change what it has, or where it is. Callbacks are called with it."""
        self.now_s = monotonic_s_of(clock)
        """The time by which streams say until when they are valid."""
        self.clock = clock
        self.closed = False
        self._settings = settings
        self._serve_every_ms = min(SERVE_EVERY_MS, settings.poll_interval_ms_max / 2)
        self._stopping = False
        self.process = OwnProcess("a consumer")
        """The process that made the consumer, whose partitions forked children don't have."""
        register(self)

    def after_fork_in_child(self) -> None:
        """What is handed out is the parent's: a stream looks before it hands out more."""
        for stream in self.streams:
            stream.attention = True

    # What it consumes.

    @stepwise
    def subscribe(
        self, selection: Selection, topics: Collection[str], callbacks: Callbacks
    ) -> Work[Any, None]:
        """Like `hqueue.Consumer.subscribe`."""
        self.check_no_callback()
        check = self.membership.check_selection.asked(selection)
        found = yield self._share.changing(check)
        with self.lock:
            self.settle()
            if frozenset(topics) != self._share.topics:
                self._share.topics = frozenset(topics)
                for stream in self.streams:
                    stream.restart(list(stream.keys))
            self._share.callbacks = callbacks
            subscribe = self.membership.subscribe.asked(selection, found)
            if (yield self._share.changing(subscribe)):
                self._share.schedule_commit()

    @stepwise
    def assign(self, partitions: Collection[PartitionKey]) -> Work[Any, None]:
        """Like `hqueue.Consumer.assign`. The partitions are there."""
        self.check_no_callback()
        if isinstance(self.membership.holder, GroupMember):
            raise InvalidInputError(
                "the consumer has subscribed; unsubscribe before partitions are assigned"
            )
        yield from self.unsubscribe.steps()
        with self.lock:
            yield self._share.changing(self.membership.assign.asked(partitions))
            self._share.schedule_commit()
            self._share.look(self.streams[0])
            yield from self._share.serve(self.streams[0])

    @stepwise
    def unsubscribe(self) -> Work[Any, None]:
        """Like `hqueue.Consumer.unsubscribe`."""
        self.check_no_callback()
        with self.lock:
            failure = yield from self._share.leave(commit=self._settings.auto_commit)
        if failure is not None:
            logger.warning("offsets were not committed: %s", failure)
        self._share.topics = frozenset()

    @stepwise
    def close(self, *, commit: bool) -> Work[Any, None]:
        """Like `hqueue.Consumer.close`."""
        self.check_no_callback()
        self.closed = True
        try:
            with self.lock:
                failure = yield from self._share.leave(commit=commit)
        finally:
            for stream in self.streams:
                stream.close()
            yield self._share.changing(self.membership.close.asked())
        if failure is not None:
            raise failure

    def log(self, queue: str, partition: int) -> Work[Any, QueueLog]:
        """The log of a queue that has a partition of this number, which is opened once."""
        return self._share.logs.opened(queue, partition)

    @property
    def release(self) -> Callable[[], None]:
        """What frees everything, and commits nothing. It does not keep this object."""
        return partial(_release, self.streams, self.membership)

    # What is handed out.

    def at_once(self, stream: Stream) -> Handout | None:
        """Like `refill`, if nothing must be done or waited for first. Else None: `refill` must be
        called.
        """
        self.check_no_callback()
        with self.lock:
            stream.settle()
            holder = self.membership.holder
            if self._stopping or self.closed or stream.handout is None or holder is None:
                return None
            until_ms = holder.certain_until_ms
            if self._share.look(stream) or until_ms <= self.clock.monotonic_ms():
                return None
            self._begin(stream, until_ms)
            return None if stream.attention else stream.handout

    def _begin(self, stream: Stream, certain_until_ms: float) -> None:
        """Let messages of a stream be handed out for a while."""
        look_ms = min(self.clock.monotonic_ms() + self._serve_every_ms, self._share.commit_due_ms)
        stream.valid_until_s = min(certain_until_ms, look_ms) / 1e3

    @stepwise
    def refill(self, stream: Stream, timeout_ms: float | None) -> Work[Any, Handout | None]:
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
            ClosedError: it was closed.
        """
        self.check_no_callback()
        waiting = Deadline(self.clock, float("inf") if timeout_ms is None else timeout_ms)
        with self.lock:
            stream.settle()  # Also if it must stop: what is done with is committed at the end.
        while not self._stopping:
            with self.lock:
                if self.closed:  # Its partitions are given up before its streams are closed.
                    raise ClosedError("the consumer was closed")
                if self.membership.holder is None:
                    raise InvalidInputError(
                        "the consumer consumes nothing: subscribe, or assign partitions"
                    )
                if self._share.look(stream):
                    yield from self._share.serve(stream)
                holder = self.membership.holder
            # Asked only where there is something to hand out: so an idle consumer asks nothing.
            if stream.handout is not None and holder is not None:
                certain = holder.certain_until_ms > self.clock.monotonic_ms()
                if certain or (yield holder.certain.asked()):
                    if stream.attention:
                        continue  # Perhaps of a session that has begun since: it read none of this.
                    self._begin(stream, holder.certain_until_ms)
                    return stream.handout
            over, wait_ms = waiting.expired, min(waiting.remaining_ms, self._serve_every_ms)
            if stream.handout is not None:
                yield Pause(min(wait_ms, UNCERTAIN_MS))
            elif (yield from stream.take(wait_ms)):
                with self.lock:
                    yield from stream.hand_out()
                continue
            if over:
                break
        return None

    def settle(self) -> None:
        """Like `Share.settle`."""
        self._share.settle()

    @property
    def calls_back(self) -> bool:
        """As `Callbacks.are_called_here`."""
        return self._share.callbacks.are_called_here

    def check_no_callback(self) -> None:
        """Raise an `InvalidInputError` if a callback for partitions that come and go asks: what it
        is called in the middle of has to be done first.
        """
        if self.calls_back:
            raise InvalidInputError(
                "a callback for assigned or revoked partitions can't close its consumer, poll it "
                "or change what it consumes: call request_stop, or do it after the poll"
            )

    def seek(self, key: PartitionKey, to: Position) -> None:
        """Go on elsewhere in a partition that it has."""
        with self.lock:
            stream = self._share.stream_of(key)
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
                stream = self._share.stream_of(key)
                stream.to_begin.add(key)
                stream.notice()
            self.paused.difference_update(keys)

    def resolve(self, key: PartitionKey) -> Work[Any, Position]:
        """Like `Share.resolve`."""
        return self._share.resolve(key)

    def request_stop(self) -> None:
        """Let `refill` give nothing from now on. From any thread, and from a handler of signals,
        which may come in the middle of a wait: no lock is taken that is not reentrant. In a forked
        child there is nothing to stop.
        """
        if self.process.is_left:
            return
        self._stopping = True
        self._share.take_notice()

    # Commits.

    @stepwise
    def commit(self, decide: Decide) -> Work[Any, None]:
        """Commit what is decided. Until it is done no later claim of these partitions counts."""
        decision = self._share.new_lock()
        with decision:
            with self.lock:
                self.committer.expect(decision)
                decided = yield from decide()
            yield from self.committer.commit.steps(decided)

    @stepwise
    def commit_later(self, decide: Decide, on_commit: OnCommit | None) -> Work[Any, None]:
        """The same, in another thread."""
        self.committer.await_room()
        with self.lock:  # So nobody waits for what is decided before it must be done.
            self.committer.commit_later((yield from decide()), on_commit)
        self.committer.call_back()

    # Carrying out.

    def _do(self, step: Any) -> object:
        return do_step(None, self.clock, step)

    async def _do_in_loop(self, step: Any) -> object:
        return await do_step_in_loop(None, self.clock, step)


def _release(streams: Sequence[Stream], membership: GroupMembership) -> None:
    try:
        membership.leave()
    finally:
        for stream in streams:
            stream.close()
        membership.close()
