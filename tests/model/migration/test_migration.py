"""A move keeps its promises, and needs every rule for that."""

from __future__ import annotations

import dataclasses

import pytest

from tests.model.groups.explorer import CounterexampleError, explore

from .world import Bounds, Rules, World

BOUNDS = {
    "a writer": Bounds(),
    "a session ends": Bounds(changes=1, ends=1),
    "a move dies": Bounds(changes=1, deaths=1),
    "a move is abandoned": Bounds(changes=1, abandons=1),
}
LARGER = {
    "there and back": Bounds(changes=1, moves=2),
    "two writers": Bounds(writers=("a", "b"), changes=1),
    "two writers, and a session ends": Bounds(writers=("a", "b"), changes=1, ends=1),
    "there and back, and a session ends": Bounds(changes=1, moves=2, ends=1),
    "there and back, a move dies, one is abandoned": Bounds(
        changes=1, moves=2, deaths=1, abandons=1
    ),
}
STATES_MAX = 1_000_000
SHOWN_BY = {
    "looks_again_after_a_change": "a session ends",
    "counts_its_session_only_while_it_is_certain": "a session ends",
    "copies_to_a_place_of_its_own": "there and back",
    "changes_only_the_state_that_it_read": "a move is abandoned",
    "versions_name_their_place": "two writers",
}
"""Which world needs a rule; "a writer" needs the others."""

RULES = {field.name: Rules(**{field.name: False}) for field in dataclasses.fields(Rules)}


@pytest.mark.parametrize("bounds", BOUNDS.values(), ids=BOUNDS)
def test_a_move_keeps_its_promises(bounds: Bounds) -> None:
    assert explore(World(bounds), states_max=STATES_MAX) > 50


@pytest.mark.larger
@pytest.mark.parametrize("bounds", LARGER.values(), ids=LARGER)
def test_a_move_keeps_its_promises_in_larger_worlds(bounds: Bounds) -> None:
    assert explore(World(bounds), states_max=STATES_MAX) > 50


@pytest.mark.thorough("that each rule is needed; `make check` shows that all of them suffice")
@pytest.mark.parametrize("name", RULES)
def test_every_rule_is_needed(name: str) -> None:
    bounds = (BOUNDS | LARGER)[SHOWN_BY.get(name, "a writer")]
    with pytest.raises(CounterexampleError):
        explore(World(bounds, RULES[name]), states_max=STATES_MAX)
