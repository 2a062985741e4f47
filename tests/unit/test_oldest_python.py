"""What Python 3.10 refuses, and neither the linter nor the type checker finds on a later one."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = [
    path
    for package in ("hqueue", "workers/hqueue_workers", "spark/pyspark_hqueue")
    for path in (ROOT / package).rglob("*.py")
]


def generic_named_tuples(source: str) -> list[str]:
    """The classes that have `NamedTuple` and something else as bases."""
    return [
        node.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ClassDef)
        and len(node.bases) > 1
        and any(ast.unparse(base).endswith("NamedTuple") for base in node.bases)
    ]


def test_no_named_tuple_has_another_base() -> None:
    found = {path.name: generic_named_tuples(path.read_text(encoding="utf-8")) for path in SOURCES}
    assert not {name: classes for name, classes in found.items() if classes}


@pytest.mark.parametrize("bases", ["NamedTuple, Generic[T]", "Generic[T], typing.NamedTuple"])
def test_one_that_has_is_found(bases: str) -> None:
    assert generic_named_tuples(f"class A({bases}):\n    a: int") == ["A"]
