"""A process of a subscriber that has several: the partitions that are its own among them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import Any

from hqueue.errors import (
    ClosedError,
    HQueueError,
    Outcome,
    SubscriberConnectedError,
    SubscriberNotFoundError,
)
from hqueue.groups.assignors import assign_sticky
from hqueue.groups.member import GroupMember
from hqueue.metadata import Coordination, PartitionKey, Presence, SessionState
from hqueue.metadata.subscriptions import PresenceGuard
from hqueue.push.administration import SubscriberAdministration
from hqueue.push.handover import Handover
from hqueue.push.members import MemberPaths
from hqueue.runtime.alarm import Alarm, needed_loop
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock, Deadline, do_step, do_step_in_loop
from hqueue.runtime.logs import Log
from hqueue.runtime.loop import BackgroundLoop
from hqueue.runtime.program_loop import ended
from hqueue.runtime.seldom import FaultLog
from hqueue.runtime.steps import Pause, Wait, Work
from hqueue.runtime.stepwise import Stepwise, stepwise
from hqueue.runtime.waiting import InterruptibleFuture

__all__ = ["SubscriberMember"]

logger = Log(__name__)

END_S = 60.0
"""How long its task may take to end: without a session what it waits for fails."""

RETRY_MS = 100
CERTAIN_FOR = 0.5
"""For how much of the session's time-out it must be certain to live when a call begins. A call that
takes no longer has ended before another member can get the partition, whatever happens to the
connection."""


class SubscriberMember(Stepwise):
    """One of the processes that share a subscriber's partitions.

    Its place is that of a consumer in a group: partitions are assigned and claimed alike. It is
    present (``address``, ``topics``) in those that it has claimed, for as long as it has the claim,
    and handles calls only for them: see `Handover`.

    From `start` to `close` a task of its loop does what must be done.

    Args:
        queue: the queue's name.
        subscriber: the subscriber's name.
        wanted: the partitions that the members share.
        every: whether those are all of the queue.
        timeout_ms: how long a call may take: one that a hand-over waits for longer is logged.
        on_failure: called, by any thread, if it can't go on; it takes notice and returns.
        loop: that of the program that the subscriber belongs to; the process's if None.
        clock: measures how long another is waited for.
    """

    def __init__(
        self,
        queue: str,
        subscriber: str,
        wanted: Collection[int],
        *,
        every: bool,
        timeout_ms: int,
        on_failure: Callable[[HQueueError], None],
        loop: BackgroundLoop | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.id = f"{socket.gethostname()}:{uuid.uuid4()}"
        """The ID by which the other members know this one."""
        self._queue = queue
        self._subscriber = subscriber
        self._wanted = frozenset(wanted)
        self._every = every
        self._timeout_ms = timeout_ms
        self._on_failure = on_failure
        self._clock = clock
        self._handover = Handover()
        self._present: frozenset[int] = frozenset()
        self._lock = threading.RLock()
        self._calls: Counter[int] = Counter()
        """The calls under way, by their partition."""
        self._awaited: frozenset[int] = frozenset()
        """Those whose last call is waited for."""
        self._loop = loop or needed_loop()
        self._due = Alarm(self._loop)
        self._closed = self._failed = False
        self._faults = FaultLog(logger, clock)
        self._obstructed: Deadline | None = None
        self._coordination: Coordination
        self._presence: Presence
        self._member: GroupMember | None = None
        self._guard: PresenceGuard | None = None
        self._serving: InterruptibleFuture[None] | None = None

    @property
    def partitions(self) -> Collection[int]:
        """Those that it is present in."""
        return self._present

    @stepwise
    def start(self, coordination: Coordination, presence: Presence) -> Work[Any, None]:
        """Join the others. Partitions come when they have been assigned.

        Args:
            coordination: the session that it lives by.
            presence: where it listens, and what it wants.

        Raises:
            SubscriberConnectedError: a subscriber of this name that shares with nobody is
                connected. One that has just died is waited for, as long as its session lasts.
            InvalidInputError: the topics are too long.
        """
        self._coordination, self._presence = coordination, presence
        yield coordination.subscriptions.appear.asked(self._queue, self._subscriber, presence, ())
        yield from self._await_alone()
        self._guard = coordination.subscriptions.guard(
            self._queue, self._subscriber, presence, self._due.ring
        )
        paths = MemberPaths(
            coordination, self._queue, self._subscriber, None if self._every else self._wanted
        )
        self._member = GroupMember(
            coordination.store,
            paths,
            self.id,
            {self._queue: 1},
            assignor=assign_sticky,
            commits=False,
            on_change=self._due.ring,
            clock=self._clock,
        )
        yield self._member.join.asked()
        self._member.see_partitions({self._key(partition): None for partition in self._wanted})
        self._serving = self._loop.start(self._run)

    @contextlib.contextmanager
    def call(self, partition: int) -> Iterator[Wait]:
        """For the time that a call is handled: asks whether it may be.

        It may if no other member can have the partition, nor get it while this lasts. A member that
        stood still learns only here that its session may be over.
        """
        # Counted before it is looked: so a hand-over either knows of the call, or the call of it.
        with self._lock:
            self._calls[partition] += 1
        try:
            yield self._owns.asked(partition)
        finally:
            with self._lock:
                self._calls[partition] -= 1
                if not self._calls[partition]:
                    del self._calls[partition]
                if partition in self._awaited:
                    self._due.ring()

    @stepwise
    def leave(self, timeout_ms: float) -> Work[Any, bool]:
        """Hand over all partitions, and leave. Returns whether that was done in time.

        What calls under way keep from being handed over is others' when `close` is called. While
        the connection is cut there is nothing to wait for but them.
        """
        member, deadline = self._member, Deadline(self._clock, timeout_ms)
        serving = self._serving
        if member is None or serving is None or serving.done():
            return True
        yield member.leave.asked()
        while member.held or not self._handover.done:
            connected = self._coordination.state is SessionState.CONNECTED
            if deadline.expired or serving.done() or not (connected or self._calls):
                return False
            yield Pause(min(deadline.remaining_ms, 10))
        return True

    @stepwise
    def close(self) -> Work[Any, None]:
        """End, after the session was closed. Never raises."""
        self._closed = True
        self._due.ring()
        if self._guard is not None:
            self._guard.close()
        if self._member is not None:
            yield self._member.close.asked()
        if self._serving is not None and not (yield ended(self._serving, END_S)):
            logger.warning("a member of subscriber %s is still closing", self._subscriber)

    def _do(self, step: Any) -> object:
        return do_step(None, self._clock, step)

    async def _do_in_loop(self, step: Any) -> object:
        return await do_step_in_loop(None, self._clock, step)

    def _key(self, partition: int) -> PartitionKey:
        return PartitionKey(self._queue, partition)

    @stepwise
    def _owns(self, partition: int) -> Work[Any, bool]:
        member = self._member
        if member is None:
            return False
        for_ms = CERTAIN_FOR * self._coordination.store.session_timeout_ms
        owns: bool = yield member.owns.asked(self._key(partition), for_ms)
        return owns

    def _await_alone(self) -> Work[Any, None]:
        """Wait until nobody is present who shares with nobody.

        Raises:
            SubscriberConnectedError: somebody stays.
        """
        coordination, patience = self._coordination, self._patience()
        while True:
            listed = yield coordination.subscriptions.list.asked(self._queue)
            there = {
                key.partition: presence
                for key, presence in listed.items()
                if presence and key.subscriber == self._subscriber
            }
            others = {p: each for p, each in there.items() if p in self._wanted}
            if not others:
                break
            administration = SubscriberAdministration(coordination)
            if (yield administration.members.asked(self._queue, self._subscriber)):
                break
            if patience.expired:
                raise SubscriberConnectedError(
                    "a subscriber of this name is connected without shared=True: stop it, or "
                    "choose another name",
                    queue=self._queue,
                    subscriber=self._subscriber,
                )
            yield Pause(RETRY_MS)
        own = self._presence
        if any((e.topics, e.delivery) != (own.topics, own.delivery) for e in there.values()):
            logger.warning(
                "members of subscriber %s of %s have different topics or delivery settings: each "
                "partition is delivered with the settings of the member that has it",
                self._subscriber,
                self._queue,
            )

    def _patience(self) -> Deadline:
        """How long one that may have died is waited for."""
        return Deadline(self._clock, 1.5 * self._coordination.store.session_timeout_ms + 1_000)

    # What its task does.

    async def _run(self) -> None:
        wait_ms = float("inf")
        while not self._closed:
            if not await self._due.wait(wait_ms) and self._awaited:
                logger.warning(
                    "listener calls have not ended, so partitions are not handed over to other "
                    "members: subscriber %s of %s, partitions %s",
                    self._subscriber,
                    self._queue,
                    sorted(self._awaited),
                )
            try:
                retry = not await self._turn.in_loop()
            except ClosedError:
                return
            except asyncio.CancelledError:  # With its program's loop, as a rule.
                self._failed = True
                self._on_failure(
                    HQueueError(
                        "the subscriber's member was cancelled with other tasks of the event loop; "
                        "make another subscriber",
                        outcome=Outcome.UNKNOWN,
                    )
                )
                raise
            except HQueueError as exc:
                text = "partitions of subscriber %s of %s can't be shared now: %s"
                self._faults.met("turn", text, self._subscriber, self._queue, exc)
                retry = True
            except BaseException as exc:  # Else it would keep what others wait for.
                logger.exception("a member of subscriber %s failed", self._subscriber)
                failure = HQueueError(
                    "the subscriber's member failed; make another subscriber",
                    outcome=Outcome.UNKNOWN,
                    reason=f"{type(exc).__name__}: {exc}",
                )
                await self._fail.in_loop(failure)
                return
            else:
                text = "partitions of subscriber %s of %s can be shared again"
                self._faults.over("turn", text, self._subscriber, self._queue)
            if retry:
                await asyncio.sleep(RETRY_MS / 1e3)
                self._due.ring()
            wait_ms = self._timeout_ms if self._awaited else float("inf")

    @stepwise
    def _turn(self) -> Work[Any, bool]:
        """Do what must be done now. Returns whether all of it was done."""
        member, handover, guard = self._member, self._handover, self._guard
        assert member is not None and guard is not None  # noqa: PT018
        if member.failure is not None:
            yield from self._fail.steps(member.failure)
        changes = member.changes()
        handover.lost(key.partition for key in changes.lost)
        handover.claimed(key.partition for key in changes.assigned)
        handover.revoked(key.partition for key in changes.revoked)
        self._present = handover.present
        subscriptions, place = self._coordination.subscriptions, (self._queue, self._subscriber)
        if leaving := handover.to_withdraw():
            yield subscriptions.withdraw.asked(*place, leaving)
            handover.withdrawn(leaving)
        with self._lock:
            released = handover.to_release(self._calls.keys())
            self._awaited = handover.draining - released
        if released:
            yield member.release.asked([self._key(partition) for partition in released])
            handover.released(released)
        if appearing := handover.to_appear():
            obstacle = yield subscriptions.appear.asked(*place, self._presence, appearing)
            if obstacle is not None:
                return self._failed or (yield from self._wait_for(obstacle))
            handover.appeared(appearing)
        self._obstructed = None
        vanished = yield guard.lost.asked(handover.present)
        handover.vanished(vanished)
        self._present = handover.present
        return not vanished

    def _wait_for(self, obstacle: HQueueError) -> Work[Any, bool]:
        """Have patience with an obstacle. Returns whether there is nothing to wait for."""
        self._obstructed = self._obstructed or self._patience()
        if self._obstructed.expired or isinstance(obstacle, SubscriberNotFoundError):
            yield from self._fail.steps(obstacle)
            return True
        return False

    @stepwise
    def _fail(self, error: HQueueError) -> Work[Any, None]:
        """It can't go on. What it has is others'."""
        if self._failed:
            return
        self._failed = True
        logger.error(
            "a subscriber failed, and leaves its partitions to the members that share them: %s",
            error,
        )
        self._on_failure(error)
        if self._member is not None:
            yield self._member.leave.asked()
