"""The faults that are planted, the tests that are chosen for each, and what is said of it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .choosing import Survey
from .probes import reaching_tests, with_probes
from .reached import REACHED
from .sites import sites_in

SOURCE = b"""
def limited(number):
    if number > 3 and not number == 8: number -= number - 3
    print(number); print(f"{number + 1}")
    return [each for each in range(number) if each]

def counted(number):
    steps = 0
    while number > 0:
        number -= 1
        steps += 1
    return steps

def unused(number):
    return number < 5
"""


def test_a_fault_is_a_comparison_a_condition_a_sign_or_a_call_and_no_text() -> None:
    found = [(site.kind, site.line, site.planted) for site in sites_in("numbers.py", SOURCE)]
    assert found == [
        ("condition", 3, b"((number > 3) or (not number == 8))"),
        ("comparison", 3, b"(number >= 3)"),
        ("comparison", 3, b"(number != 8)"),
        ("sign", 3, b"number += number - 3"),
        ("sign", 3, b"(number + 3)"),
        ("call", 4, b"pass"),
        ("call", 4, b"pass"),
        ("comparison", 9, b"(number >= 0)"),
        ("sign", 10, b"number += 1"),
        ("sign", 11, b"steps -= 1"),
        ("comparison", 15, b"(number <= 5)"),
    ]


def test_every_fault_leaves_a_file_that_python_reads() -> None:
    for site in sites_in("numbers.py", SOURCE):
        compile(site.plant(SOURCE), site.path, "exec")


def test_probes_change_nothing_and_write_which_places_each_test_reaches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = tmp_path / "reached"
    monkeypatch.setenv(REACHED, str(written))
    sites = dict(enumerate(sites_in("numbers.py", SOURCE)))
    names: dict[str, object] = {}
    exec(compile(with_probes(SOURCE, sites), "numbers.py", "exec"), names)
    limited, counted = names["limited"], names["counted"]
    assert callable(limited)
    assert callable(counted)
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "tests/test_a.py::test_small[a (b)] (call)")
    assert limited(2) == [1]
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "tests/test_a.py::test_large (setup)")
    assert limited(7) == [1, 2]
    assert counted(2) == 2
    reaching = reaching_tests(written)
    small, large = "tests/test_a.py::test_small[a (b)]", "tests/test_a.py::test_large"
    by_line: dict[int, set[str]] = {}
    for number, tests in reaching.items():
        by_line.setdefault(sites[number].line, set()).update(tests)
    assert by_line == {3: {small, large}, 4: {small, large}, 9: {large}, 10: {large}, 11: {large}}
    assert reaching[2] == reaching[3] == {large}, "the rest of a condition that is false"


def test_what_no_test_reaches_is_reached_by_none(tmp_path: Path) -> None:
    assert not reaching_tests(tmp_path / "never-written")


def test_tests_of_the_module_come_first_then_short_ones_until_the_time_is_used() -> None:
    took_s = {
        "tests/unit/log/test_reader.py::test_a": 9.0,
        "tests/unit/log/test_writer.py::test_b": 5.0,
        "tests/model/test_c.py::test_c": 2.0,
        "tests/model/test_c.py::test_d": 1.0,
        "tests/model/test_c.py::test_e": 0.1,
    }
    reached = {*took_s, "tests/model/test_c.py::test_that_fails_without_a_fault"}
    survey = Survey(took_s, {1: reached - {"tests/model/test_c.py::test_e"}})
    near = ["tests/unit/log/test_writer.py::test_b", "tests/unit/log/test_reader.py::test_a"]
    others = ["tests/model/test_c.py::test_d", "tests/model/test_c.py::test_c"]
    path = "hqueue/log/reader.py"
    assert survey.chosen(1, path, share_max=1.0) == [*near, *others]
    assert survey.chosen(1, path, share_max=15.5 / 17.1) == [*near, others[0]]
    assert survey.chosen(1, path, share_max=0.01) == near[:1]
    assert survey.seconds(near) == 14.0
    assert survey.chosen(2, path, share_max=1.0) == []


MODULE = """
def counted(number):
    steps = 0
    while number > 0:
        number -= 1
        steps += 1
    return steps

def unused(numbers):
    if numbers:
        numbers.sort()
"""
TESTS = """
from hqueue.numbers import counted

def test_counted():
    assert counted(3) == 3

def test_that_fails_without_a_fault():
    assert counted(3) == 4
"""
TEST_S = 5


@pytest.mark.thorough("starts pytest seven times")
def test_each_fault_is_caught_by_a_test_that_reaches_it_or_survives(tmp_path: Path) -> None:
    tool = tmp_path / "tests" / "mutants"
    shutil.copytree(Path(__file__).parent, tool, ignore=shutil.ignore_patterns("test_*"))
    for path, text in {
        "hqueue/numbers.py": MODULE,
        "tests/test_numbers.py": TESTS,
        "tests/test_more.py": "import pytest\n\n@pytest.mark.parametrize('n', range(200))\n"
        "def test_nothing(n): ...\n",
    }.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    command = [
        sys.executable, "-m", "tests.mutants", "--test-seconds", str(TEST_S), "--at-least", "4",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    test = "tests/test_numbers.py::test_counted"
    assert lines[0].startswith("without a fault 201 tests pass, in "), done.stdout + done.stderr
    assert lines[1].endswith(": tests/test_numbers.py::test_that_fails_without_a_fault")
    ends = {line[4:].partition(" (")[0] for line in lines[2:] if line[:3].strip().isdigit()}
    assert ends == {
        f"comparison at hqueue/numbers.py:4: caught by {test}",
        f"sign at hqueue/numbers.py:5: caught by {test}, which hangs",
        f"sign at hqueue/numbers.py:6: caught by {test}",
        "condition at hqueue/numbers.py:10: SURVIVED",
        "call at hqueue/numbers.py:11: SURVIVED",
    }
    assert "caught 3 of 5 (seed 1)" in lines
    assert done.returncode == 1, "fewer than wanted"
    assert (tmp_path / "hqueue/numbers.py").read_text() == MODULE
