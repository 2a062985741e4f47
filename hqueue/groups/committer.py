"""Committing offsets at once, or beside what a consumer does."""

from __future__ import annotations

import asyncio
import collections
import threading
import weakref
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from hqueue.errors import (
    BufferFullError,
    CommitFailedError,
    HQueueError,
    Outcome,
    StoreUnavailableError,
)
from hqueue.groups.offsets import Position
from hqueue.metadata import PartitionKey
from hqueue.runtime import ending
from hqueue.runtime.foreign import call_foreign
from hqueue.runtime.held import NotHeldError
from hqueue.runtime.logs import Log
from hqueue.runtime.loop import background
from hqueue.runtime.program_loop import ProgramLoop
from hqueue.runtime.seldom import FaultLog
from hqueue.runtime.steps import Work
from hqueue.runtime.stepwise import BoundWork, Stepwise, stepwise
from hqueue.runtime.threads import try_start
from hqueue.runtime.turn import Turn
from hqueue.runtime.waiting import Condition
from hqueue.watching.observers import OBSERVERS, watched

__all__ = ["Committer", "OnCommit"]

logger = Log(__name__)

OnCommit = Callable[[Mapping[PartitionKey, Position], "HQueueError | None"], None]

LATER_MAX, ROOM_S = 1_000, 120.0

TURN_S = 600.0
"""How long a commit waits for those before it."""

RETRY_S = 0.25
"""When a thread for callbacks is tried again that the system refused."""

CALLBACKS_S = 10
"""How long the end of the process waits for callbacks."""

_Later = tuple[Mapping[PartitionKey, Position], "OnCommit | None"]


