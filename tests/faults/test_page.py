"""The page tells what the runs found, also what is bad."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from .page import DOCS, RECORD, Record, page
from .parts import whole_runs
from .report import ALL_KINDS
from .schedule import FAULTS

FUZZED = {"seed": 9, "targets": {"cells": {"executions": 12_000, "seconds": 300, "findings": 1}}}


def run(seed: int, lost: int, **changes: Any) -> dict[str, Any]:
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
        **changes,
    }


def test_all_runs_are_in_the_page_with_what_they_found() -> None:
    text = page([run(1, 0), run(2, 4)], FUZZED)
    assert "## Strangers at the ports" in text
    assert f"20 minutes of 2 runs, with {4 * len(FAULTS)} faults and 2,046 puts" in text
    assert "promises were broken 4 times" in text
    row = "| 1 | 600 | 1,000 | 20 | 3 | 5,000 | 15,000 | 9,000 | 6,000 | 2,000 | 4,000 | 1,500 |"
    assert f"| 1 {row} {2 * len(FAULTS)} | **0** |" in text
    assert f"| 2 {row} {2 * len(FAULTS)} | **4** |" in text
    assert f"| `lost` | {ALL_KINDS['lost']} | 4 in 2 runs |" in text
    assert f"| {FAULTS['kill-meta'].doc} | 4 | 12.5 s | – |" in text
    assert "5 minutes (seed 9)" in text
    assert "| `cells` | 12,000 | 1 |" in text


def test_what_an_earlier_run_did_not_look_for_is_not_said_to_be_none() -> None:
    earlier = run(1, 0)
    del earlier["shared"], earlier["violations"]["contended"]
    text = page([earlier, run(2, 0)], FUZZED)
    assert "| 4,000 | – |" in text
    assert f"| `contended` | {ALL_KINDS['contended']} | 0 in 1 runs |" in text


def test_a_stall_alone_is_one_of_a_run_without_other_faults() -> None:
    alone = run(2, 0, faults={"kill-meta": 1, "compact": 1}, longest_stall_s={"kill-meta": 7.5})
    text = page([run(1, 0), alone], FUZZED)
    assert f"| {FAULTS['kill-meta'].doc} | 3 | 12.5 s | 7.5 s |" in text
    assert f"| {FAULTS['compact'].doc} | 3 | – | – |" in text


def test_the_parts_of_a_run_are_added_up() -> None:
    parts = [
        run(9, 0, part=2, longest_stall_s={"compact": 3.0}),
        run(9, 1, part=1),
    ]
    text = page(whole_runs([run(1, 0), *parts]), FUZZED)
    assert "| 9 | 2 | 1,200 | 2,000 | 40 | 6 |" in text
    assert f"| {FAULTS['kill-meta'].doc} | 6 | 12.5 s | – |" in text
    assert f"| {FAULTS['compact'].doc} | 6 | 3.0 s | – |" in text


@pytest.fixture
def record(tmp_path: Path) -> Record:
    shutil.copytree(RECORD, tmp_path / "record")
    return Record(tmp_path / "record")


def test_a_run_is_added_to_those_on_record_or_takes_its_seed_s_place(record: Record) -> None:
    before = record.runs
    record.add([run(10**7, 1, longest_stall_s={"compact": 3.04}, events=["much"])])
    *kept, added = record.runs
    assert kept == before
    assert added["longest_stall_s"] == {"compact": 3.0}
    assert "events" not in added
    assert page(record.runs, FUZZED) == page([*before, added], FUZZED)
    record.add([run(10**7, 0)])
    assert record.runs[-1]["violations"]["lost"] == 0
    assert len(record.runs) == len(before) + 1


def test_a_run_of_the_fuzzer_takes_the_place_of_the_one_before(record: Record) -> None:
    record.take_fuzzed({**FUZZED, "more": 1})
    assert record.fuzzed == FUZZED


def test_the_page_is_that_of_the_runs_on_record() -> None:
    record = Record()
    assert (DOCS / "reliability.md").read_text() == page(record.runs, record.fuzzed)
    assert json.loads((RECORD / "runs.jsonl").read_text().splitlines()[0])["seed"] == 31
