"""The page tells what the runs found, also what is bad."""

from __future__ import annotations

from typing import Any

from .earlier_runs import fuzzed_on, runs_on
from .page import page
from .parts import whole_runs
from .report import ALL_KINDS
from .schedule import FAULTS

CELLS = {"executions": 12_000, "seconds": 300.0, "findings": 1}


def run(seed: int, lost: int) -> dict[str, Any]:
    return {
        "seed": seed,
        "duration_s": 600,
        "puts": {"ok": 1_000, "fail": 20, "unknown": 3},
        "messages": 5_000,
        "with_key_or_headers": 2_400,
        "reads": 15_000,
        "scans": 70,
        "faults": dict.fromkeys(FAULTS, 2),
        "deliveries": 9_000,
        "consumed": 6_000,
        "published": 2_000,
        "listened": 4_000,
        "shared": 1_500,
        "failures": 0,
        "takeovers_s": [],
        "violations": {**dict.fromkeys(ALL_KINDS, 0), "lost": lost},
        "longest_stall_s": {"kill-meta": 12.5},
    }


def test_all_runs_are_in_the_page_with_what_they_found() -> None:
    text = page([run(1, 0), run(2, 4)], 1, {"seed": 9, "targets": {"cells": CELLS}})
    assert "## Strangers at the ports" in text
    assert f"20 minutes of 2 runs, with {4 * len(FAULTS)} faults and 2,046 puts" in text
    assert "promises were broken 4 times" in text
    assert "| **lost** | 0 | 4 |" in text
    assert "| with a key or headers | 2,400 | 2,400 |" in text
    assert "| messages consumed by a group | 6,000 | 6,000 |" in text
    assert "| messages given to share consumers | 1,500 | 1,500 |" in text
    assert "| `kill-meta` | 2 (12.5 s) | 2 (12.5 s) |" in text
    assert "![seed 1](reliability-seed-1.png)" in text
    assert "5 minutes (seed 9)" in text
    assert "| `cells` | 12,000 | 1 |" in text


def test_what_an_earlier_run_did_not_look_for_is_not_said_to_be_none() -> None:
    earlier = run(1, 0)
    del earlier["shared"], earlier["violations"]["contended"]
    text = page([earlier, run(2, 0)], 1, {"seed": 9, "targets": {"cells": CELLS}})
    assert "| messages given to share consumers | – | 1,500 |" in text
    assert "| **contended** | – | 0 |" in text


def test_a_page_is_written_again_from_what_it_shows_with_runs_added() -> None:
    earlier = run(1, 0)
    del earlier["shared"], earlier["violations"]["contended"], earlier["faults"]["kill-meta"]
    text = page([earlier, run(2, 7)], 1, {"seed": 9, "targets": {"cells": CELLS}})
    assert page(runs_on(text), 1, fuzzed_on(text)) == text
    more = page([*runs_on(text), run(3, 0)], 1, fuzzed_on(text))
    assert "| **lost** | 0 | 7 | 0 |" in more
    assert "30 minutes of 3 runs" in more


def test_the_parts_of_a_run_are_added_up_in_one_column() -> None:
    parts = [
        {**run(9, 0), "part": 2, "longest_stall_s": {"compact": 3.0}},
        {**run(9, 1), "part": 1},
    ]
    text = page(whole_runs([run(1, 0), *parts]), 1, {"seed": 9, "targets": {"cells": CELLS}})
    assert "| clusters, one after the other | 1 | 2 |" in text
    assert "| seconds | 600 | 1,200 |" in text
    assert "| puts: ok | 1,000 | 2,000 |" in text
    assert "| **lost** | 0 | 1 |" in text
    assert "| `kill-meta` | 2 (12.5 s) | 4 (12.5 s) |" in text
    assert "| `compact` | 2 | 4 (3.0 s) |" in text
    assert page(runs_on(text), 1, fuzzed_on(text)) == text
