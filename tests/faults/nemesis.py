"""The nemesis: carries a schedule of faults out, and sees that each is mended."""

from __future__ import annotations

import collections
import dataclasses
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from hqueue import HQueueError

from .history import now_s
from .schedule import Planned, Track

__all__ = ["Event", "Harm", "Nemesis", "NotDoneError", "insist"]

_T = TypeVar("_T")

INSIST_S = 300.0
EXTRA_EACH_S = 90.0
"""After a run's time, for each time that a kind of a track must come: until it has."""


class NotDoneError(Exception):
    """A fault could not be brought about."""


@dataclasses.dataclass
class Harm:
    """A fault that was begun.

    Args:
        target: whom it harms.
        mend: ends it.
    """

    target: str
    mend: Callable[[], object] = lambda: None


@dataclasses.dataclass
class Event:
    """A fault of the schedule as it took place. Times as in histories."""

    fault: str
    began_s: float
    ended_s: float = 0.0
    target: str = ""
    problem: str = ""
    """Why it did not take place, or was not mended as it should be."""


class Nemesis:
    """Carries a schedule out, its tracks beside each other.

    Args:
        kinds: for each fault what brings it about.
        say: called with what happens.
    """

    def __init__(
        self, kinds: Mapping[str, Callable[[Planned], Harm]], say: Callable[[str], None]
    ) -> None:
        self._kinds = kinds
        self._say = say
        self._stopped = threading.Event()
        self.events: list[Event] = []

    def run(self, tracks: Collection[Track], duration_s: float, *, all_kinds: bool = True) -> None:
        """Carry out a schedule; what can be mended is when this returns.

        How far it gets depends on how fast the machine is. When the time is over, only those kinds
        of faults come that have not taken place as often as they must, for `EXTRA_EACH_S` each time
        at most.

        Args:
            tracks: the schedule.
            duration_s: the time.
            all_kinds: whether kinds come after the time that have not taken place.
        """
        ends_s = now_s() + duration_s
        with ThreadPoolExecutor(len(tracks), "nemesis") as pool:
            running = [pool.submit(self._run_track, track, ends_s, all_kinds) for track in tracks]
            try:
                for future in running:
                    future.result()
            finally:
                self._stopped.set()

    def stop(self) -> None:
        """Let no more faults begin, and mend those that are under way. Any thread may call this."""
        self._stopped.set()

    def _run_track(self, track: Track, ends_s: float, all_kinds: bool) -> None:
        must = {kind: track.times.get(kind, 1) for kind in track.faults}
        left = collections.Counter(must if all_kinds else {})
        extra_s = sum(must.values()) * EXTRA_EACH_S
        for item in track.planned:
            late_s = now_s() - ends_s
            if late_s > 0:
                if not +left or late_s > extra_s:
                    return
                if left[item.fault] <= 0:
                    continue
            self._stopped.wait(item.after_s)
            if self._stopped.is_set():
                return
            event = self._bring_about(item)
            if not event.problem:
                left[item.fault] -= 1

    def _bring_about(self, item: Planned) -> Event:
        event = Event(item.fault, now_s())
        self.events.append(event)
        try:
            harm = self._kinds[item.fault](item)
            event.target = harm.target
            self._say(f"{item.fault} {event.target} for {item.lasts_s:.1f} s")
            try:
                self._stopped.wait(item.lasts_s)
            finally:
                harm.mend()
        except (NotDoneError, HQueueError) as exc:
            event.problem = str(exc)
            self._say(f"{item.fault} {event.target}: {exc}")
        event.ended_s = now_s()
        return event


def insist(change: Callable[[], _T], say: Callable[[str], None]) -> _T:
    """Do it in spite of the faults before it, which the cluster may not be over yet.

    Raises:
        NotDoneError: it could not be done for minutes.
    """
    deadline = time.monotonic() + INSIST_S
    while True:
        try:
            return change()
        except HQueueError as exc:
            if time.monotonic() > deadline:
                raise NotDoneError(f"given up: {exc}") from exc
            say(f"again, for {exc}")
            time.sleep(0.5)
