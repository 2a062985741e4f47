"""Registrations that are made again after a lost session, or after another client removed them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from hqueue.errors import ClosedError, HQueueError, Outcome, StoreUnavailableError
from hqueue.metadata.outcomes import own_copy
from hqueue.metadata.own_keys import OwnKeys
from hqueue.metadata.ports import Attempt, Group, MetadataStore, Obstacle, SessionState
from hqueue.metadata.steps import OnStore, Pause, PutEphemerals, Release, Work
from hqueue.runtime.alarm import Alarm
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock, Deadline
from hqueue.runtime.held import NotHeldError
from hqueue.runtime.logs import Log
from hqueue.runtime.loop import BackgroundLoop
from hqueue.runtime.seldom import FaultLog
from hqueue.runtime.stepwise import or_closed, stepwise
from hqueue.runtime.turn import Turn

__all__ = ["Registration"]

logger = Log(__name__)

PAUSE_MS = 50.0
"""The pause between two tries. It is shorter than the time that a group waits before it plans
without a missing member, so a successor that waits for its predecessor's session to end registers
in time."""

MAKING_S = 600.0


class Registration(OnStore):
    """A registration that is made by `begin`, and made again until it is closed: after its session
    was lost, and after another client removed it.

    If another session has registered one of its groups already:

    - if `is_own` returns True for the group's last value, that session's process can't be alive,
      and the group is replaced;
    - otherwise that process may be dead: `begin` waits until its session must be over.

    After this session was lost, a task of the loop makes the groups again in the same way.
    A group that another session registered while this one lived is never replaced: that
    session came later, and its process is alive or the session ends. If the groups can't be made
    again, `on_failure` is called, and nothing more is tried. While the store can't be reached, the
    task keeps trying.

    Args:
        store: the session with the store.
        groups: the groups of keys to register.
        is_own: whether a group's last value can only be an earlier registration of this owner.
        on_obstacle: makes the error for a registration that stays in the way.
        on_failure: called if the groups can't be made again.
        parents: whether to create missing keys above the groups.
        clock: measures the wait for another session.
        making_s: how long a change of the registration waits until it is made, at most.
        loop: the loop that carries it; the store's if None.

    Raises:
        As `MetadataStore.loop`.
    """

    def __init__(
        self,
        store: MetadataStore,
        groups: Sequence[Group],
        *,
        is_own: Callable[[bytes], bool],
        on_obstacle: Callable[[Obstacle], HQueueError],
        on_failure: Callable[[HQueueError], None],
        parents: bool = False,
        clock: Clock = SYSTEM_CLOCK,
        making_s: float = MAKING_S,
        loop: BackgroundLoop | None = None,
    ) -> None:
        super().__init__(store, clock)
        self.failure: HQueueError | None = None
        """The error that prevented making the registration again: it is gone for good. None if
        there is none."""
        self._groups = list(groups)
        self._is_own = is_own
        self._on_obstacle = on_obstacle
        self._on_failure = on_failure
        self._parents = parents
        self._making_s = making_s
        self._made_by: int | None = None
        self._closed = False
        self._settled = False
        """Whether nothing is left to remove."""
        self._own: OwnKeys | None = None
        self._faults = FaultLog(logger, clock)
        self._making = Turn()
        self._loop = loop or store.loop
        self._alarm = Alarm(self._loop)

    @stepwise
    def begin(self) -> Work[None]:
        """Register the groups. Called once.

        Raises:
            HQueueError: the error of `on_obstacle` or of the store. No group stays registered.
        """
        yield from or_closed(self._begin(), self.close, self._loop)

    def _begin(self) -> Work[None]:
        yield from self._make.steps()
        self._own = OwnKeys(self._store, self._alarm.ring, self._end_with_session)
        yield from self._make_again.steps()
        self._loop.start(self._run)

    @stepwise
    def close(self) -> Work[None]:
        """Remove the registrations that this object made, and only those. Never raises: a
        registration that can't be removed now disappears with the session.
        """
        if self._settled:
            return
        self._stop()
        yield from self._while_not_making(self._remove())
        self._settled = True

    @stepwise
    def leave_behind(self, values: Mapping[str, bytes]) -> Work[None]:
        """Change the values of some keys, and stop maintaining the registration: it stays until the
        session ends or a successor replaces it. Never raises: values that can't be changed now stay
        as they are.
        """
        if self._settled:
            return
        self._stop()
        if self.failure is None and self._store.state is SessionState.CONNECTED:
            yield from self._while_not_making(self._put(values))
        self._settled = True

    def _put(self, values: Mapping[str, bytes]) -> Work[None]:
        try:
            yield PutEphemerals(self._groups_with(values), _nobody)
        except HQueueError as exc:
            logger.warning(
                "a registration was not updated, and stays as it is until its session with "
                "ZooKeeper ends: %s",
                exc,
            )

    def _while_not_making(self, work: Work[None]) -> Work[None]:
        try:
            yield from self._making.take(work, self._store.session_timeout_ms / 1e3)
        except NotHeldError:
            pass

    @stepwise
    def replace(self, values: Mapping[str, bytes]) -> Work[None]:
        """Change the values of some keys, now and when the registration is made again.

        Raises:
            HQueueError: its `failure`, if it is gone for good; or as the constructor.
        """
        yield from self._making.take(self._replace(values), self._making_s, _late)

    def _replace(self, values: Mapping[str, bytes]) -> Work[None]:
        if self.failure is not None:
            raise own_copy(self.failure)
        self._groups = self._groups_with(values)
        yield from self._make.steps()

    def _groups_with(self, values: Mapping[str, bytes]) -> list[Group]:
        return [
            {key: values.get(key, value) for key, value in group.items()} for group in self._groups
        ]

    def _stop(self) -> None:
        """See to it no more."""
        self._end()
        if self._own is not None:
            self._own.close()

    def _end_with_session(self) -> None:
        self._settled = True
        self._end()

    def _end(self) -> None:
        self._closed = True
        self._alarm.ring()

    async def _run(self) -> None:
        while True:
            await self._alarm.wait()
            if self._closed:
                return
            try:
                await self._make_again_in_turn.in_loop()
            except StoreUnavailableError as exc:
                text = "a registration in ZooKeeper could not be restored yet: %s"
                self._faults.met("registration", text, exc)
                await asyncio.sleep(PAUSE_MS / 1e3)
                self._alarm.ring()
            except (
                ClosedError,
                asyncio.CancelledError,
            ):  # So it is at the end of a program's loop.
                return
            except HQueueError as exc:
                logger.error("a registration in ZooKeeper could not be restored: %s", exc)
                await self._fail(exc)
                return
            except BaseException as exc:  # Else it would be gone, and nobody the wiser.
                logger.exception("a registration in ZooKeeper could not be restored")
                await self._fail(
                    HQueueError(
                        "a registration in ZooKeeper failed",
                        outcome=Outcome.UNKNOWN,
                        reason=repr(exc),
                    )
                )
                return
            else:
                self._faults.over("registration", "a registration in ZooKeeper was restored")

    async def _fail(self, error: HQueueError) -> None:
        self.failure = error
        what = "a listener of a registration's failure"
        while True:
            try:
                await self._loop.notify(what, self._on_failure, error)
                return
            except ClosedError:
                return
            except HQueueError as exc:  # No thread is free.
                logger.debug("a call to %s is postponed: %s", what, exc)
                await asyncio.sleep(PAUSE_MS / 1e3)

    @stepwise
    def _make_again_in_turn(self) -> Work[None]:
        yield from self._making.take(self._make_again.steps(), self._making_s, _late)

    @stepwise
    def _make_again(self) -> Work[None]:
        """Make what isn't there any more, and hear of it when that goes, too."""
        assert self._own is not None
        while not self._closed:
            values = {key: value for group in self._groups for key, value in group.items()}
            gone = yield from self._own.missing(values)
            if not gone:
                return
            if self._store.session_id == self._made_by:
                logger.warning(
                    "another program removed a registration in ZooKeeper, which will be "
                    "restored: %s",
                    min(gone),
                )
            yield from self._make.steps()

    @stepwise
    def _make(self) -> Work[None]:
        """Make what isn't there by this session."""
        patience = Deadline(self._clock, 1.5 * self._store.session_timeout_ms + 1_000)
        while not self._closed:
            made_before = self._made_by is not None and self._store.session_id == self._made_by
            is_own = _nobody if made_before else self._is_own
            attempt: Attempt = yield PutEphemerals(self._groups, is_own, self._parents)
            session_id, obstacle = attempt
            if obstacle is None:
                if session_id is not None and self._store.session_id == session_id:
                    self._made_by = session_id
                    return
            elif obstacle.value is None or patience.expired:
                raise self._on_obstacle(obstacle)
            yield Pause(PAUSE_MS)

    def _remove(self) -> Work[None]:
        """Release what is this session's. What is looked at first goes first."""
        if self._store.state is not SessionState.CONNECTED:
            return
        keys = [key for group in self._groups for key in group]
        try:
            yield Release(keys[::-1], wait=False)
        except HQueueError as exc:
            logger.warning(
                "a registration was not removed, and stays until its session with ZooKeeper "
                "ends: %s",
                exc,
            )


def _nobody(value: bytes) -> bool:
    """What was put in the place of a registration while its session lived is a living one's."""
    return False


def _late() -> StoreUnavailableError:
    return StoreUnavailableError(
        "a registration in ZooKeeper is still being restored: try again",
        outcome=Outcome.NOT_APPLIED,
    )
