"""Whether processes worked after they were switched between versions (docs/upgrading.md)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from .checker import Violation

__all__ = ["UPGRADE_KINDS", "Switch", "check_switches"]

UPGRADE_KINDS = {
    "incompatible": "a process that put, got or served no message within four minutes after it was "
    "started with another version of the code, or that ended",
}
"""What is looked for."""


@dataclasses.dataclass(frozen=True)
class Switch:
    """A process that was stopped, and started with the other version of the code.

    Args:
        kind: of the process.
        name: of the process that was started.
        version: which code it runs: ``older`` or ``present``.
        worked: whether it put, got or served a message.
        took_s: how long after its start that was; if it did not work, how long it had.
        words: the last words in its log, if it did not work.
    """

    kind: str
    name: str
    version: str
    worked: bool
    took_s: float
    words: str = ""


def check_switches(switches: Iterable[Switch]) -> list[Violation]:
    """Each process that did not work."""
    return [
        Violation(
            "incompatible",
            f"{each.kind} {each.name} did nothing with the {each.version} code in "
            f"{each.took_s:.0f} s: {each.words}",
        )
        for each in switches
        if not each.worked
    ]
