"""How a member takes partitions over, and hands them over, so that no two ever deal with messages
of the same one. Pure: its driver makes the requests, and says what became of them.

    claimed ──→ present ──→ withdrawing ──→ draining ──→ released
                            no presence     no call
                            any more        under way

A member is present in what it has claimed, and only there. Before it gives a partition up it
withdraws from it, so that workers stop calling it; then it waits until the last call has ended; and
only then it releases the claim, and another may begin.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable

__all__ = ["Handover"]


class _Phase(enum.Enum):
    """A member's state in a partition that it has claimed."""

    CLAIMED = enum.auto()
    """To become present in. A try may have gone through, at least in part."""
    PRESENT = enum.auto()
    WITHDRAWING = enum.auto()
    """To be present in no more."""
    DRAINING = enum.auto()
    """Not present; to be released when no call is under way."""


class Handover:
    """How far a member is with each partition that it has, or has had. Not thread-safe."""

    def __init__(self) -> None:
        self._phases: dict[int, _Phase] = {}
        self._stray: set[int] = set()
        """Lost with a session. A try to become present may have gone through by the next one."""

    @property
    def present(self) -> frozenset[int]:
        """Those that workers may call it for."""
        return self._at(_Phase.PRESENT)

    @property
    def draining(self) -> frozenset[int]:
        """Those that are given up when no call is under way."""
        return self._at(_Phase.DRAINING)

    @property
    def done(self) -> bool:
        """Whether there is nothing that it has, or still has to withdraw from."""
        return not self._phases and not self._stray

    def claimed(self, partitions: Iterable[int]) -> None:
        """Nobody else has these."""
        self._phases.update(dict.fromkeys(partitions, _Phase.CLAIMED))
        self._stray -= self._phases.keys()

    def revoked(self, partitions: Iterable[int]) -> None:
        """These, which it has, go to another."""
        self._phases.update(dict.fromkeys(partitions, _Phase.WITHDRAWING))

    def lost(self, partitions: Iterable[int]) -> None:
        """These are gone with the session."""
        for partition in partitions:
            self._phases.pop(partition, None)
            self._stray.add(partition)

    def vanished(self, partitions: Iterable[int]) -> None:
        """Another program removed its presence in these; it still has its claims."""
        for partition in partitions:
            if self._phases.get(partition) is _Phase.PRESENT:
                self._phases[partition] = _Phase.CLAIMED

    def to_withdraw(self) -> frozenset[int]:
        """Where it must be present no more. Then call `withdrawn`."""
        return self._at(_Phase.WITHDRAWING) | self._stray

    def withdrawn(self, partitions: Iterable[int]) -> None:
        """It is not present in these."""
        for partition in partitions:
            self._stray.discard(partition)
            if self._phases.get(partition) is _Phase.WITHDRAWING:
                self._phases[partition] = _Phase.DRAINING

    def to_release(self, busy: Collection[int]) -> frozenset[int]:
        """Whose claims must be released, while calls of the busy ones are under way. Then call
        `released`.
        """
        return self.draining.difference(busy)

    def released(self, partitions: Iterable[int]) -> None:
        """Another may have these."""
        for partition in partitions:
            del self._phases[partition]

    def to_appear(self) -> frozenset[int]:
        """Where it must become present. Then call `appeared`, if it did."""
        return self._at(_Phase.CLAIMED)

    def appeared(self, partitions: Iterable[int]) -> None:
        """It is present in these."""
        self._phases.update(dict.fromkeys(partitions, _Phase.PRESENT))

    def _at(self, phase: _Phase) -> frozenset[int]:
        return frozenset(each for each, at in self._phases.items() if at is phase)
