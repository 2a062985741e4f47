"""How a writer takes part in a move: it writes only where metadata is in force, and says so.

The rules, which `tests/model/migration` shows to be needed:

- Before it writes anything there is a migration state, which says where metadata is in force.
- A writer says which state it acknowledges, then looks whether that is the state still. Only then,
  and while the session is certain by which it says so, does it write.
- It acknowledges no move to a table that is not the one of its settings.
- It acknowledges no other state while a change is under way. So when all writers that are present
  have acknowledged that the move drains, all changes of before are made or have failed.
- After each change it looks whether what it acknowledged still holds; if not, whether the change
  was made where metadata is in force, and no move compares it yet. If neither, it may have come
  too late to be copied, and its outcome is unknown.
"""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import socket
import threading
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from hqueue.errors import (
    HQueueError,
    MetadataReadOnlyError,
    Outcome,
    SettingsError,
    StoreUnavailableError,
    UnsupportedFormatError,
)
from hqueue.metadata.certainty import Certainty
from hqueue.metadata.managers.migration_state import (
    MigrationState,
    MigrationStateRecord,
    Phase,
    encode_acknowledgement,
)
from hqueue.metadata.ports import Attempt, MetadataStore, Record, Watch
from hqueue.metadata.steps import OnStore, PutEphemerals, Release, Work
from hqueue.runtime.clock import Clock, Deadline
from hqueue.runtime.fork import register
from hqueue.runtime.held import NotHeldError
from hqueue.runtime.job import Job
from hqueue.runtime.logs import Log
from hqueue.runtime.loop import BackgroundLoop
from hqueue.runtime.program_loop import ProgramLoop, ended
from hqueue.runtime.seldom import FaultLog
from hqueue.runtime.stepwise import stepwise
from hqueue.runtime.turn import Turn
from hqueue.runtime.waiting import InterruptibleFuture

__all__ = ["MigrationFence"]

logger = Log(__name__)

NAME_BYTES = 8
PAUSE_MS = 100.0
TURN_S = 600.0
"""How long an acknowledgement waits for earlier ones, each of which has a bound of its own."""

Answer = TypeVar("Answer")


class _Permit(NamedTuple):
    """The permission to make a change."""

    state: MigrationState
    session_id: int | None
    """The session by which the migration state was acknowledged; None if it was not."""


