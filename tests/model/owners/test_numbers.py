"""What is numbered is stored once, and needs every rule for that."""

from __future__ import annotations

import dataclasses

import pytest

from tests.model.groups.explorer import CounterexampleError, explore

from .numbers import Bounds, NumbersRules, NumbersWorld

BOUNDS = {
    "two hubs": Bounds(),
    "answers get lost twice": Bounds(takeovers=1, lost=2, forgotten=0),
    "somebody copies": Bounds(given_up=0, lost=0, copies=1, forgotten=0),
    "callers are impatient": Bounds(takeovers=1, given_up=2, forgotten=0),
}
LARGER = {"everything": Bounds(given_up=2, lost=2)}
SHOWN_BY = {"learns_only_what_says_its_owner": "somebody copies"}
"""Which world needs a rule; "two hubs" needs the others."""
STATES_MAX = 1_000_000

RULES = {
    field.name: NumbersRules(**{field.name: False}) for field in dataclasses.fields(NumbersRules)
}


@pytest.mark.parametrize("bounds", BOUNDS.values(), ids=BOUNDS)
def test_each_number_is_stored_once_and_acknowledged_when_it_is(bounds: Bounds) -> None:
    assert explore(NumbersWorld(bounds), states_max=STATES_MAX) > 50


@pytest.mark.larger
@pytest.mark.parametrize("bounds", LARGER.values(), ids=LARGER)
def test_each_number_is_stored_once_in_larger_worlds(bounds: Bounds) -> None:
    assert explore(NumbersWorld(bounds), states_max=STATES_MAX) > 50


@pytest.mark.parametrize("name", RULES)
def test_every_rule_is_needed(name: str) -> None:
    bounds = BOUNDS[SHOWN_BY.get(name, "two hubs")]
    with pytest.raises(CounterexampleError):
        explore(NumbersWorld(bounds, RULES[name]), states_max=STATES_MAX)
