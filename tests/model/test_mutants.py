"""Each rule of the protocol is needed: without it, the exploration finds a broken promise."""

from __future__ import annotations

import pytest

from .explorer import CounterexampleError, Explorer
from .mutants import MUTANTS, Mutant, OverwritingStore, mutated
from .scenarios import scenario_named

LATE = pytest.mark.thorough("found after many runs, 2 s")
FOUND_LATE = {
    "what a jump left out is counted",
    "a collector sees that the log began again",
}


@pytest.mark.thorough("that each rule is needed; `make check` shows that all of them suffice")
@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(each, id=each.rule, marks=[LATE] if each.rule in FOUND_LATE else [])
        for each in MUTANTS
    ],
)
def test_without_this_rule_a_promise_is_broken(mutant: Mutant) -> None:
    explorer = Explorer(scenario_named(mutant.scenario), *mutated(mutant))
    with pytest.raises(CounterexampleError):
        explorer.exhaust()


def test_without_the_condition_of_the_put_a_promise_is_broken() -> None:
    explorer = Explorer(scenario_named("three writers"), store=OverwritingStore)
    with pytest.raises(CounterexampleError, match="outside the chain"):
        explorer.exhaust()
