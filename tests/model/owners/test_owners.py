"""Take-overs of a topic keep its messages and their order, and need every rule for that."""

from __future__ import annotations

import dataclasses

import pytest

from tests.model.groups.explorer import CounterexampleError, explore

from .world import Bounds, Rules, World

BOUNDS = {
    "two hubs": Bounds(),
    "a hub dies": Bounds(takeovers=2, messages=2, crashes=1),
    "answers get lost": Bounds(takeovers=2, messages=2, lost=1),
    "somebody puts": Bounds(takeovers=2, messages=2, strangers=1),
    "headers are collected": Bounds(takeovers=2, messages=2, collections=1, others=1),
}
LARGER = {
    "three hubs": Bounds(hubs=("a", "b", "c"), takeovers=3, messages=1),
    "everything": Bounds(takeovers=2, messages=2, crashes=1, lost=1, collections=1, others=1),
}
STATES_MAX = 1_000_000
SHOWN_BY = {
    "owns_nothing_where_it_cannot_walk_on": "headers are collected",
    "reads_only_what_says_its_owner": "somebody puts",
}
"""Which world needs a rule; "two hubs" needs the others."""

RULES = {field.name: Rules(**{field.name: False}) for field in dataclasses.fields(Rules)}


@pytest.mark.parametrize("bounds", BOUNDS.values(), ids=BOUNDS)
def test_take_overs_keep_every_message_and_their_order(bounds: Bounds) -> None:
    assert explore(World(bounds), states_max=STATES_MAX) > 50


@pytest.mark.larger
@pytest.mark.parametrize("bounds", LARGER.values(), ids=LARGER)
def test_take_overs_keep_every_message_in_larger_worlds(bounds: Bounds) -> None:
    assert explore(World(bounds), states_max=STATES_MAX) > 50


@pytest.mark.parametrize("name", RULES)
def test_every_rule_is_needed(name: str) -> None:
    bounds = BOUNDS[SHOWN_BY.get(name, "two hubs")]
    with pytest.raises(CounterexampleError):
        explore(World(bounds, RULES[name]), states_max=STATES_MAX)
