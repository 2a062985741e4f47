"""No order of faults within the stated bounds breaks a promise of the log.

``HQUEUE_MODEL_RUNS`` sets how many random deep runs there are of each deep scenario (300), and
``HQUEUE_MODEL_SEED`` where they begin (0); a run that fails names its seed and its number.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable

import pytest

from .explorer import CounterexampleError, Explorer
from .mutants import MUTANTS, mutated
from .scenario import Scenario
from .scenarios import DEEP, SCENARIOS, scenario_named

RUNS = int(os.environ.get("HQUEUE_MODEL_RUNS", "300"))
SEED = int(os.environ.get("HQUEUE_MODEL_SEED", "0"))

LONG = pytest.mark.thorough("so many orders that trying them all takes long")
EXPLORED_IN_TEST_ALL = {
    "two writers, a crash and a lost put",
    "two writers, two lost puts",
    "nonces put again by a successor",
    "nonces of one that stood still while its successor put them",
    "a nonce whose batch was collected",
    "nonces while what was seen of the log is collected",
    "a deposed server answers two writers, and one lost a put",
    "a deposed server answers one nonce, tried by two",
    "a follower whose requests fail",
    "bodies expire and headers are collected",
    "a put that is late among collections",
    "a put that is late when bodies have just expired",
    "a header is found long after it was written",
    "two collectors",
    "the queue is truncated under two writers",
    "the queue is truncated before an outcome is known",
    "the queue is truncated while a writer tries again",
    "the queue is truncated while the tail is read",
    "the queue is truncated under a reader",
    "the queue is truncated under a follower",
    "the queue is truncated under one nonce",
    "a deposed server answers two writers that are slow",
    "a writer stands still beyond every bound",
    "a collector that knew the log before it was truncated",
    "writers are paused",
}
"""What takes 2 to 32 s; the other explorations take less, and are the bounded share."""


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(each, id=each.name, marks=[LONG] if each.name in EXPLORED_IN_TEST_ALL else [])
        for each in SCENARIOS
    ],
)
def test_every_run_keeps_the_promises(
    scenario: Scenario, record_property: Callable[[str, object], None]
) -> None:
    explored = Explorer(scenario).exhaust()
    record_property("runs", explored.runs)
    assert explored.finished > 10


@pytest.mark.thorough("deep runs, 10 s each; all short ones are run by `make check`")
@pytest.mark.parametrize("scenario", DEEP, ids=lambda scenario: scenario.name)
def test_random_deep_runs_keep_the_promises(scenario: Scenario) -> None:
    explored = Explorer(scenario).walk(SEED, RUNS)
    assert explored.finished == RUNS


def test_a_run_that_broke_a_promise_can_be_played_again() -> None:
    mutant = MUTANTS[0]
    classes = mutated(mutant)
    scenario = scenario_named(mutant.scenario)
    with pytest.raises(CounterexampleError) as first:
        Explorer(scenario, *classes).exhaust()
    with pytest.raises(CounterexampleError) as again:
        Explorer(scenario, *classes).replay(first.value.trace)
    assert again.value.violation == first.value.violation
    assert again.value.trace == first.value.trace
    from_a_process = pickle.loads(pickle.dumps(first.value))
    assert str(from_a_process) == str(first.value)


def test_a_random_run_can_be_played_again() -> None:
    traces = []
    for _ in range(2):
        explorer = Explorer(DEEP[0])
        explorer.walk(SEED + 1, 3)
        traces.append(explorer.explored.steps)
    assert traces[0] == traces[1]
