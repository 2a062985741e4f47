"""The page and its pictures show what was measured, also what was missed."""

from __future__ import annotations

from pathlib import Path

from ..measure import Comparison
from ..report import write_part
from .growth import MEASURES, Point
from .page import Section, loop_part, part
from .pictures import draw_cases, draw_growth, series

FAST, SLOW = (900.0, 1_000.0, 1_100.0), (100.0, 200.0, 300.0)
ON_DISK = Comparison("1 KB text, on disk", "ours", "theirs", "msg/s", SLOW, FAST, 2)
DEFAULT = Comparison("1 KB text", "ours", "theirs", "msg/s", FAST, SLOW, 2)
SECTIONS = [Section("Produce", "How it was done.", [DEFAULT, ON_DISK])]


def growth() -> dict[str, list[Point]]:
    figures = {"hqueue": SLOW, "theirs": FAST}
    return {"partitions": [Point(size, dict.fromkeys(MEASURES, figures)) for size in (1, 8)]}


def test_a_section_has_each_result_with_its_verdict() -> None:
    text = part(SECTIONS, growth(), kafka="4.0.0", libraries="lib 1", idle=(2.5, 0.5))
    assert "## Produce\n\nHow it was done.\n" in text
    assert (
        "| 1 KB text | ours | 1,000 msg/s | theirs | 200 msg/s | 5.00 (3.67 to 9.00) | ≥ 2 "
        "| reached |" in text
    )
    assert "| 0.20 (0.11 to 0.27) | ≥ 2 | missed |" in text
    assert "Kafka 4.0.0 broker" in " ".join(text.split())
    assert "2.5 % of a core" in text


def test_event_loops_have_a_part_of_their_own() -> None:
    text = loop_part(Section("In a loop", "Done so.", [DEFAULT]), kafka="4.0.0", libraries="lib 1")
    assert text.startswith("## In a loop, beside Kafka's clients\n")
    assert "Kafka 4.0.0 broker" in " ".join(text.split())
    assert "Done so." in text
    assert "| 1 KB text | ours | 1,000 msg/s | theirs | 200 msg/s |" in text


def test_the_growth_has_a_row_for_each_size() -> None:
    text = part(SECTIONS, growth(), kafka="4.0.0", libraries="lib 1", idle=(0, 0))
    assert "| 8 | 200 | 1,000 | 200 | 1,000 |" in text


def test_bars_have_the_figures_of_all_that_ran() -> None:
    assert series([DEFAULT, ON_DISK]) == {
        "ours": {"1 KB text": FAST, "1 KB text, on disk": SLOW},
        "theirs": {"1 KB text": SLOW, "1 KB text, on disk": FAST},
    }


def test_both_pictures_are_drawn(tmp_path: Path) -> None:
    draw_cases({section.title: section.results for section in SECTIONS}, tmp_path / "cases.png")
    draw_growth(growth(), tmp_path / "growth.png")
    assert {path.name for path in tmp_path.iterdir()} == {"cases.png", "growth.png"}


def test_each_command_writes_its_part_where_it_was(tmp_path: Path) -> None:
    for text in ("one", "two", "three"):
        write_part(tmp_path, "make first", f"{text} of the first")
        page = write_part(tmp_path, "make second", f"{text} of the second")
    lines = [line for line in page.read_text(encoding="utf-8").splitlines() if line]
    assert [line for line in lines if not line.startswith("<!--")] == [
        "# Benchmarks",
        "three of the first",
        "three of the second",
    ]
    assert len(lines) == 7
