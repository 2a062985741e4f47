"""Messages that end their subscriber's process, or make it hang, are found, and no others."""

from __future__ import annotations

import dataclasses

import pytest

from tests.model.groups.explorer import CounterexampleError, explore

from .world import Bounds, Rules, World

BOUNDS = {
    "one of four ends the process": Bounds((4,), frozenset({(0, 2)}), ends_max=5),
    "two of four end the process": Bounds((4,), frozenset({(0, 0), (0, 3)})),
    "one hangs": Bounds((3,), frozenset({(0, 1)}), hangs=True),
    "the worker restarts": Bounds((2,), restarts=3, ends_max=4),
    "the process ends for another reason": Bounds((2,), frozenset(), accidents=1),
    "it ends for another reason, too": Bounds((2,), frozenset({(0, 1)}), accidents=1),
    "it ends often for another reason": Bounds((3,), frozenset({(0, 2)}), calls_max=3, accidents=2),
    "another partition has the same worker": Bounds((1, 1), frozenset({(1, 0)}), (0, 0)),
    "another topic has the same hub": Bounds((1, 1), frozenset({(1, 0)}), (0, 0), asks=False),
    "another partition has another worker": Bounds((1, 1), frozenset({(1, 0)}), (0, 1)),
    "a lower one has another worker": Bounds((1, 1), frozenset({(0, 0)}), (0, 1)),
    "two partitions, and one hangs": Bounds((1, 1), frozenset({(1, 0)}), (0, 0), hangs=True),
    "two topics, and one hangs": Bounds(
        (1, 1), frozenset({(1, 0)}), (0, 0), hangs=True, asks=False
    ),
    "two workers, and one hangs": Bounds((1, 1), frozenset({(1, 0)}), (0, 1), hangs=True),
}
STATES_MAX = 200_000


@pytest.mark.parametrize("bounds", BOUNDS.values(), ids=BOUNDS)
def test_a_fatal_message_is_condemned_and_no_other(bounds: Bounds) -> None:
    assert explore(World(bounds), states_max=STATES_MAX) > 3


CAUGHT_WHEN = {
    "counts_only_what_the_process_got": "the process ends for another reason",
    "forgets_the_count_of_what_is_done": "it ends often for another reason",
    "halves_before_it_condemns": "one of four ends the process",
    "condemns_only_what_was_alone_as_often": "it ends for another reason, too",
    "keeps_the_count": "the worker restarts",
    "calls_what_is_suspected_alone": "another topic has the same hub",
    "asks_for_lower_partitions": "another partition has another worker",
    "counts_nothing_while_a_call_hangs": "one hangs",
}


@pytest.mark.parametrize("rule", [field.name for field in dataclasses.fields(Rules)])
def test_every_rule_is_needed(rule: str) -> None:
    world = World(BOUNDS[CAUGHT_WHEN[rule]], Rules(**{rule: False}))
    with pytest.raises(CounterexampleError):
        explore(world, states_max=STATES_MAX)