class MigrationFence(OnStore):
    """Lets changes of one queue's metadata through while it is not moved. Thread-safe.

    In a forked child the fence is another writer.

    Args:
        record: the migration state.
        session: the session with ZooKeeper by which the fence acknowledges states.
        wait_ms: how long a change waits for a move to end.
        clock: measures time.
        loop: the loop in which it watches the state; the session's if None.
    """

    def __init__(
        self,
        record: MigrationStateRecord,
        session: MetadataStore,
        wait_ms: float,
        clock: Clock,
        loop: BackgroundLoop | None = None,
    ) -> None:
        super().__init__(session, clock)
        self._record = record
        self._session = session
        self._wait_ms = wait_ms
        self._loop = loop
        self._closed = False
        self._begin()
        register(self)

    def _begin(self) -> None:
        self._lock = threading.RLock()
        self._changed: InterruptibleFuture[None] = InterruptibleFuture()
        """Done at the next change of what is known or under way, for callers that wait for it."""
        self._acknowledging = Turn()
        self._faults = FaultLog(logger, self._clock)
        self._certainty = Certainty(self._session, self._lock, self._clock)
        name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(NAME_BYTES)}"
        self._key = self._record.writer(name.replace("/", "-"))
        self._known: MigrationState | None = None
        self._watching = False
        self._watch: Watch | None = None
        self._following: Job | None = None
        self._said: int | None = None
        """The state that this writer's registration names, if there is one."""
        self._admitted: int | None = None
        """The state that the fence acknowledged, and found unchanged afterwards."""
        self._under_way = 0
        self._entered = 0
        """The state in which the changes under way were admitted."""

    def after_fork_in_child(self) -> None:
        self._begin()

    @property
    def first(self) -> MigrationState:
        """The state before the first move."""
        return self._record.first

    @property
    def above(self) -> str:
        """The path below which the state's record lies."""
        return self._record.above

    @property
    def is_present(self) -> bool:
        """Whether a move would wait for this writer. Takes no lock."""
        return self._said is not None and not self._closed and self._session.session_id is not None

    @property
    def is_left(self) -> bool:
        """Whether the fence can't acknowledge states any more, since its event loop was closed."""
        return isinstance(self._loop, ProgramLoop) and self._loop.loop.is_closed()

    def learn(self, state: MigrationState) -> None:
        """Note that the state was changed to this. A fence that does not watch the state reads it
        when it must know.
        """
        with self._lock:
            if self._watching:
                self._learn(state)

    @property
    def known(self) -> MigrationState | None:
        """The state as far as it is known; None before anything was asked."""
        return self._known

    @stepwise
    def state(self, *, now: bool = False) -> Work[MigrationState]:
        """The state as it was a moment ago. Asks ZooKeeper if it is not known.

        Args:
            now: ask in any case.

        Raises:
            UnsupportedFormatError: its record can't be read.
            SettingsError: metadata is in force elsewhere than the settings say.
        """
        known = self._known
        return (yield from self._look()) if now or known is None else known

    @stepwise
    def settle(self) -> Work[None]:
        """Create the migration state if there is none; acknowledge it if it allows changes.

        Raises:
            UnsupportedFormatError: its record can't be read.
            SettingsError: metadata is in force elsewhere than the settings say.
            StoreUnavailableError: ZooKeeper does not answer.
        """
        yield from self._record.settle.steps()
        state = yield from self._look()
        if state.phase.is_open:
            yield from self._acknowledge(state)

    @stepwise
    def change(
        self, change: Callable[[MigrationState], Work[Answer]], is_made: Callable[[Answer], bool]
    ) -> Work[Answer]:
        """Make a change in a state in which changes may be made. Waits for that. Where it is left
        in its middle, its request may still be under way: so an event loop brings it to its end.

        Args:
            change: makes it: work that only waits.
            is_made: whether anything was changed, by its answer. If nothing was, and the state may
                be another one, it is asked for again.

        Raises:
            MetadataReadOnlyError: the move takes longer than is waited.
            SettingsError: metadata is in force elsewhere than the settings say.
            StoreUnavailableError: with an outcome.
        """
        deadline = Deadline(self._clock, self._wait_ms)
        while True:
            permit = yield from self._enter(deadline)
            try:
                answer = yield from change(permit.state)
                if (yield from self._held(permit)):
                    return answer
            finally:
                self._leave()
            if is_made(answer):
                raise StoreUnavailableError(
                    "the metadata may have been moved to another store, without this change",
                    outcome=Outcome.UNKNOWN,
                )

    @stepwise
    def close(self) -> Work[None]:
        """Stop acknowledging states. Never raises. Without a move, changes are let through."""
        with self._lock:
            self._closed = True
            self._note_change()
        if self._watch is not None:
            self._watch.close()
        wait_s = self._session.session_timeout_ms / 1e3
        with contextlib.suppress(NotHeldError):
            yield from self._acknowledging.take(self._release(), wait_s)

    # Making one change.

    def _enter(self, deadline: Deadline) -> Work[_Permit]:
        while True:
            if self._closed:
                return (yield from self._enter_closed())
            state = yield from self.state.steps()
            with self._lock:
                if state.phase.is_open and self._is_admitted(state):
                    self._under_way += 1
                    self._entered = state.number
                    return _Permit(state, self._certainty.session_id)
            if state.phase.is_open:
                try:
                    yield from self._acknowledge(state)
                except HQueueError as exc:
                    exc.outcome = Outcome.NOT_APPLIED
                    raise
            else:
                yield from self._until(functools.partial(self._is_over, state), deadline)
            if (
                deadline.expired
                and (yield from self.state.steps()) == state
                and not self._is_admitted(state)
            ):
                raise self._closed_to_changes(state)

    def _is_over(self, state: MigrationState) -> bool:
        return self._closed or self._known != state

    def _until(self, is_so: Callable[[], bool], deadline: Deadline) -> Work[None]:
        """Wait until a condition holds that `_note_change` reports, no longer than the deadline."""
        while not deadline.expired:
            with self._lock:
                if is_so():
                    return
                changed = self._changed
            yield ended(changed, deadline.remaining_ms / 1e3)

    def _enter_closed(self) -> Work[_Permit]:
        """Enter without an acknowledgement. A later look shows whether the change came too late."""
        yield from self._record.settle.steps()
        state = yield from self._look()
        if not state.phase.is_open:
            raise self._closed_to_changes(state)
        with self._lock:
            self._under_way += 1
        return _Permit(state, None)

    def _is_admitted(self, state: MigrationState) -> bool:
        return (
            self._known is not None
            and self._known.number == self._admitted == state.number
            and self._lasts()
            and self._certainty.still_holds()
        )

    def _lasts(self) -> bool:
        """Whether no other session has begun, as far as is known here."""
        return self._session.session_id in (None, self._certainty.session_id)

    def _held(self, permit: _Permit) -> Work[bool]:
        """Whether a change was made where metadata is in force, before a move compares it."""
        mine = permit.session_id
        is_same = mine is not None and mine == self._certainty.session_id and self._lasts()
        if is_same and (yield from self._certainty.holds.steps()):
            return True
        try:
            newest = yield from self._look()
        except HQueueError as exc:
            logger.debug("the migration state of topics' metadata can't be read now: %s", exc)
            return False
        return newest.location == permit.state.location and newest.phase is not Phase.COMPARING

    def _leave(self) -> None:
        with self._lock:
            self._under_way -= 1
            self._note_change()

    @staticmethod
    def _closed_to_changes(state: MigrationState) -> HQueueError:
        if state.phase.is_open:
            return StoreUnavailableError(
                "the ZooKeeper session keeps expiring: check the connection to ZooKeeper",
                outcome=Outcome.NOT_APPLIED,
            )
        return MetadataReadOnlyError(
            "topics' metadata is being moved to another store, and can't be changed now: try "
            "again later. If no 'hqueue metadata migrate' runs, run it again, or end the move with "
            "--abandon",
            phase=state.phase.value,
            target=state.copy and state.copy.store,
        )

    # The migration state, and what writers say of it.

    def _look(self) -> Work[MigrationState]:
        state, _ = yield from self._record.read.steps()
        with self._lock:
            is_first = not (self._watching or self._closed)
            self._watching |= is_first
            newest = self._learn(state)
        if is_first:
            watch = self._session.watch(self._record.above, 1, self._on_change, self._loop)
            with self._lock:
                self._watch = watch
            if self._closed:
                watch.close()
        return newest

    def _on_change(self, found: Mapping[str, Record]) -> None:
        try:
            state = self._record.state(found)
        except (UnsupportedFormatError, SettingsError) as exc:
            logger.error("topics' metadata can't be used: %s", exc)
            with self._lock:
                self._known = None  # The next one that needs it gets this error.
                self._note_change()
            return
        with self._lock:
            self._learn(state)

    def _learn(self, state: MigrationState) -> MigrationState:
        """Note a state, and return the newest one. Call this with the lock held."""
        if self._known is None or state.number >= self._known.number:
            self._known = state
            self._note_change()
        return self._known

    def _note_change(self) -> None:
        """Wake callers that wait for a change. Call this with the lock held."""
        changed, self._changed = self._changed, InterruptibleFuture()
        changed.set_result(None)
        if self._following is not None and self._is_behind():
            self._following.ask()

    def _acknowledge(self, state: MigrationState) -> Work[None]:
        """Acknowledge that this writer writes in no other state. If that is still the state
        afterwards, changes may be made.
        """
        return self._acknowledging.take(self._acknowledge_in_turn(state), TURN_S, _late)

    def _acknowledge_in_turn(self, state: MigrationState) -> Work[None]:
        if self._closed:
            return
        if (
            self._admitted == state.number
            and self._lasts()
            and (yield from self._certainty.holds.steps())
        ):
            return
        yield from self._until(
            lambda: self._is_over(state) or self._may_say(state),
            Deadline(self._clock, self._wait_ms),
        )
        with self._lock:
            if self._is_over(state):
                return  # The next state may be acknowledged by now, and a move waits for it.
            if not self._may_say(state):
                raise _late()
            self._admitted = None
        if self._following is None:
            self._following = Job(self._follow.in_loop, loop=self._loop)
        if state.number == 0:
            yield from self._record.settle.steps()
        if not state.phase.is_open:
            self._record.check_table(state)
        said = {self._key: encode_acknowledgement(state.number)}
        attempt: Attempt = yield PutEphemerals([said], lambda value: True, parents=True)
        newest = yield from self._look()
        with self._lock:
            self._said = state.number
            if newest.number == state.number:
                self._admitted = state.number
                self._certainty.begin(attempt.session_id)
        yield from self._certainty.holds.steps()

    def _may_say(self, state: MigrationState) -> bool:
        return not self._under_way or self._entered == state.number

    @stepwise
    def _follow(self) -> Work[float]:
        """Acknowledge the state, unless a change is under way in an earlier one. Returns in how
        many milliseconds to look again.
        """
        with self._lock:
            if self._closed or not self._is_behind():
                return float("inf")
            state = self._known
        assert state is not None
        try:
            yield from self._acknowledge(state)
        except HQueueError as exc:
            text = "the migration state of topics' metadata is not acknowledged yet: %s"
            self._faults.met("state", text, exc)
            return PAUSE_MS
        self._faults.over("state", "the migration state of topics' metadata is acknowledged")
        return 0.0

    def _is_behind(self) -> bool:
        known = self._known
        return known is not None and self._said != known.number and self._may_say(known)

    def _release(self) -> Work[None]:
        with self._lock:
            self._admitted = None
            self._certainty.begin(None)  # Only the state protects changes that are under way.
        if self._following is not None:
            self._following.close()
            with contextlib.suppress(HQueueError):  # The session's end removes it.
                yield Release([self._key], wait=False)


def _late() -> StoreUnavailableError:
    return StoreUnavailableError(
        "earlier changes of topics' metadata are still under way: try again",
        outcome=Outcome.NOT_APPLIED,
    )
