"""Many records' work at once: what each asks of its row next goes in few requests with the others.

A record's work is a generator. It yields a step, gets what the store answers, and goes on; so what
is done with one record is written down as if it were alone, and a thousand need no thread.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from hqueue.errors import HQueueError, Outcome, StoreUnavailableError
from hqueue.hbase.record_cells import Cells
from hqueue.hbase.record_rows import RowPort, RowUpdate
from hqueue.metadata.outcomes import own_copy
from hqueue.runtime.clock import Clock, Deadline
from hqueue.runtime.steps import Pause
from hqueue.runtime.steps import Work as AnyWork

__all__ = [
    "TOGETHER_MAX",
    "Look",
    "PrepareRows",
    "ReadRows",
    "UpdateRows",
    "Work",
    "Worked",
    "work_together",
]

TOGETHER_MAX = 1_024
"""Records that are worked on at once; the others wait."""


class PrepareRows(NamedTuple):
    """`RowPort.prepare`."""

    def do(self, rows: RowPort) -> object:
        return rows.prepare()


class ReadRows(NamedTuple):
    """`RowPort.read`."""

    keys: Sequence[bytes]
    history: bool = False

    def do(self, rows: RowPort) -> object:
        return rows.read(self.keys, history=self.history)


class UpdateRows(NamedTuple):
    """`RowPort.update`."""

    updates: Sequence[RowUpdate]

    def do(self, rows: RowPort) -> object:
        return rows.update(self.updates)


class Look(NamedTuple):
    """Asks for a row's cells; the answer is a dictionary, empty if there is no row."""

    key: bytes
    history: bool = False


Step = Look | Pause | RowUpdate
Result = TypeVar("Result")
Work = Generator[Step, Any, Result]
"""Yields steps, and is sent what comes of them; what a request raised is raised in it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Worked(Generic[Result]):
    """What came of each record's work, by its key. Those that were not begun are not there."""

    done: dict[str, Result]
    failed: dict[str, StoreUnavailableError]
    refused: dict[str, HQueueError]
    """What no further try would do. After the first of these no further record was begun."""


class _Running(Generic[Result]):
    """A record's work under way."""

    def __init__(self, key: str, work: Work[Result]) -> None:
        self.key = key
        self.work = work
        self.step: Step = Pause(0.0)
        self.due_ms = 0.0
        self.ended = False


def work_together(
    clock: Clock, deadline: Deadline, works: Iterable[tuple[str, Work[Result]]]
) -> AnyWork[Any, Worked[Result]]:
    """Do each record's work: work that makes requests of a `RowPort`. One that fails stops no other
    before the deadline.

    Args:
        clock: measures pauses.
        deadline: when it is over, and one has failed, no further one is begun.
        works: each record's key and work; taken one by one when there is room for it.
    """
    together = _Together[Result](clock)
    worked = together.worked
    running: list[_Running[Result]] = []
    left = iter(works)
    while True:
        while len(running) < TOGETHER_MAX:
            if worked.refused or (worked.failed and deadline.expired):
                break
            item = next(left, None)
            if item is None:
                break
            begun = _Running(*item)
            together.go_on(begun, None)
            running += [] if begun.ended else [begun]
        if not running:
            return worked
        yield from together.step(running)
        running = [each for each in running if not each.ended]


class _Together(Generic[Result]):
    """Steps of many records' work."""

    def __init__(self, clock: Clock) -> None:
        self.worked: Worked[Result] = Worked({}, {}, {})
        self._clock = clock

    def step(self, running: Sequence[_Running[Result]]) -> AnyWork[Any, None]:
        """Let those that are not pausing have their answers; wait first if all are."""
        now_ms = self._clock.monotonic_ms()
        due = [each for each in running if each.due_ms <= now_ms]
        if not due:
            # A clock of tests may be through with a pause before its time is over.
            first_ms = min(each.due_ms for each in running)
            yield Pause(first_ms - now_ms)
            due = [each for each in running if each.due_ms <= first_ms]
        answers = yield from self._answers(due)
        for each, answer in answers:
            self.go_on(each, answer)

    def go_on(self, each: _Running[Result], answer: object) -> None:
        """Give work its answer, and learn what it asks for next."""
        each.ended = True
        try:
            if isinstance(answer, BaseException):
                each.step = each.work.throw(answer)
            else:
                each.step = each.work.send(answer)
        except StopIteration as end:
            self.worked.done[each.key] = end.value
        except StoreUnavailableError as exc:
            self.worked.failed[each.key] = exc
        except HQueueError as exc:
            self.worked.refused[each.key] = exc
        else:
            each.ended = False
            each.due_ms = 0.0
            if isinstance(each.step, Pause):
                each.due_ms = self._clock.monotonic_ms() + each.step.duration_ms

    def _answers(
        self, due: Sequence[_Running[Result]]
    ) -> AnyWork[Any, list[tuple[_Running[Result], object]]]:
        """What the store says to each."""
        asking: list[tuple[_Running[Result], Look | RowUpdate]] = []
        said: list[tuple[_Running[Result], object]] = []
        for each in due:
            if isinstance(each.step, Pause):
                said.append((each, None))
            else:
                asking.append((each, each.step))
        if not asking:
            return said
        try:
            yield PrepareRows()
        except HQueueError as exc:
            exc.outcome = Outcome.NOT_APPLIED  # Nothing of what they ask for was sent.
            return [*said, *((each, own_copy(exc)) for each, _ in asking)]
        updates = [(each, step) for each, step in asking if isinstance(step, RowUpdate)]
        if updates:
            answers = yield from _update([step for _, step in updates])
            said += zip((each for each, _ in updates), answers, strict=True)
        for history in (False, True):
            looks = [
                (each, step.key)
                for each, step in asking
                if isinstance(step, Look) and step.history is history
            ]
            if looks:
                found = yield from _look([key for _, key in looks], history=history)
                said += zip((each for each, _ in looks), found, strict=True)
        return said


def _update(updates: Sequence[RowUpdate]) -> AnyWork[Any, Sequence[object]]:
    try:
        answers: Sequence[object] = yield UpdateRows(updates)
    except HQueueError as exc:
        return [own_copy(exc) for _ in updates]
    return answers


def _look(keys: Sequence[bytes], *, history: bool) -> AnyWork[Any, Sequence[Cells | BaseException]]:
    try:
        found = dict((yield ReadRows(keys, history)))
    except HQueueError as exc:
        return [own_copy(exc) for _ in keys]
    return [found.get(key, {}) for key in keys]