class Committer(Stepwise):
    """Commits one after the other, in the order in which it was asked. Thread-safe.

    What is committed later is done by a task of the process's loop, or of the program's, or by a
    caller that commits before that. Of positions that wait, and that nobody waits for, only the
    latest are committed: however slow the store is, what waits is no more than one position a
    partition.

    Nothing here waits for a callback: a callback may commit itself. Callbacks have a thread, for as
    long as there are some to call. Before the process ends normally, all that waits is committed;
    what comes after that is committed by the caller.

    Args:
        commit: commits positions, and returns the partitions for which that was refused.
        loop: the consumer's loop, if it has one: then no commit has a callback.
        group: the group's name, for what watches the process.
        waiting_max: this many commits wait; the caller that wants one more waits as well.
        room_s: how long it waits: longer than a commit takes that is given up.
    """

    def __init__(
        self,
        commit: BoundWork[[Mapping[PartitionKey, Position]], Collection[PartitionKey]],
        loop: ProgramLoop | None = None,
        *,
        group: str | None = None,
        waiting_max: int = LATER_MAX,
        room_s: float = ROOM_S,
    ) -> None:
        self._loop = loop
        self._group = group
        self._waiting_max = waiting_max
        self._room_s = room_s
        self._commit = commit
        self._committing = Turn()
        """Taken by calls that commit, and by no callback."""
        self._lock = threading.RLock()
        self._less = Condition(self._lock, carried=True)
        self._later: collections.deque[_Later] = collections.deque()
        self._to_call: collections.deque[tuple[OnCommit, _Later, HQueueError | None]] = (
            collections.deque()
        )
        self._running = False
        """Whether a task of the loop commits what waits."""
        self._thread: threading.Thread | None = None
        """There for as long as callbacks wait."""
        self._refused = False
        """Whether callbacks wait for a thread that the system refuses for now."""
        self._decisions: weakref.WeakSet[AbstractContextManager[object]] = weakref.WeakSet()
        self._ending = False
        self._faults = FaultLog(logger)
        ending.register(self)

    def at_end(self) -> None:
        """Commit what waits, and call the callbacks; from now on commit at once."""
        self._ending = True
        self.commit({})
        thread = self._thread
        if thread is None:
            self._call_back()
        elif not self.calls_back:
            thread.join(CALLBACKS_S)

    @property
    def calls_back(self) -> bool:
        """Whether the caller is called by this object: in a callback of a commit."""
        return self._thread is threading.current_thread()

    def expect(self, decision: AbstractContextManager[object]) -> None:
        """Let `flush` wait for a decision what to commit: for as long as this lock is held. The
        one who decides holds it until that is committed, or will be later.
        """
        self._decisions.add(decision)

    @stepwise
    def commit(self, positions: Mapping[PartitionKey, Position]) -> Work[Any, None]:
        """Commit now, after the commits that wait.

        Raises:
            CommitFailedError: some are refused; the others are committed.
            StoreUnavailableError: with an outcome; some may be committed.
        """
        late = partial(
            StoreUnavailableError,
            "commits before this one do not end",
            outcome=Outcome.NOT_APPLIED,
        )
        yield from self._committing.take(self._commit_in_turn(positions), TURN_S, late)

    def await_room(self) -> None:
        """Wait until one more with a callback may wait. Not called by a thread that holds a
        decision, or what a callback needs.

        Raises:
            BufferFullError: a callback of a commit asks, which others wait for, or what interrupts
                a commit; or none went on for a long time.
        """
        self.call_back()
        with self._lock:
            if (self.calls_back or self._committing.is_own) and not self._has_room():
                raise BufferFullError(
                    "too many commits are waiting: wait for some before you commit more",
                    waiting=self._waiting_max,
                )
            if not self._less.wait_for(self._has_room, self._room_s):
                raise BufferFullError(
                    "too many commits are waiting, and none has finished for a long time: a "
                    "commit's callback does not return, or ZooKeeper is unavailable",
                    waiting=self._waiting_max,
                )

    def _has_room(self) -> bool:
        return len(self._later) + len(self._to_call) < self._waiting_max

    def commit_later(
        self, positions: Mapping[PartitionKey, Position], on_commit: OnCommit | None = None
    ) -> None:
        """Commit soon, in the background; at once where no background task can run.

        Args:
            positions: what to commit.
            on_commit: called by a thread with the positions, and with the error if there was one,
                which is logged if there is nobody to be called.
        """
        with self._lock:
            if on_commit is None and self._later and self._later[-1][1] is None:
                self._later[-1] = ({**self._later[-1][0], **positions}, None)
            else:
                self._later.append((positions, on_commit))
            loop = None if self._ending else self._loop or background()
            if loop is not None and not self._running:
                loop.start(self._run)
        if loop is None:
            self.commit({})

    @stepwise
    def flush(self) -> Work[Any, None]:
        """Wait until all that was decided is committed, or failed. The store's bounds hold."""
        for decision in list(self._decisions):
            with decision:
                pass
        yield from self.commit.steps({})

    async def _run(self) -> None:
        """Commit what waits."""
        with self._lock:
            if self._running:
                return
            self._running = True
        while self._goes_on():
            if not self._later:
                await asyncio.sleep(RETRY_S)
                continue
            try:
                await self._commit_next.in_loop()
            except NotHeldError:
                pass  # Others commit all the time.

    def _goes_on(self) -> bool:
        """Have the waiting callbacks called. Returns whether more waits for its commit, or for a
        thread that the system refuses for now.
        """
        with self._lock:
            if self._to_call and self._thread is None:
                # It begins when the lock is free.
                self._thread = try_start(self._call, name="hqueue-commit")
            self._refused = bool(self._to_call) and self._thread is None
            self._running = bool(self._later) or self._refused
            return self._running

    def call_back(self) -> None:
        """Call the callbacks that wait, if no thread will. The caller holds no decision, and no
        lock that a callback may need.
        """
        if self._thread is None and (self._refused or not self._running):
            self._call_back()

    def _call(self) -> None:
        while True:
            with self._lock:
                if not self._to_call:
                    self._thread = None
                    return
            self._call_back()

    def _call_back(self) -> None:
        """Call the callbacks. Where no thread can be started, a caller that holds no lock does."""
        while True:
            with self._lock:
                if not self._to_call:
                    return
                on_commit, (positions, _), error = self._to_call.popleft()
            call_foreign("a callback of a commit", on_commit, positions, error)
            with self._lock:
                self._less.notify_all()

    # Done in the turn alone.

    @stepwise
    def _commit_next(self) -> Work[Any, None]:
        yield from self._committing.take(self._commit_first(alone=True), TURN_S)

    def _commit_in_turn(self, positions: Mapping[PartitionKey, Position]) -> Work[Any, None]:
        while self._later:
            yield from self._commit_first(alone=False)
        yield from self._carry_out(positions)

    def _commit_first(self, *, alone: bool) -> Work[Any, None]:
        """Commit what waits for longest.

        It waits until that is done: if the caller is interrupted, another commits it.

        Args:
            alone: whether no caller waits that would learn of an error which is not the library's.
        """
        if not self._later:
            return
        first = self._later[0]
        positions, on_commit = first
        error: HQueueError | None = None
        try:
            yield from self._carry_out(positions)
        except HQueueError as exc:
            error = exc
        except BaseException as exc:
            if not alone or isinstance(exc, GeneratorExit):
                raise
            error = HQueueError(
                "offsets were not committed", outcome=Outcome.UNKNOWN, reason=repr(exc)
            )
            error.__cause__ = exc
        if on_commit is not None:
            self._to_call.append((on_commit, first, error))
        elif error is not None:
            self._faults.met("commits", "offsets were not committed: %s", error)
        if error is None:
            self._faults.over("commits", "offsets are committed again")
        with self._lock:
            if self._later[0] is first:  # Else more was put to it meanwhile.
                self._later.popleft()
            self._less.notify_all()

    def _carry_out(self, positions: Mapping[PartitionKey, Position]) -> Work[Any, None]:
        if not positions:
            return
        work = self._commit.steps(positions)
        if OBSERVERS:
            queues, group = {key.queue for key in positions}, self._group or ""
            queue = queues.pop() if len(queues) == 1 else ""
            work = watched(work, lambda each: each.settle(queue, group, "commit", len(positions)))
        refused = yield from work
        if refused:
            raise CommitFailedError(
                "other consumers have these partitions now, or their offsets were reset",
                outcome=Outcome.NOT_APPLIED,
                partitions=sorted(refused),
                unknown=[],
                committed=sorted(positions.keys() - refused),
            )
