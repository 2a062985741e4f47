"""Tests lie in the folder of the code that they test, so that both are found by one path."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

TESTS = Path(__file__).parent
ROOT = TESTS.parents[1]
PACKAGES = {
    (): ROOT / "hqueue",
    ("workers",): ROOT / "workers/hqueue_workers",
    ("spark",): ROOT / "spark/pyspark_hqueue",
}
"""Where the code is that each folder of tests stands for."""


def code_of(folder: Path) -> Path:
    """The folder whose code the tests of a folder test."""
    parts = folder.relative_to(TESTS).parts
    if parts[:1] in PACKAGES:
        return PACKAGES[parts[:1]].joinpath(*parts[1:])
    return PACKAGES[()].joinpath(*parts)


def test_each_folder_of_tests_is_that_of_a_folder_of_the_code() -> None:
    folders = {file.parent for file in TESTS.rglob("test_*.py")}
    assert [folder for folder in sorted(folders) if not code_of(folder).is_dir()] == []


def test_a_test_with_a_module_s_name_lies_in_that_module_s_folder_or_above() -> None:
    modules = defaultdict(set)
    for package in PACKAGES.values():
        for file in package.rglob("*.py"):
            modules[file.stem].add(file.parent)
    strays = [
        str(file.relative_to(ROOT))
        for file in sorted(TESTS.rglob("test_*.py"))
        if (named := modules.get(file.stem.removeprefix("test_")))
        and not any(folder.is_relative_to(code_of(file.parent)) for folder in named)
    ]
    assert strays == []
