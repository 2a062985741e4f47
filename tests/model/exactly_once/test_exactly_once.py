"""Processors put each result once and in order, and need every rule for that."""

from __future__ import annotations

import dataclasses

import pytest

from tests.model.groups.explorer import CounterexampleError, explore

from .world import Bounds, Rules, World

RESULTS = {
    "one each": (1, 1, 1, 1),
    "none at first": (0, 0, 1, 1),
    "none, one or several": (0, 2, 0, 1),
    "several, and none at the end": (2, 1, 0, 0),
}
HAPPENS = {
    "one crashes": {"crashes": 1},
    "one stands still": {"take_overs": 1},
    "the group is reset": {"resets": 1},
}
MORE_HAPPENS = {
    "one crashes, and another one": {"crashes": 2},
    "both stand still in turn": {"take_overs": 2},
    "one stands still, and one crashes": {"take_overs": 1, "crashes": 1},
    "the group is reset, and one crashes": {"resets": 1, "crashes": 1},
    "the group is reset, and one stands still": {"resets": 1, "take_overs": 1},
}
STATES_MAX = 200_000


@pytest.mark.parametrize("happens", HAPPENS.values(), ids=HAPPENS)
@pytest.mark.parametrize("results", RESULTS.values(), ids=RESULTS)
def test_each_result_is_put_once_and_in_order_whatever_becomes_of_processors(
    results: tuple[int, ...], happens: dict[str, int]
) -> None:
    assert explore(World(Bounds(results, **happens)), states_max=STATES_MAX) > 100


@pytest.mark.larger
@pytest.mark.parametrize("happens", MORE_HAPPENS.values(), ids=MORE_HAPPENS)
@pytest.mark.parametrize("results", RESULTS.values(), ids=RESULTS)
def test_each_result_is_put_once_and_in_order_when_more_happens(
    results: tuple[int, ...], happens: dict[str, int]
) -> None:
    assert explore(World(Bounds(results, **happens)), states_max=STATES_MAX) > 100


CAUGHT_WHEN = {
    "names_a_batch_by_the_offset": ("one each", "one crashes"),
    "puts_before_it_commits": ("one each", "one crashes"),
    "takes_the_cut_that_was_put": ("one each", "one crashes"),
    "begins_again_where_the_group_is": ("none, one or several", "one stands still"),
    "holds_what_has_no_results": ("none at first", "one crashes"),
    "refuses_what_was_put_before_a_reset": ("one each", "the group is reset"),
}


@pytest.mark.parametrize("rule", [field.name for field in dataclasses.fields(Rules)])
def test_every_rule_is_needed(rule: str) -> None:
    results, happens = CAUGHT_WHEN[rule]
    world = World(Bounds(RESULTS[results], **HAPPENS[happens]), Rules(**{rule: False}))
    with pytest.raises(CounterexampleError):
        explore(world, states_max=STATES_MAX)
