"""The election keeps its promises, and needs every rule for that."""

from __future__ import annotations

import dataclasses

import pytest

from tests.model.groups.explorer import CounterexampleError, explore

from .world import Bounds, Rules, World

BOUNDS = {
    "a session ends": Bounds(),
    "a hub starts again": Bounds(ends=0, restarts=1),
    "a hub starts again, and a session ends": Bounds(restarts=1),
    "a topic is released twice": Bounds(ends=0, releases=2),
    "a topic is released, and a session ends": Bounds(releases=1),
    "an answer gets lost, and a session ends": Bounds(lost_answers=1),
    "three hubs, and a session ends": Bounds(hubs=("a", "b", "c")),
    "two sessions end, and a hub starts again": Bounds(ends=2, restarts=1),
    "all of it": Bounds(restarts=1, releases=1, lost_answers=1),
}
STATES_MAX = 200_000
LARGE = pytest.mark.thorough("its parts are in `make check`; 3 s")
RULES = {field.name: Rules(**{field.name: False}) for field in dataclasses.fields(Rules)}


@pytest.mark.parametrize(
    "bounds",
    [
        pytest.param(bounds, id=name, marks=[LARGE] if name == "all of it" else [])
        for name, bounds in BOUNDS.items()
    ],
)
def test_the_election_keeps_its_promises(bounds: Bounds) -> None:
    assert explore(World(bounds), states_max=STATES_MAX) > 50


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_every_rule_is_needed(rules: Rules) -> None:
    def explore_all() -> None:
        for bounds in BOUNDS.values():
            explore(World(bounds, rules), states_max=STATES_MAX)

    with pytest.raises(CounterexampleError):
        explore_all()
