"""Tries out everything that can happen, in every state that can be reached."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from .world import ViolationError

__all__ = ["CounterexampleError", "Explored", "explore"]

Action = tuple[Any, ...]


class Explored(Protocol):
    """What is explored, in one state."""

    def copied(self) -> Any:
        """The same in the same state."""

    def key(self) -> str:
        """Differs for different states."""

    def actions(self, *, faults: bool = True) -> Iterator[Any]:
        """What can happen next; without faults, what happens by itself."""

    def perform(self, action: Any) -> None:
        """Let it happen; a `ViolationError` if that breaks a promise."""

    def check_settled(self) -> None:
        """What must hold when nothing happens any more; else a `ViolationError`."""


SETTLING_STEPS_MAX = 400


class CounterexampleError(AssertionError):
    """A run that broke a promise, with everything that happened in it."""

    def __init__(self, violation: str, trace: list[Action]) -> None:
        super().__init__(violation, trace)
        self.violation, self.trace = violation, trace

    def __str__(self) -> str:
        return "\n".join([self.violation, *(f"  {action}" for action in self.trace)])


def explore(world: Explored, *, states_max: int) -> int:
    """Let everything happen, in every order; how many states there are.

    In each state it is also tried whether it can settle, when no more goes wrong: so no
    partition is left without an owner for good.

    Raises:
        CounterexampleError: a promise is broken; with a shortest run to it.
        AssertionError: there are more states than that.
    """
    seen = {world.key()}
    settling: set[str] = set()
    level: list[tuple[Explored, list[Action]]] = [(world, [])]
    while level:
        reached: list[tuple[Explored, list[Action]]] = []
        for state, trace in level:
            _settle(state, trace, settling)
            for action in state.actions():
                after = state.copied()
                try:
                    after.perform(action)
                except ViolationError as exc:
                    raise CounterexampleError(str(exc), [*trace, action]) from exc
                key = after.key()
                if key not in seen:
                    seen.add(key)
                    assert len(seen) <= states_max, "more states than were expected"
                    reached.append((after, [*trace, action]))
        level = reached
    return len(seen)


def _settle(state: Explored, trace: list[Action], settling: set[str]) -> None:
    """Let members do what they do by themselves, each in turn, until nothing is left to do.

    Args:
        settling: the states from which it is known to settle; those that this run went
            through are added.
    """
    state, trace = state.copied(), [*trace]
    went_through: set[str] = set()
    try:
        for number in range(SETTLING_STEPS_MAX):
            actions = list(state.actions(faults=False))
            if not actions:
                state.check_settled()
            key = state.key()
            if not actions or key in settling:
                settling |= went_through
                return
            went_through.add(key)
            action = actions[number % len(actions)]
            trace.append(action)
            state.perform(action)
    except ViolationError as exc:
        raise CounterexampleError(str(exc), trace) from exc
    raise CounterexampleError("it does not settle", trace)
