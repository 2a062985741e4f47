"""Whether hubs are available, asked once for all that ask at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from hqueue.metadata.managers.following import Asked, Following, following
from hqueue.metadata.managers.hubs import Hubs
from hqueue.metadata.managers.infos import HubInfo
from hqueue.metadata.outcomes import own_copy
from hqueue.runtime.fork import register
from hqueue.runtime.steps import Work
from hqueue.runtime.stepwise import Stepwise, asked

__all__ = ["Availability"]


class Availability(Stepwise):
    """Asks whether hubs are available. Thread-safe.

    Each answer is as it was at a moment after the question. Who asks while a hub is asked about
    gets the next answer, which one request brings to all that wait for it: so a hub that acquires
    many topics asks about itself as often as answers come, and not once for each. In an event loop
    each asks for itself.

    Args:
        hubs: know it.
        run: does something in a thread.
    """

    def __init__(self, hubs: Hubs, run: Callable[[Callable[[], None]], Future[None]]) -> None:
        self._hubs = hubs
        self._run = run
        self.after_fork_in_child()
        register(self)

    def after_fork_in_child(self) -> None:
        self._lock = threading.RLock()
        self._waiting: dict[HubInfo, list[Following[Any]]] = {}
        """Those that wait for the next question about a hub; there is a key while it is asked
        about."""

    @following
    def ask(self, hub: HubInfo) -> Work[Any, bool]:
        """Whether this incarnation of a hub is available. It can't be cancelled. Errors are the
        store's, and those of `run`.
        """
        wait = asked(self._hubs.is_available, hub)
        return bool((yield Asked(partial(self._add, hub), wait.in_loop)))

    def _add(self, hub: HubInfo, work: Following[Any]) -> None:
        work.begins()  # From here on it can't be cancelled.
        with self._lock:
            is_first = hub not in self._waiting
            self._waiting.setdefault(hub, []).append(work)
        if is_first:
            self._begin(hub)

    def _begin(self, hub: HubInfo) -> None:
        try:
            self._run(partial(self._answer, hub))
        except BaseException as exc:
            with self._lock:
                waiting = self._waiting.pop(hub)
            _fail(waiting, exc)

    def _answer(self, hub: HubInfo) -> None:
        with self._lock:
            waiting, self._waiting[hub] = self._waiting[hub], []
        found, error = False, None
        try:
            found = self._hubs.is_available(hub)
        except BaseException as exc:  # Whatever it is, those that wait must learn it.
            error = exc
        with self._lock:
            goes_on = bool(self._waiting[hub])
            if not goes_on:
                del self._waiting[hub]
        if goes_on:
            self._begin(hub)
        if error is not None:
            _fail(waiting, error)
            return
        for each in waiting:
            each.go_on(found)


def _fail(waiting: list[Following[Any]], error: BaseException) -> None:
    for each in waiting:
        each.go_on(error=own_copy(error))
