"""The checker of histories of records: it accepts what one after the other made, and finds what
could not be.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hqueue.metadata.ports import ANY, NEW, Version
from tests.support.linearizability import SOME, Operation, State, described, violation


def at(kind: str, call: float, returned: float, **more: object) -> Operation:
    return Operation(kind, "k", call, returned, **more)  # type: ignore[arg-type]


def write(call: float, value: str, answer: int | None, version: Version = NEW) -> Operation:
    return at("write", call, call + 1, value=value, answer=answer, version=version)


def read(call: float, answer: State | None) -> Operation:
    return at("read", call, call + 1, answer=answer)


def delete(call: float, answer: Version | None, version: Version = ANY) -> Operation:
    return at("delete", call, call + 1, answer=answer, version=version)


V0, V1 = Version(0), Version(1)
A, B = State("a", V0), State("b", V1)
CREATED = write(0, "a", 0)
UNKNOWN = at("write", 2, math.inf, value="b", version=V0, is_unknown=True)

VIOLATIONS = {
    "a stale read": [CREATED, write(2, "b", 1, V0), read(4, A)],
    "a lost write": [CREATED, read(2, None)],
    "a write that nobody made": [CREATED, read(2, B)],
    "another version than was answered": [CREATED, read(2, State("a", V1))],
    "a version that two won": [CREATED, at("write", 2, 9, value="b", answer=1, version=V0),
                               at("write", 3, 9, value="c", answer=1, version=V0)],
    "two that created": [at("write", 0, 9, value="a", answer=0, version=NEW),
                         at("write", 1, 9, value="b", answer=0, version=NEW)],
    "a deletion that two did": [CREATED, at("delete", 2, 9, answer=SOME, version=V0),
                                at("delete", 3, 9, answer=SOME, version=V0)],
    "a deletion of what was not there": [delete(0, SOME)],
    "what was deleted is there again": [CREATED, delete(2, SOME), read(4, A)],
    "refused, and done": [CREATED, write(2, "b", None, V0), read(4, B)],
    "refused without a reason": [CREATED, write(2, "b", None, V0), read(4, A)],
    "created refused where nothing was": [write(0, "a", None)],
    "any refused where something was": [CREATED, write(2, "b", None, ANY)],
    "a deletion refused without a reason": [CREATED, delete(2, None, V0)],
    "a change of what was not there": [write(0, "a", 0, ANY)],
    "of an older version": [CREATED, write(2, "b", 1, V0), write(4, "c", 2, V0)],
    "unknown, and done twice": [CREATED, UNKNOWN, read(3, B), write(5, "c", 2, V1),
                                read(7, State("c", Version(2))), read(9, B)],
    "unknown, and done before it began": [CREATED, read(1.5, B),
                                          dataclasses.replace(UNKNOWN, call=5)],
    "back and forth": [CREATED, UNKNOWN, read(3, B), read(5, A)],
}  # fmt: skip

RIGHT = {
    "nothing": [],
    "one after the other": [CREATED, write(2, "b", 1, V0), read(4, B), delete(6, SOME, V1),
                            read(8, None), write(10, "a", 0), read(12, A)],
    "unknown, and done": [CREATED, UNKNOWN, read(3, B)],
    "unknown, and done late": [CREATED, UNKNOWN, read(3, A), read(5, A), read(7, B)],
    "unknown, and never done": [CREATED, UNKNOWN, read(3, A), write(5, "c", 1, V0)],
    "at once": [at("write", 0, 9, value="a", answer=0, version=NEW),
                at("read", 1, 9, answer=None), at("read", 1, 9, answer=A)],
    "refused, as it was not there yet": [at("write", 0, 9, value="b", answer=None, version=ANY),
                                         at("write", 1, 9, value="a", answer=0, version=NEW)],
}  # fmt: skip


@pytest.mark.parametrize("name", VIOLATIONS)
def test_what_could_not_be_is_found(name: str) -> None:
    assert violation(VIOLATIONS[name])


def test_a_violation_ends_with_what_nothing_explains() -> None:
    history = [CREATED, UNKNOWN, read(3, B), read(5, A), read(7, B), read(9, A)]
    found = violation(history)
    assert found == history[:4]
    assert str(read(5, A)) in described(found)


@pytest.mark.parametrize("name", RIGHT)
def test_what_could_be_is_accepted(name: str) -> None:
    assert violation(RIGHT[name]) is None


@given(st.integers(0, 2**32), st.integers(1, 6), st.booleans())
def test_histories_of_a_real_record_are_accepted(seed: int, threads: int, doubtful: bool) -> None:
    history = record(random.Random(seed), threads, doubtful)
    assert violation(history) is None


def record(chance: random.Random, threads: int, doubtful: bool) -> list[Operation]:
    """What threads did to one record: each operation takes effect at a moment between its ends."""
    free = [0.0] * threads
    moments = itertools.count(1)
    versions = itertools.count()
    state: State | None = None
    history = []
    for _ in range(60):
        moment = next(moments) * 1.0
        thread = chance.randrange(threads)
        call = max(free[thread], moment - chance.random() * 5)
        if call > moment:
            continue
        returned = moment + chance.random() * 5
        free[thread] = returned
        version = chance.choice([NEW, ANY, *([state.version] * 2 if state else [Version(99)])])
        kind = chance.choice(["read", "write", "delete"])
        value = str(moment)
        if kind == "read":
            history.append(at("read", call, returned, answer=state))
            continue
        if kind == "delete" and version == NEW:
            version = ANY
        matches = (state is None) if version == NEW else (
            state is not None and version in (ANY, state.version)
        )  # fmt: skip
        answer: Version | None = None
        unknown = doubtful and chance.random() < 0.1
        if matches and not (unknown and chance.random() < 0.5):
            answer = SOME if kind == "delete" else Version(next(versions))
            state = None if kind == "delete" else State(value, answer)
        history.append(
            at(kind, call, math.inf if unknown else returned, version=version, value=value,
               answer=None if unknown else answer, is_unknown=unknown)
        )  # fmt: skip
    return history
