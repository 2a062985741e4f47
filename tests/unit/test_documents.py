"""What README and the guide show is right: their programs, their links, and the reference."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hqueue
import hqueue_workers
import pyspark_hqueue

ROOT = Path(__file__).parents[2]
SOURCES = (ROOT, ROOT / "workers", ROOT / "spark")
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)(?:#[^)\s]*)?\)")
DIRECTIVE = re.compile(r"^::: (\S+)", re.MULTILINE)
OUTSIDE_THE_SITE = [*ROOT.glob("*.md"), *(ROOT / "examples").glob("*.md")]
"""Pages whose links `make docs` does not look at."""
WITH_PROGRAMS = [
    page
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    if PYTHON_BLOCK.search(page.read_text(encoding="utf-8"))
]
EACH_BY_ITSELF = ("coming-from.md", "consumers.md", "hubs.md")
"""Pages whose blocks are a program each. Of the other pages all blocks together are one."""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The Python of README and of the guide, each as one module, and the examples."""
    folder = tmp_path_factory.mktemp("programs")
    for page in (ROOT / "README.md", ROOT / "docs" / "guide.md"):
        blocks = PYTHON_BLOCK.findall(page.read_text())
        assert blocks
        (folder / f"{page.stem.lower()}_blocks.py").write_text("\n".join(blocks))
    found = [*folder.glob("*.py"), *(ROOT / "examples").glob("*.py")]
    return [str(path) for path in found]


def test_the_programs_that_users_copy_pass_mypy_strict(programs: list[str]) -> None:
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", *programs],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout


def test_the_programs_that_users_copy_pass_pyright(programs: list[str], tmp_path: Path) -> None:
    configuration = tmp_path / "pyrightconfig.json"
    configuration.write_text(
        json.dumps(
            {
                "include": programs,
                "extraPaths": [str(path) for path in SOURCES],
                "typeCheckingMode": "standard",
            }
        )
    )
    command = ["basedpyright", "--project", str(configuration), "--pythonpath", sys.executable]
    checked = subprocess.run(
        [sys.executable, "-m", *command], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("page", WITH_PROGRAMS, ids=lambda page: page.name)
def test_the_programs_of_a_page_compile_and_their_names_are_there(
    page: Path, tmp_path: Path
) -> None:
    blocks = PYTHON_BLOCK.findall(page.read_text(encoding="utf-8"))
    programs = blocks if page.name in EACH_BY_ITSELF else ["\n".join(blocks)]
    for number, program in enumerate(programs):
        compile(program, f"{page.name}, program {number}", "exec")
        (tmp_path / f"program_{number}.py").write_text(program, encoding="utf-8")
    assert undefined_in(tmp_path) == ""
    assert page.name not in EACH_BY_ITSELF or not any("..." in each for each in programs)


def test_a_program_that_lacks_an_import_is_found(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("with hqueue.connect() as client:\n    pass\n")
    assert "Undefined name `hqueue`" in undefined_in(tmp_path)


def undefined_in(folder: Path) -> str:
    """What the linter says of names in these programs that nothing defines."""
    command = ["ruff", "check", "--isolated", "--select", "F821,F823", "--quiet", str(folder)]
    checked = subprocess.run(
        [sys.executable, "-m", *command], capture_output=True, text=True, check=False
    )
    assert checked.returncode in (0, 1), checked.stderr
    return checked.stdout


@pytest.mark.parametrize("page", OUTSIDE_THE_SITE, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file(page: Path) -> None:
    text = FENCED.sub("", page.read_text())
    dead = [link for link in LINK.findall(text) if not (page.parent / link).exists()]
    assert not dead


def test_the_list_of_examples_is_whole() -> None:
    listed = re.findall(r"^\| `(\w+\.py)`", (ROOT / "examples" / "README.md").read_text(), re.M)
    assert sorted(listed) == sorted(path.name for path in (ROOT / "examples").glob("*.py"))


def test_the_reference_has_every_public_name() -> None:
    pages = (ROOT / "docs" / "reference").glob("*.md")
    described = {name for page in pages for name in DIRECTIVE.findall(page.read_text())}
    assert "hqueue.errors" in described  # A page of its own has them all.
    errors = {f"hqueue.{name}" for name in hqueue.errors.__all__}
    public = {
        f"{package.__name__}.{name}"
        for package in (hqueue, hqueue_workers, pyspark_hqueue)
        for name in package.__all__
    }
    by_themselves = {"hqueue.__version__", "pyspark_hqueue.DefaultSource"}
    assert public - errors - by_themselves <= described


def test_the_bounds_of_waits_that_the_page_gives_are_the_defaults() -> None:
    text = (ROOT / "docs" / "guarantees.md").read_text()
    [page] = re.findall(r"^\*\*Bounded\.\*\*(.*?)^$", text, re.M | re.S)
    direct, hubs = hqueue.Settings(), hqueue.HubClientSettings((hqueue.Address("host", 1),))
    defaults = (
        direct.operation_timeout_ms,
        direct.request_timeout_ms,
        hubs.operation_timeout_ms,
        hubs.connect_timeout_ms,
    )
    assert tuple(int(given) * 1_000 for given in re.findall(r"(\d+) s\b", page)) == defaults


def test_described_systems_are_cited_by_their_names() -> None:
    folders = ("hqueue", "workers", "spark", "docs", "examples", "tests", "thrift")
    files = [
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".md", ".thrift")
    ]
    assert len(files) > 500
    by_number = re.compile(r"\bseeds?\s+0\d\d\b", re.I)
    assert not [path for path in files if by_number.search(path.read_text(encoding="utf-8"))]


def test_nothing_says_to_install_the_other_project_of_this_name_from_the_index() -> None:
    folders = ("hqueue", "workers", "spark", "docs", "examples")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.[mp][dy]")]
    assert len(files) > 100
    wrong = re.compile(r"""pip install ['"]?hqueue(?![\w-])""")
    assert not [path for path in [ROOT / "README.md", *files] if wrong.search(path.read_text())]
