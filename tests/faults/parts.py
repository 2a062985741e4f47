"""Parts of a long run: each on a fresh cluster, with the schedule going on where the one before it
ended.
"""

from __future__ import annotations

import collections
import dataclasses
import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from .schedule import FAULTS

__all__ = ["Part", "PartsError", "add_up", "folder_of", "part_after", "whole_runs"]

Figures = dict[str, Any]

_COUNTS = (
    "duration_s",
    "messages",
    "with_key_or_headers",
    "reads",
    "scans",
    "deliveries",
    "consumed",
    "published",
    "listened",
    "shared",
    "failures",
)
_BY_NAME = ("puts", "faults", "violations")


class PartsError(Exception):
    """A part that was asked for can't go on, or parts don't make a run."""


def folder_of(seed: int, part: int | None) -> str:
    """The name of the folder of a run's report, or of a part's."""
    return f"faults-{seed}" if part is None else f"faults-{seed}-part-{part}"


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of a long run.

    Args:
        number: from 1 on.
        planned: how many faults of each track the parts before it had of the schedule.
        came: the kinds of faults that took place in them.
    """

    number: int
    planned: Mapping[str, int] = dataclasses.field(default_factory=dict)
    came: frozenset[str] = frozenset()

    def figures(self, kinds: Collection[str], took_place: Collection[str]) -> Figures:
        """What the part after this one needs to know.

        Args:
            kinds: of all faults of this part, also of those that could not be brought about.
            took_place: the kinds of those that took place.
        """
        planned = collections.Counter(self.planned)
        planned.update(FAULTS[kind].track for kind in kinds)
        came = sorted(self.came.union(took_place))
        return {"part": self.number, "planned": dict(planned), "came": came}


def part_after(reports: Path, seed: int, number: int, kinds: Collection[str]) -> Part:
    """The part of this number; it goes on where the one before it ended.

    Raises:
        PartsError: that one is missing, proves nothing, or had other kinds of faults.
    """
    if number < 1:
        raise PartsError(f"parts are numbered from 1 on; {number} is none of them")
    if number == 1:
        return Part(1)
    path = reports / folder_of(seed, number - 1) / "figures.json"
    if not path.exists():
        raise PartsError(f"run part {number - 1} before part {number}: there is no {path}")
    earlier: Figures = json.loads(path.read_text())
    if earlier["failures"]:
        raise PartsError(f"part {number - 1} failed and proves nothing: run it again")
    if set(earlier["faults"]) != set(kinds):
        other = ", ".join(sorted(set(earlier["faults"]).symmetric_difference(kinds)))
        raise PartsError(
            f"all parts of a run have the same kinds: part {number - 1} differs in {other}"
        )
    return Part(number, earlier["planned"], frozenset(earlier["came"]))


def add_up(parts: Collection[Figures]) -> Figures:
    """The figures of a run of these parts.

    Raises:
        PartsError: they are of several seeds, or one is missing, there twice, or proves nothing.
    """
    found = sorted(parts, key=lambda each: int(each["part"]))
    seed = found[0]["seed"]
    numbers = [each["part"] for each in found]
    if any(each["seed"] != seed for each in found):
        raise PartsError("these are parts of several seeds")
    if numbers != list(range(1, len(found) + 1)):
        raise PartsError(f"seed {seed}: give each part once, from 1 on; these are {numbers}")
    if failed := [str(each["part"]) for each in found if each["failures"]]:
        raise PartsError(f"seed {seed}: parts failed, and prove nothing: {', '.join(failed)}")
    whole: Figures = {"seed": seed, "parts": len(found)}
    for key in _COUNTS:
        whole[key] = sum(each[key] for each in found)
    for key in _BY_NAME:
        whole[key] = {name: sum(each[key][name] for each in found) for name in found[0][key]}
    stalls: collections.defaultdict[str, float] = collections.defaultdict(float)
    for each in found:
        for kind, stall_s in each["longest_stall_s"].items():
            stalls[kind] = max(stalls[kind], stall_s)
    whole["longest_stall_s"] = dict(stalls)
    whole["takeovers_s"] = sorted((s for each in found for s in each["takeovers_s"]), reverse=True)
    return whole


def whole_runs(reported: Iterable[Figures]) -> list[Figures]:
    """Runs from the figures of runs and parts: the parts of each seed add up to one.

    Raises:
        PartsError: as `add_up`.
    """
    runs: list[Figures] = []
    parts: dict[int, list[Figures]] = collections.defaultdict(list)
    for each in reported:
        if each.get("part") is None:
            runs.append(each)
        else:
            parts[each["seed"]].append(each)
    return runs + [add_up(found) for found in parts.values()]
