"""What docs/architecture.md says of rooms and their imports is so, and what pages name is there."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hqueue.hbase.native import updates

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
DECISIONS = sorted((ROOT / "docs").glob("decisions-*.md"))
PACKAGES = {
    "hqueue": ROOT / "hqueue",
    "hqueue_workers": ROOT / "workers" / "hqueue_workers",
    "pyspark_hqueue": ROOT / "spark" / "pyspark_hqueue",
}
CONTRACTS: list[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))[
    "tool"
]["importlinter"]["contracts"]
LAYERS = next(each for each in CONTRACTS if each.get("containers") == ["hqueue"])["layers"]
ROWS = [[room.strip() for room in row.split("|")] for row in LAYERS if row != "__main__"]
ROOMS = [room for row in ROWS for room in row]
ALMOST_EVERYWHERE = set(ROOMS[ROOMS.index("format") + 1 :])
"""What the table leaves out of the rooms above."""

FENCED = re.compile(r"^```.*?^```", re.M | re.S)
CODE = re.compile(r"`([^`]+)`")
OF_OTHERS = {"google.protobuf", "hbase.client.pause"}
"""Names with dots that are no modules of ours."""


def table(head: str) -> dict[str, list[str]]:
    """The rows of the table that begins with such a head, each by its first cell."""
    rows = PAGE.split(f"\n| {head} |", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    return {name: rest for name, *rest in cells}


def imports_of(package: str, room: str = "") -> set[tuple[str, str]]:
    """What a room or a package imports of the library: rooms, and modules in these or ""."""
    there = PACKAGES[package] / room
    files = [there.with_suffix(".py")] if room and not there.is_dir() else there.rglob("*.py")
    found = {
        (room, module if is_module(PACKAGES["hqueue"] / room / module) else "")
        for path in files
        for name in named_in(ast.parse(path.read_text(encoding="utf-8")))
        for _, room, module in [[*name.split("."), "", ""][:3]]
    }
    return {(other, module) for other, module in found if other in ROOMS and other != room}


def is_module(there: Path) -> bool:
    return there.is_dir() or there.with_suffix(".py").exists()


def named_in(tree: ast.Module) -> Iterator[str]:
    """Each module of the library that is imported, also for types alone, or inside a function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("hqueue."))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hqueue."):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def check(cell: str, imported: set[tuple[str, str]]) -> None:
    """A cell names what is imported, all of it and nothing else."""
    named = CODE.findall(cell)
    assert named == sorted(named)
    by_module = {name.partition(".")[0] for name in named if "." in name}
    needed = {
        f"{room}.{module}" if room in by_module and module else room for room, module in imported
    }
    assert set(named) == needed


def test_the_picture_has_the_layers_that_are_checked() -> None:
    picture = re.findall(r"^```\n(.*?)^```", PAGE, re.M | re.S)[1]
    drawn = [[room.strip() for room in row.split("│")] for row in picture.splitlines()]
    assert drawn == ROWS


def test_the_table_has_every_room_from_above_to_below() -> None:
    assert [CODE.findall(name) for name in table("room")] == [[room] for room in ROOMS]


@pytest.mark.parametrize("room", ROOMS)
def test_a_row_says_what_its_room_imports(room: str) -> None:
    left_out = set() if room in ALMOST_EVERYWHERE else ALMOST_EVERYWHERE
    imported = {each for each in imports_of("hqueue", room) if each[0] not in left_out}
    check(table("room")[f"`{room}`"][-1], imported)


@pytest.mark.parametrize("package", ["hqueue_workers", "pyspark_hqueue"])
def test_a_row_says_what_a_package_imports_of_the_library(package: str) -> None:
    imported = {each for each in imports_of(package) if each[0] not in ALMOST_EVERYWHERE}
    check(table("package")[f"`{package}`"][-1], imported)


def test_the_table_says_who_may_import_what_is_protected() -> None:
    protected = {
        tuple(each["protected_modules"]): each["allowed_importers"]
        for each in CONTRACTS
        if each["type"] == "protected"
    }
    listed = {
        tuple(CODE.findall(name)): CODE.findall(cells[0]) for name, cells in table("module").items()
    }
    assert listed == protected


def test_the_page_has_the_bounds_of_many_updates_at_once() -> None:
    page = (ROOT / "docs" / "decisions-coordination.md").read_text(encoding="utf-8")
    text = " ".join(page.split())
    for sentence in (
        f"Multis of up to {updates.TOGETHER_MAX} rows ({updates.BYTES_MAX >> 20} MiB, or one",
        f"up to {updates.UNDER_WAY_MAX} of them under way at each server",
        f"up to {updates.ROWS_UNDER_WAY_MAX} requests of one row instead",
    ):
        assert sentence in text


@pytest.mark.parametrize(
    "page", ["architecture.md", "origins.md", *(page.name for page in DECISIONS)]
)
def test_each_module_and_file_that_a_page_names_is_there(page: str) -> None:
    text = FENCED.sub("", (ROOT / "docs" / page).read_text(encoding="utf-8"))
    names = set(CODE.findall(text)) - OF_OTHERS
    modules = {name for name in names if re.fullmatch(r"[a-z_]+(\.[a-z_]+)+", name)}
    paths = {name for name in names if re.fullmatch(r"[a-z_]+(/[\w.]+)+", name)}
    assert len(modules) > 5
    assert paths
    folders = [*PACKAGES.values(), *(there.parent for there in PACKAGES.values())]
    assert not [
        name
        for name in modules
        if not any(is_module(there / name.replace(".", "/")) for there in folders)
    ]
    assert not [path for path in paths if not (ROOT / path).exists()]
