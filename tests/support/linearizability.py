"""Whether a history of operations on records could have come of one operation after the other.

The search is that of Wing and Gong with Lowe's memory of what was tried, a key at a time. An
operation takes effect at one moment between its call and its return. One whose outcome is unknown
takes effect at some moment after its call, or never.
"""

from __future__ import annotations

import bisect
import collections
import dataclasses
import math
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from hqueue.metadata.ports import ANY, NEW, Version

__all__ = ["History", "Operation", "State", "described", "violation"]

SOME = Version(-9)
"""The version that a write without an answer made: whichever."""


LATEST = 30


class State(NamedTuple):
    """A record. Each write writes another value."""

    value: str
    version: Version


@dataclasses.dataclass(frozen=True)
class Operation:
    """One operation and what came of it.

    Args:
        kind: "read", "write" or "delete".
        key: of which record.
        call: when it began.
        returned: when its answer was there; infinite if its outcome is unknown.
        version: the version that it compared.
        value: what it wrote.
        answer: what it read; of a change the version then, of a deletion `SOME`; None if it was
            refused.
        is_unknown: whether its outcome is unknown.
    """

    kind: str
    key: str
    call: float
    returned: float
    version: Version = ANY
    value: str = ""
    answer: State | Version | None = None
    is_unknown: bool = False


class History:
    """Operations as they are made. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._operations: list[Operation] = []

    def __iter__(self) -> Iterator[Operation]:
        return iter(self._operations)

    def __len__(self) -> int:
        return len(self._operations)

    def add(self, operation: Operation) -> None:
        with self._lock:
            self._operations.append(operation)

    @staticmethod
    def now() -> float:
        return time.monotonic_ns() / 1e9


def violation(history: Iterable[Operation]) -> Sequence[Operation] | None:
    """The operations of a key that no order explains, as far as to the first that none does, which
    is the last to return; None if there are none.
    """
    by_key: dict[str, list[Operation]] = collections.defaultdict(list)
    for operation in history:
        by_key[operation.key].append(operation)
    for operations in by_key.values():
        ordered = sorted(operations, key=lambda each: each.call)
        if not _is_linearizable(ordered):
            moments = sorted(each.returned for each in ordered if each.returned < math.inf)
            first = bisect.bisect_left(
                moments, True, key=lambda moment: not _is_linearizable(_until(ordered, moment))
            )
            return [each for each in ordered if each.call <= moments[first]]
    return None


def described(operations: Sequence[Operation]) -> str:
    """What may explain a violation: what is unknown, and the latest of the rest, a line each."""
    latest = sorted(each.returned for each in operations if each.returned < math.inf)[-LATEST:]
    return "\n".join(
        str(each) for each in operations if each.is_unknown or each.returned >= latest[0]
    )


def _until(operations: Sequence[Operation], moment: float) -> Sequence[Operation]:
    """What was known of operations at a moment."""
    return [
        each
        if each.returned <= moment
        else dataclasses.replace(each, returned=math.inf, is_unknown=True)
        for each in operations
        if each.call <= moment and (each.returned <= moment or each.kind != "read")
    ]


def _is_linearizable(operations: Sequence[Operation]) -> bool:
    needed = sum(1 << n for n, each in enumerate(operations) if not each.is_unknown)
    tried: set[tuple[int, State | None]] = set()
    stack: list[tuple[int, State | None]] = [(0, None)]
    while stack:
        done, state = stack.pop()
        if done & needed == needed:
            return True
        if (done, state) in tried:
            continue
        tried.add((done, state))
        for number in _next(operations, done):
            for after in _effects(operations[number], state):
                stack.append((done | 1 << number, after))
    return False


def _next(operations: Sequence[Operation], done: int) -> list[int]:
    """Those that may come next: none that was not done returned before their call."""
    found: list[int] = []
    first_return = math.inf
    for number, operation in enumerate(operations):
        if done >> number & 1:
            continue
        if operation.call > first_return:
            break
        found.append(number)
        first_return = min(first_return, operation.returned)
    return found[::-1]


def _effects(operation: Operation, state: State | None) -> list[State | None]:
    """What the record may be after an operation that had this answer; nothing if it can't have."""
    if operation.kind == "read":
        return _read(operation, state)
    matches = _matches(operation.version, state)
    if operation.is_unknown:
        # That it never took effect needs no step of its own.
        return [_changed(operation, SOME)] if matches is not False else []
    if operation.answer is None:
        return [state] if matches is not True else []
    assert isinstance(operation.answer, int)
    return [_changed(operation, Version(operation.answer))] if matches is not False else []


def _read(operation: Operation, state: State | None) -> list[State | None]:
    seen = operation.answer
    if state is None or seen is None:
        return [state] if state is seen else []
    assert isinstance(seen, State)
    if seen.value != state.value or state.version not in (SOME, seen.version):
        return []
    return [seen]


def _matches(version: Version, state: State | None) -> bool | None:
    """Whether a record is of a version; None if that isn't known."""
    if version == NEW:
        return state is None
    if state is None:
        return False
    if version == ANY:
        return True
    return None if state.version == SOME else state.version == version


def _changed(operation: Operation, version: Version) -> State | None:
    return None if operation.kind == "delete" else State(operation.value, version)
