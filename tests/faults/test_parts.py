"""A part of a long run goes on where the part before it ended, and only then."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from .parts import Part, PartsError, add_up, folder_of, part_after
from .schedule import PRODUCERS, SERVERS, schedule

KINDS = ["kill-meta", "compact", "kill-producer", "set-clock"]


def reported(folder: Path, part: Part, events: list[str], **changes: Any) -> None:
    """Write the report of a part, as far as the next part reads it."""
    at = folder / folder_of(7, part.number)
    at.mkdir()
    figures = {"faults": dict.fromkeys(KINDS, 1), "failures": 0, **part.figures(events, events[:1])}
    (at / "figures.json").write_text(json.dumps({**figures, **changes}))


def test_three_parts_have_the_schedule_of_one_run(tmp_path: Path) -> None:
    whole = {t.name: list(itertools.islice(t.planned, 9)) for t in schedule(7, KINDS)}
    came = []
    for number in (1, 2, 3):
        part = part_after(tmp_path, 7, number, KINDS)
        tracks = {t.name: t.planned for t in schedule(7, KINDS, part.planned)}
        taken = [*itertools.islice(tracks[SERVERS], 2), *itertools.islice(tracks[PRODUCERS], 3)]
        reported(tmp_path, part, [item.fault for item in taken])
        came += taken
    servers = [item for item in came if item in whole[SERVERS]]
    assert servers == whole[SERVERS][:6]
    assert [item for item in came if item not in servers] == whole[PRODUCERS]


def test_what_came_in_an_earlier_part_has_come(tmp_path: Path) -> None:
    reported(tmp_path, Part(1), ["compact", "kill-meta"])
    reported(tmp_path, part_after(tmp_path, 7, 2, KINDS), ["set-clock"])
    part = part_after(tmp_path, 7, 3, KINDS)
    assert part.came == {"compact", "set-clock"}
    assert part.planned == {SERVERS: 2, PRODUCERS: 1}


@pytest.mark.parametrize(
    ("number", "kinds", "changes", "words"),
    [
        (0, KINDS, {}, "from 1 on"),
        (3, KINDS, {}, "run part 2 before part 3"),
        (2, KINDS, {"failures": 1}, "run it again"),
        (2, KINDS[1:], {}, "differs in kill-meta"),
    ],
)
def test_a_part_that_can_not_go_on_is_refused(
    tmp_path: Path, number: int, kinds: list[str], changes: dict[str, Any], words: str
) -> None:
    reported(tmp_path, Part(1), [], **changes)
    with pytest.raises(PartsError, match=words):
        part_after(tmp_path, 7, number, kinds)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ([(7, 1, 0), (7, 3, 0)], r"these are \[1, 3\]"),
        ([(7, 1, 0), (7, 1, 0)], r"these are \[1, 1\]"),
        ([(7, 1, 0), (8, 2, 0)], "several seeds"),
        ([(7, 1, 0), (7, 2, 1)], "prove nothing: 2"),
    ],
)
def test_parts_that_make_no_run_are_not_added_up(
    parts: list[tuple[int, int, int]], words: str
) -> None:
    with pytest.raises(PartsError, match=words):
        add_up([{"seed": s, "part": p, "failures": f} for s, p, f in parts])
