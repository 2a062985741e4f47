"""Members of a subscriber keep their promises, and need every rule for that."""

from __future__ import annotations

import dataclasses

import pytest

from tests.model.groups.explorer import CounterexampleError, explore

from .world import Bounds, Rules, World

BOUNDS = {
    "it is handed over": Bounds(moves=1),
    "it is handed over and back": Bounds(moves=2, sends=1),
    "a member crashes": Bounds(crashes=1),
    "a session ends": Bounds(ends=1),
}
LARGE = {
    "a session ends in a hand-over": Bounds(moves=1, ends=1, sends=1),
    "a member crashes in a hand-over": Bounds(moves=1, crashes=1),
}
STATES_MAX = 1_000_000


@pytest.mark.parametrize("bounds", BOUNDS.values(), ids=BOUNDS)
def test_no_two_calls_are_handled_at_the_same_time_over_members(bounds: Bounds) -> None:
    assert explore(World(bounds), states_max=STATES_MAX) > 100


@pytest.mark.larger
@pytest.mark.parametrize("bounds", LARGE.values(), ids=LARGE)
def test_no_two_calls_are_handled_at_the_same_time_when_more_happens(bounds: Bounds) -> None:
    assert explore(World(bounds), states_max=STATES_MAX) > 100


HEAVY = pytest.mark.thorough("explores for 4 s")
CAUGHT_WHEN = {
    "withdraws_before_it_releases": "it is handed over",
    "awaits_calls_before_it_releases": "it is handed over",
    "refuses_what_is_not_its_own": "it is handed over",
    "is_certain_before_it_handles": "a session ends",
    "is_certain_for_as_long_as_a_call_takes": "a session ends",
    "counts_a_call_before_it_looks": "it is handed over",
    "forgets_with_its_session": "a session ends",
    "claims_before_it_appears": "it is handed over",
    "withdraws_from_what_it_lost": "a session ends",
}


@pytest.mark.thorough("that each rule is needed; `make check` shows that all of them suffice")
@pytest.mark.parametrize(
    "rule",
    [
        pytest.param(field.name, marks=HEAVY if field.name.startswith("is_certain") else ())
        for field in dataclasses.fields(Rules)
    ],
)
def test_every_rule_is_needed(rule: str) -> None:
    world = World(BOUNDS[CAUGHT_WHEN[rule]], Rules(**{rule: False}))
    with pytest.raises(CounterexampleError):
        explore(world, states_max=STATES_MAX)
