"""Tries out every run of a scenario, or random ones; a run that broke a promise can be replayed.

The exhaustive search keeps no state of a run but its choices: each run starts from the beginning,
follows the choices of an earlier one, and leaves it at the last place where something else could
have happened. A state that was met before is not followed again: what comes next is decided by
the store, the time, the budgets and what each participant has been answered so far.
"""

from __future__ import annotations

import dataclasses
import functools
import random
from collections.abc import Callable

from .checker import ViolationError
from .participants import settle
from .scenario import Scenario
from .world import Action, World

__all__ = ["CounterexampleError", "Explored", "Explorer"]

ODDS = {"deliver": 10.0, "land": 3.0, "end": 2.0, "jump": 0.3, "crash": 0.3}


@dataclasses.dataclass
class Explored:
    """How much was tried out."""

    runs: int = 0
    finished: int = 0
    states: int = 0
    steps: int = 0


class CounterexampleError(AssertionError):
    """A run that broke a promise, with everything that happened in it."""

    def __init__(self, scenario: str, violation: str, trace: list[Action]) -> None:
        super().__init__(scenario, violation, trace)
        self.violation = violation
        self.trace = trace

    def __str__(self) -> str:
        scenario, violation, trace = self.args
        steps = "\n".join(f"  {kind} {what}" for kind, what in trace)
        return f"{scenario}: {violation}\n{steps}"


class Explorer:
    """Explores one scenario.

    Args:
        scenario: who takes part, and the bounds.
        classes: what is under test, as `World` takes it.
    """

    def __init__(self, scenario: Scenario, *classes: type, **more_classes: type) -> None:
        self._scenario = scenario
        self._world = functools.partial(World, scenario, *classes, **more_classes)
        self._seen: set[int] = set()
        self.explored = Explored()

    def exhaust(self) -> Explored:
        """Try out every run.

        Raises:
            CounterexampleError: one broke a promise.
        """
        choices: list[tuple[int, int]] = []
        while True:
            self._run(_Replay(choices, self._seen))
            self.explored.states = len(self._seen)
            while choices and choices[-1][0] + 1 == choices[-1][1]:
                choices.pop()
            if not choices:
                return self.explored
            choices[-1] = choices[-1][0] + 1, choices[-1][1]

    def walk(self, seed: int, runs: int) -> Explored:
        """Try out random runs; the seed of the one that broke a promise is in its error."""
        for number in range(runs):
            source = random.Random(f"{self._scenario.name}/{seed}/{number}")
            try:
                self._run(lambda world, actions: _weighted(source, actions))  # noqa: B023
            except CounterexampleError as exc:
                exc.add_note(f"seed {seed}, run {number}")
                raise
        return self.explored

    def replay(self, trace: list[Action]) -> None:
        """Let the same happen again."""
        left = iter(trace)
        self._run(lambda world, actions: actions.index(next(left)), forced=True)

    def _run(
        self, choose: Callable[[World, list[Action]], int | None], *, forced: bool = False
    ) -> None:
        world = self._world()
        self.explored.runs += 1
        try:
            while actions := world.actions():
                choice = 0 if len(actions) == 1 and not forced else choose(world, actions)
                if choice is None:
                    return
                world.perform(actions[choice])
            settle(world)
            self.explored.finished += 1
        except ViolationError as exc:
            raise CounterexampleError(self._scenario.name, str(exc), world.trace) from exc
        finally:
            self.explored.steps += len(world.trace)
            world.close()


class _Replay:
    """Follows the choices of an earlier run, and beyond them takes what comes first."""

    def __init__(self, choices: list[tuple[int, int]], seen: set[int]) -> None:
        self._choices = choices
        self._seen = seen
        self._depth = 0

    def __call__(self, world: World, actions: list[Action]) -> int | None:
        if self._depth == len(self._choices):
            key = world.key()
            if key in self._seen:
                return None
            self._seen.add(key)
            self._choices.append((0, len(actions)))
        choice, _ = self._choices[self._depth]
        self._depth += 1
        return choice


def _weighted(source: random.Random, actions: list[Action]) -> int:
    odds = [ODDS.get(kind, 0.7) for kind, _ in actions]
    return source.choices(range(len(actions)), odds)[0]
