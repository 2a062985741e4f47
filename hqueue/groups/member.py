"""A consumer as a member of its group: it is present, and claims its partitions."""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Awaitable, Callable, Collection, Mapping
from collections.abc import Set as AbstractSet

from hqueue.errors import (
    ClosedError,
    HQueueError,
    Outcome,
    StoreUnavailableError,
)
from hqueue.groups.assignors import Assignment, Assignor
from hqueue.groups.changes import Changes
from hqueue.groups.claimed_offsets import ClaimedOffsets
from hqueue.groups.kinds import CONSUMER, GroupKinds
from hqueue.groups.members import GroupMembers
from hqueue.groups.offsets import GroupOffsets, Offset, Position
from hqueue.groups.pacing import Pacing
from hqueue.groups.paths import GroupPaths
from hqueue.groups.plan import GroupPlan
from hqueue.groups.planning import Planning
from hqueue.metadata import MetadataStore, PartitionKey, SessionState
from hqueue.metadata.certainty import Certainty
from hqueue.metadata.claimant import Claimant
from hqueue.metadata.claiming import Claiming, Steps
from hqueue.metadata.owners import Owners
from hqueue.metadata.ports import Watch
from hqueue.metadata.steps import OnStore, Work
from hqueue.runtime.alarm import Alarm
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock
from hqueue.runtime.logs import Log
from hqueue.runtime.loop import computed
from hqueue.runtime.program_loop import ended
from hqueue.runtime.seldom import FaultLog
from hqueue.runtime.stepwise import or_closed, stepwise
from hqueue.runtime.waiting import InterruptibleFuture, carries_others

__all__ = ["GroupMember"]

logger = Log(__name__)

HERE_MAX = 1_000
"""The most members and partitions together of a plan that is made in the event loop: making it
takes some milliseconds."""


