"""Which tests judge a fault: those that reach its place, likely and short ones first."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import PurePosixPath

__all__ = ["Survey"]

CHOSEN_SHARE_MAX = 0.2
"""How long the tests of one fault took together, of what all tests took."""


@dataclass
class Survey:
    """What the tests did over the tree without a fault."""

    took_s: Mapping[str, float]
    """How long each test took, of those that passed."""

    reaching: Mapping[int, Set[str]]
    """The tests that reach each place."""

    def chosen(self, number: int, path: str, share_max: float = CHOSEN_SHARE_MAX) -> list[str]:
        """The tests that can catch a fault at this place, and take no more than this share of the
        time of all tests. One is chosen even if it takes longer.
        """
        able = self.reaching.get(number, frozenset()) & self.took_s.keys()
        chosen: list[str] = []
        left_s = share_max * sum(self.took_s.values())
        for test in sorted(able, key=lambda test: (not _is_about(test, path), self.took_s[test])):
            left_s -= self.took_s[test]
            if left_s < 0 and chosen:
                break
            chosen.append(test)
        return chosen

    def seconds(self, tests: list[str]) -> float:
        """How long these took, one after the other."""
        return sum(self.took_s[test] for test in tests)


def _is_about(test: str, path: str) -> bool:
    """Whether a test's file or folder is named as the module, or as the folder that it lies in."""
    module = PurePosixPath(path).with_suffix("")
    file = PurePosixPath(test.partition("::")[0]).with_suffix("")
    names = {file.name.removeprefix("test_"), file.parent.name}
    return not names.isdisjoint({module.name, module.parent.name})
