"""No order of faults within the stated bounds breaks a promise of the log.

``HQUEUE_MODEL_RUNS`` sets how many random deep runs there are of each deep scenario (300), and
``HQUEUE_MODEL_SEED`` where they begin (0); a run that fails names its seed and its number.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.pool import AsyncResult

import pytest

from .explorer import CounterexampleError, Explored, Explorer
from .mutants import MUTANTS, mutated
from .scenario import Scenario
from .scenarios import DEEP, SCENARIOS, scenario_named

RUNS = int(os.environ.get("HQUEUE_MODEL_RUNS", "300"))
SEED = int(os.environ.get("HQUEUE_MODEL_SEED", "0"))
EXPLORED_S_MAX = 300

Explorations = Mapping[str, "AsyncResult[Explored]"]


@pytest.fixture(scope="module")
def explorations(request: pytest.FixtureRequest) -> Iterator[Explorations]:
    """The scenarios that are asked for, each explored in full, by as many processes as cores."""
    chosen = [
        item.callspec.params["scenario"].name
        for item in request.session.items
        if isinstance(item, pytest.Function) and "explorations" in item.fixturenames
    ]
    # Forked, for the tests' modules have no names to import by. At the end all are terminated.
    with multiprocessing.get_context("fork").Pool() as processes:
        yield {name: processes.apply_async(_exhaust, (name,)) for name in chosen}


def _exhaust(scenario: str) -> Explored:
    return Explorer(scenario_named(scenario)).exhaust()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_every_run_keeps_the_promises(
    scenario: Scenario,
    explorations: Explorations,
    record_property: Callable[[str, object], None],
) -> None:
    explored = explorations[scenario.name].get(EXPLORED_S_MAX)
    record_property("runs", explored.runs)
    assert explored.finished > 10


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
