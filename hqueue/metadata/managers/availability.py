"""Whether hubs are available, asked once for all that ask at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

from hqueue.metadata.managers.infos import HubInfo
from hqueue.metadata.outcomes import own_copy
from hqueue.runtime.fork import register
from hqueue.runtime.waiting import InterruptibleFuture

__all__ = ["Availability"]


class _Hubs(Protocol):
    def is_available(self, hub: HubInfo) -> bool: ...


class Availability:
    """Asks whether hubs are available. Thread-safe.

    Each answer is as it was at a moment after the question. Who asks while a hub is asked about
    gets the next answer, which one request brings to all that wait for it: so a hub that acquires
    many topics asks about itself as often as answers come, and not once for each.

    Args:
        hubs: know it.
        run: does something in a thread.
    """

    def __init__(self, hubs: _Hubs, run: Callable[[Callable[[], None]], object]) -> None:
        self._hubs = hubs
        self._run = run
        self.after_fork_in_child()
        register(self)

    def after_fork_in_child(self) -> None:
        self._lock = threading.RLock()
        self._waiting: dict[HubInfo, list[Future[bool]]] = {}
        """Those that wait for the next question about a hub; there is a key while it is asked
        about."""

    def ask(self, hub: HubInfo) -> Future[bool]:
        """Whether this incarnation of a hub is available. It can't be cancelled.

        The future's errors are the store's, and those of `run`.
        """
        answer: Future[bool] = InterruptibleFuture()
        answer.set_running_or_notify_cancel()
        with self._lock:
            is_first = hub not in self._waiting
            self._waiting.setdefault(hub, []).append(answer)
        if is_first:
            self._begin(hub)
        return answer

    def _begin(self, hub: HubInfo) -> None:
        try:
            self._run(lambda: self._answer(hub))
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
            each.set_result(found)


def _fail(waiting: list[Future[bool]], error: BaseException) -> None:
    for each in waiting:
        each.set_exception(own_copy(error))
