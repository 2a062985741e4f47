"""Registrations that outlast sessions, and the hands of others: made again when they are gone."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Mapping, Sequence

from hqueue.errors import ClosedError, HQueueError, StoreUnavailableError
from hqueue.metadata.outcomes import own_copy
from hqueue.metadata.own_keys import OwnKeys
from hqueue.metadata.ports import Group, MetadataStore, Obstacle, SessionState
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock, Deadline
from hqueue.runtime.foreign import call_foreign
from hqueue.runtime.held import Held, NotHeldError
from hqueue.runtime.seldom import FaultLog
from hqueue.runtime.threads import start
from hqueue.runtime.waiting import Condition

__all__ = ["Registration"]

logger = logging.getLogger(__name__)

PAUSE_MS = 50
"""Less than the members of a group wait before they plan without one that is gone: so a successor
that waits for the session of its predecessor to end is there in time."""


class Registration:
    """Something that is present, and is made again when it is gone, until closed: after its
    session was lost, and after somebody else removed it.

    Where a group of it is there already, by another session:

    - if `is_own` says so of its last value, its session is that of a process that can't be alive,
      and it is replaced;
    - otherwise it may be dead: it is waited for until its session must be over.

    When the session was lost, a thread makes the groups again, likewise. What another session has
    put in their place while this one lived is never replaced: that one came later, and is alive, or
    its session ends. If the groups can't be made again, `on_failure` is called, and that was it.
    While the store merely can't be reached it goes on trying.

    Args:
        store: the session.
        groups: what is registered.
        is_own: whether this last value can only be that of an earlier one of ours.
        on_obstacle: the error for what stays in the way.
        on_failure: called if the groups can't be made again.
        parents: whether what is missing above the groups is created.
        clock: measures how long another is waited for.

    Raises:
        HQueueError: that of `on_obstacle`, or the store's. Nothing is left of the groups.
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
    ) -> None:
        self.failure: HQueueError | None = None
        """Why it could not be made again: it is gone for good. None while all is well."""
        self._store = store
        self._groups = list(groups)
        self._is_own = is_own
        self._on_obstacle = on_obstacle
        self._on_failure = on_failure
        self._parents = parents
        self._clock = clock
        self._made_by: int | None = None
        self._due = True
        self._closed = False
        self._settled = False
        """Whether nothing is to be removed any more."""
        self._own: OwnKeys | None = None
        self._faults = FaultLog(logger, clock)
        self._making = threading.Lock()
        self._lock = threading.RLock()
        self._work = Condition(self._lock)
        try:
            self._make()
            self._own = OwnKeys(store, self._look, self._end_with_session)
            self._make_again()
            start(self._run, name="hqueue-registration")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Remove what this registration made, and only that. Never raises: what can't be removed
        now disappears with the session.
        """
        if self._settled:
            return
        self._stop()
        with contextlib.suppress(NotHeldError), self._not_making():
            self._remove()
        self._settled = True

    def leave_behind(self, values: Mapping[str, bytes]) -> None:
        """Give some keys of it other values, and see to it no more: it stays until the session
        ends, or until a successor replaces it. Never raises: what can't be changed now stays as it
        is.
        """
        if self._settled:
            return
        self._stop()
        connected = self._store.state is SessionState.CONNECTED
        if self.failure is not None or not connected:
            self._settled = True
            return
        try:
            with self._not_making():
                self._store.ephemerals.put(self._groups_with(values), is_own=_nobody)
        except NotHeldError:
            pass
        except HQueueError as exc:
            logger.warning("a registration stays as it is until its session ends: %s", exc)
        self._settled = True

    def _not_making(self) -> Held:
        return Held(self._making, self._store.session_timeout_ms / 1e3)

    def replace(self, values: Mapping[str, bytes]) -> None:
        """Give some keys of it other values, now and when they are made again.

        Raises:
            HQueueError: its `failure`, if it is gone for good; or as the constructor.
        """
        with self._making:
            if self.failure is not None:
                raise own_copy(self.failure)
            self._groups = self._groups_with(values)
            self._make()

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
        with self._lock:
            self._closed = True
            self._work.notify_all()

    def _look(self) -> None:
        """Something of it may be gone."""
        with self._lock:
            self._due = True
            self._work.notify_all()

    def _run(self) -> None:
        while True:
            with self._lock:
                self._work.wait_for(lambda: self._due or self._closed)
                if self._closed:
                    return
                self._due = False
            try:
                with self._making:
                    self._make_again()
            except StoreUnavailableError as exc:
                text = "a registration could not be made again yet: %s"
                self._faults.met("registration", text, exc)
                with self._lock:
                    self._due = True
                    self._work.wait_for(lambda: self._closed, PAUSE_MS / 1e3)
            except ClosedError:
                return
            except HQueueError as exc:
                logger.error("a registration could not be made again: %s", exc)
                self._fail(exc)
                return
            except BaseException as exc:  # Else it would be gone, and nobody the wiser.
                logger.exception("a registration could not be made again")
                self._fail(HQueueError("the registration failed", reason=repr(exc)))
                return
            else:
                self._faults.over("registration", "a registration was made again")

    def _fail(self, error: HQueueError) -> None:
        self.failure = error
        call_foreign("a listener of a registration's failure", self._on_failure, error)

    def _make_again(self) -> None:
        """Make what isn't there any more, and hear of it when that goes, too."""
        assert self._own is not None
        while not self._closed:
            gone = self._own.missing({key: v for group in self._groups for key, v in group.items()})
            if not gone:
                return
            if self._store.session_id == self._made_by:
                logger.warning(
                    "a registration was removed by another hand, and is made again: %s", min(gone)
                )
            self._make()

    def _make(self) -> None:
        """Make what isn't there by this session."""
        patience = Deadline(self._clock, 1.5 * self._store.session_timeout_ms + 1_000)
        while not self._closed:
            made_before = self._made_by is not None and self._store.session_id == self._made_by
            session_id, obstacle = self._store.ephemerals.put(
                self._groups,
                is_own=_nobody if made_before else self._is_own,
                parents=self._parents,
            )
            if obstacle is None:
                if session_id is not None and self._store.session_id == session_id:
                    self._made_by = session_id
                    return
            elif obstacle.value is None or patience.expired:
                raise self._on_obstacle(obstacle)
            self._clock.sleep_ms(PAUSE_MS)

    def _remove(self) -> None:
        """Release what is this session's. What is looked at first goes first."""
        if self._store.state is not SessionState.CONNECTED:
            return
        keys = [key for group in self._groups for key in group]
        try:
            self._store.ephemerals.release(reversed(keys), wait=False)
        except HQueueError as exc:
            logger.warning("a registration stays until its session ends: %s", exc)


def _nobody(value: bytes) -> bool:
    """What was put in the place of a registration while its session lived is a living one's."""
    return False