class GroupMember(OnStore):
    """Joins a group, claims the member's partitions, and reports which it must give up.

    The member is in the group from `join` to `close`, which leaves the group at once. A task of the
    store's loop watches the group and claims; the consumer's thread or task asks for `changes`,
    commits, and releases.

    Args:
        store: the session by which the member is present.
        paths: the group's paths.
        consumer: the member's ID, which no other has.
        streams: how many streams the member has of each queue.
        assignor: decides which member gets which partitions.
        eager: as `Claimant` takes it.
        writer: the name that signs the member's commits, which no other process has or had. None
            if its ID is such a name.
        static: whether the member's ID outlives it: its place is kept until its session is over,
            for a successor of that ID, which gets the same partitions. While the member is alive,
            or may be, no other takes its place.
        commits: whether the group has offsets; if not, all positions are `UNSET`, and nothing is
            committed.
        on_change: called when there are `changes`, or a `failure`. It takes notice and returns.
        on_queues: called with the names of all queues that members consume. It does likewise.
        idle_ms_max: how long the member stays in the group without a call of `changes`.
        on_idle: awaited in that loop before the member leaves for that reason, while commits still
            count.
        clock: where time comes from.

    Raises:
        As `MetadataStore.loop`.
    """

    def __init__(
        self,
        store: MetadataStore,
        paths: GroupPaths,
        consumer: str,
        streams: Mapping[str, int],
        *,
        assignor: Assignor,
        eager: bool = False,
        writer: str | None = None,
        static: bool = False,
        commits: bool = True,
        on_change: Callable[[], None] = lambda: None,
        on_queues: Callable[[frozenset[str]], None] = lambda _: None,
        on_idle: Callable[[], Awaitable[object]] | None = None,
        idle_ms_max: float | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__(store, clock)
        self.consumer = consumer
        self.failure: HQueueError | None = None
        """Why the member is not in the group any more, and can't come back."""
        self.idle = False
        """Whether the member left the group because its consumer did not ask for `changes`."""
        self._static = static
        self._streams = streams
        self._on_change = on_change
        self._on_queues = on_queues
        self._on_idle = on_idle
        self._faults = FaultLog(logger, clock)
        self._planning = Planning(consumer, assignor, led=not eager)
        self._plan = GroupPlan(store, paths)
        self._changes = Changes()
        self._lock = threading.RLock()
        self._loop = store.loop
        self._pacing = Pacing(Alarm(self._loop), clock, idle_ms_max)
        self._certainty = Certainty(store, self._lock, clock)
        offsets = GroupOffsets(store, paths) if commits else None
        self._kinds = GroupKinds(store, paths) if commits else None
        self._offsets = ClaimedOffsets(offsets, writer or consumer, self._lock, self._on_refused)
        self._closed = self._left = False
        self._eager = eager
        self._group = GroupMembers(store, paths, clock)
        self._registration = self._group.registration(consumer, streams, self._fail, static=static)
        self._owners = Owners(store, paths, "consumer")
        self._watches: list[Watch | Claimant] = []
        self._claimant: Claimant
        self._claiming = Claiming(eager=eager)
        self._serving: InterruptibleFuture[None] | None = None

    @stepwise
    def join(self) -> Work[None]:
        """Join the group. Call this once. If it raises, nothing of the member is left.

        Raises:
            RequestRefusedError: another consumer of this ID stays in the group.
            GroupActiveError: the group is a share group.
            HQueueError: as the store's.
        """
        yield from or_closed(self._join(), self.close, self._loop)

    def _join(self) -> Work[None]:
        yield from self._registration.begin.steps()
        if self._kinds is not None:
            yield from self._kinds.check.steps(CONSUMER)
        self._claimant = Claimant(
            self._owners, self.consumer, self._lock, self._look, eager=self._eager
        )
        self._claiming = self._claimant.claiming
        self._watches.append(self._claimant)
        self._watches.append(self._store.on_state(self._on_state, self._end))
        self._watches.append(self._group.watch(self._on_members))
        if not self._eager:
            self._watches.append(self._plan.watch(self._on_plan))
        self._serving = self._loop.start(self._serve)

    def see_partitions(self, partitions: Mapping[PartitionKey, str | None]) -> None:
        """Note which partitions the group's queues have, with the hosts of their regions."""
        with self._lock:
            self._planning.see_partitions(dict(partitions))
            self._pacing.notify()

    @stepwise
    def subscribe(self, streams: Mapping[str, int]) -> Work[None]:
        """Consume these queues, and no others.

        Raises:
            StoreUnavailableError: other members may know it already. Call this again.
        """
        self._streams = streams
        yield from self._group.change.steps(self._registration, self.consumer, streams)

    @property
    def pending(self) -> Changes:
        """The changes that `changes` would return now. More may come at any time."""
        return self._changes

    def changes(self, *, asked_ms: float | None = None) -> Changes:
        """The changes since the last call.

        Args:
            asked_ms: when all parts of the caller were last alive; now if None.
        """
        with self._lock:
            self._pacing.see_alive(asked_ms)
            changes, self._changes = self._changes, Changes()
            return changes

    def accept(self, assigned: Mapping[PartitionKey, Offset]) -> None:
        """Let `commit` count for these `Changes.assigned` from now on.

        Call it when no more positions of an earlier claim of these partitions are committed. The
        earlier claim was this same member's, but its session ended meanwhile.
        """
        with self._lock:
            counting = self._claiming.held - self._changes.lost
            self._offsets.accept({key: assigned[key] for key in counting & assigned.keys()})

    @property
    def held(self) -> Collection[PartitionKey]:
        """The partitions that the member has or may have, also those that it claims or gives up."""
        with self._lock:
            return self._claiming.held

    @property
    def certain_until_ms(self) -> float:
        """Until when `certain` holds, by the clock, as far as that is known."""
        return self._certainty.until_ms

    @stepwise
    def certain(self, for_ms: float = 0) -> Work[bool]:
        """Whether no other member can have its partitions now, nor this long from now. Asks the
        store if that is not known.

        Call it before messages are handed out: a process that stood still learns only afterwards
        that its session is over.
        """
        return (yield from self._certainty.holds.steps(for_ms))

    @stepwise
    def owns(self, key: PartitionKey, for_ms: float = 0) -> Work[bool]:
        """Whether the member has a partition, need not give it up, and no other member can have it
        for this long. Any thread may call this.
        """
        if not (yield from self._certainty.holds.steps(for_ms)):
            return False
        with self._lock:
            # The session may have been lost since then, which is noticed for both at once.
            return self._certainty.still_holds(for_ms) and self._claiming.owns(key)

    @stepwise
    def commit(self, positions: Mapping[PartitionKey, Position]) -> Work[Collection[PartitionKey]]:
        """Commit offsets of partitions that it has accepted, in few round trips. Returns the
        partitions whose commits were refused: other members have or had them, or another program
        changed the offset. No later commit of the same claim would count, so these partitions are
        lost, and claimed again.

        Raises:
            CommitFailedError: as `GroupOffsets.commit`.
            StoreUnavailableError: the store was unavailable. The error has an outcome; some offsets
                may be committed.
        """
        return (yield from self._offsets.commit(positions))

    @stepwise
    def release(self, partitions: Collection[PartitionKey]) -> Work[None]:
        """Give up partitions that were `Changes.revoked`.

        Raises:
            StoreUnavailableError: the member may still have them. Call this again.
        """
        released = yield from self._claimant.release.steps(partitions)
        with self._lock:
            self._offsets.drop(released - self._claiming.held)
            self._pacing.notify()

    @stepwise
    def leave(self) -> Work[None]:
        """Leave the group, and claim nothing more. The member's partitions are `Changes.revoked`,
        and stay its own until they are released. Then `close` the member. Never raises.
        """
        with self._lock:
            self._claiming.leave()
            self._pacing.notify()
        yield from self._registration.close.steps()

    @stepwise
    def close(self) -> Work[None]:
        """Give up all partitions at once, and leave the group. A static member stays in the group
        until the session ends, and no other member gets its partitions. Never raises.
        """
        self._end()
        for watch in self._watches:
            watch.close()
        if self._serving is not None:
            is_over = yield ended(self._serving, self._store.session_timeout_ms / 1e3)
            if not is_over and not carries_others():
                text = "a consumer was closed before its member of the group had ended: %s"
                logger.warning(text, self.consumer)
        self._left = True
        self._offsets.give_up()
        yield from self._leave.steps()

    @stepwise
    def _leave(self) -> Work[None]:
        yield from self._give_up_claims.steps()
        if self._static and not self.idle:
            yield from self._group.leave_behind.steps(
                self._registration, self.consumer, self._streams
            )
        else:
            yield from self._registration.close.steps()

    @stepwise
    def _give_up_claims(self) -> Work[None]:
        # Without a connection, the claims stay: closing does not wait for one.
        if self._watches and self._store.state is SessionState.CONNECTED:
            try:
                yield from self._claimant.give_up.steps()
            except ClosedError:
                pass  # The claims ended with the session.
            except HQueueError as exc:
                logger.warning(
                    "a consumer's claims were not released, and stay until its session with "
                    "ZooKeeper ends: %s",
                    exc,
                )

    # Reports about the group. The lock is held by callers of methods whose names have no `on`.

    def _on_members(self, members: Mapping[str, Mapping[str, int]]) -> None:
        self._on_queues(frozenset(queue for streams in members.values() for queue in streams))
        with self._lock:
            self._planning.see_members(members)
            self._pacing.notify()

    def _on_plan(self, plan: Assignment | None) -> None:
        with self._lock:
            self._planning.see_plan(plan)
            self._pacing.settle(done=True)
            self._pacing.notify()

    def _on_state(self, state: SessionState) -> None:
        with self._lock:
            if state is SessionState.LOST:
                self._lose()
            elif state is SessionState.CONNECTED:
                before, session_id = self._certainty.session_id, self._store.session_id
                if before not in (None, session_id):
                    self._lose()
                if before != session_id:
                    self._certainty.begin(session_id)
            self._pacing.notify()

    def _fail(self, error: HQueueError) -> None:
        self.failure = error
        self._end()
        self._on_change()

    def _end(self) -> None:
        self._closed = True
        self._pacing.notify()

    def _lose(self) -> None:
        lost = self._claiming.lost()
        self._certainty.begin(None)
        self._offsets.lose()
        self._report_lost(lost)

    def _report_lost(self, lost: AbstractSet[PartitionKey]) -> None:
        self._changes.lose(lost)
        self._on_change()

    def _on_refused(self, refused: Collection[PartitionKey]) -> Collection[PartitionKey]:
        """Put claims whose offsets were refused in doubt: they are made again, and then take the
        offsets over.
        """
        gone = self._claiming.taken_away(refused)
        if gone:
            self._claiming.doubt(gone)
            self._report_lost(gone)
            self._pacing.notify()
        return gone

    def _look(self) -> None:
        """Look at the claims: one may be gone."""
        with self._lock:
            self._pacing.notify()

    # What is done.

    async def _serve(self) -> None:
        try:
            await self._run()
        except asyncio.CancelledError:  # With its program's loop, as a rule.
            self._fail(
                HQueueError(
                    "the consumer's member of the group was cancelled with other tasks of the "
                    "event loop; make another consumer",
                    outcome=Outcome.UNKNOWN,
                )
            )
            raise
        except BaseException as exc:  # Else the consumer would wait for its partitions for ever.
            logger.exception("a member of a group failed: %s", self.consumer)
            self._fail(
                HQueueError(
                    "the consumer's member of the group failed; make another consumer",
                    outcome=Outcome.UNKNOWN,
                    reason=f"{type(exc).__name__}: {exc}",
                )
            )
        finally:
            if self._left:  # `close` waits no more: release what was claimed meanwhile.
                await self._give_up_claims.in_loop()

    async def _run(self) -> None:
        while True:
            await self._pacing.wait(self._is_closed)
            if not self._closed and self._pacing.idle:
                break
            if self._planning.reckons:
                await self._pacing.gather(lambda: self._planning.members, self._is_closed)
            if self._closed:
                return
            session_id, plan, steps = await self._decided()
            if steps.revoke:
                self._on_change()
            try:
                done = await self._carry_out(steps, session_id)
                done &= session_id is None or await self._look_after_claims()
                if done and session_id is not None:
                    self._faults.over("claims", "the claims of a group can be read again")
                if plan is not None:
                    await self._lead(plan)
            except ClosedError:
                return
            with self._lock:
                self._pacing.settle(done=done)
        logger.warning(
            "a consumer has not polled for poll_interval_ms_max, and leaves its group: %s",
            self.consumer,
        )
        self.idle = self._closed = True
        if self._on_idle is not None:
            await self._on_idle()
        await self._leave.in_loop()
        self._on_change()

    async def _decided(self) -> tuple[int | None, Assignment | None, Steps]:
        """Like `_decide`, but outside the event loop if that may take long, as for many members."""
        if self._planning.reckons and self._planning.size > HERE_MAX:
            return await computed(self._decide)
        return self._decide()

    def _decide(self) -> tuple[int | None, Assignment | None, Steps]:
        """The session, the plan to write, and the steps to take now. They are decided without the
        lock: reports that come meanwhile count the next time.
        """
        nothing = None, None, Steps()
        with self._lock:
            self._pacing.pending = False
            session_id, seen = self._certainty.session_id, copy.copy(self._planning)
        if session_id is None:
            return nothing
        plan, wanted = seen.replan(), seen.wanted()
        with self._lock:
            if session_id != self._certainty.session_id:
                return nothing
            self._planning.acted_on(seen)
            self._claiming.request(wanted, regrouped=seen.regrouped)
            steps = self._claiming.steps()
            self._changes.revoke(steps.revoke)
        return session_id, plan, steps

    async def _lead(self, plan: Assignment) -> None:
        """Write the plan. Nothing is planned until the plan is seen again."""
        try:
            await self._plan.write.in_loop(plan)
        except StoreUnavailableError as exc:
            self._faults.met("plan", "a group can't be planned now: %s", exc)
            with self._lock:
                self._planning.see_nothing_written()
                self._pacing.notify()
        else:
            self._faults.over("plan", "a group can be planned again")

    def _is_closed(self) -> bool:
        return self._closed

    async def _carry_out(self, steps: Steps, session_id: int | None) -> bool:
        """Release doubtful claims, and claim partitions. Returns whether all were claimed."""
        taken: dict[PartitionKey, Offset] = {}

        def take_over(claimed: Collection[PartitionKey]) -> Work[Collection[PartitionKey]]:
            taken.update((yield from self._offsets.take_over(claimed, certain)))
            return taken.keys()

        def certain() -> Work[bool]:
            lives = yield from self._certainty.holds.steps()
            return lives and self._certainty.session_id == session_id

        try:
            owned = await self._claimant.carry_out.in_loop(steps, take_over)
        except ClosedError:
            raise
        except HQueueError as exc:
            self._faults.met("claims", "the claims of a group can't be read now: %s", exc)
            return False
        with self._lock:  # Only this task claims again what was lost meanwhile.
            for key in filter(self._claiming.owns, owned):
                self._changes.assigned[key] = taken[key]
        if owned:
            self._on_change()
        return owned == steps.claim

    async def _look_after_claims(self) -> bool:
        """Note claims that another program deleted. Returns whether all are there."""
        try:
            gone = await self._claimant.look_after.in_loop()
        except ClosedError:
            raise
        except HQueueError as exc:
            text = "the claims of this consumer can't be confirmed now: %s"
            self._faults.met("claims", text, exc)
            return False
        if gone:
            with self._lock:
                self._offsets.drop(gone)
                self._report_lost(gone)
        return not gone
