"""An error has the facts that its class declares, wherever it is raised."""

from __future__ import annotations

import ast
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from hqueue import errors
from hqueue.errors import IdempotencyKeyReusedError

ROOT = Path(__file__).parents[2]
PACKAGES = (ROOT / "hqueue", ROOT / "workers", ROOT / "spark")
DECLARED = {
    name: set(vars(getattr(errors, name)).get("__annotations__", ())) for name in errors.__all__
}
DECLARED["HQueueError"] = set()  # What all errors have is no fact.
TYPED = sorted(name for name, facts in DECLARED.items() if facts)


@pytest.fixture(scope="module")
def made() -> dict[str, list[set[str | None]]]:
    """By class the facts that each call gives which makes such an error."""
    found: dict[str, list[set[str | None]]] = {name: [] for name in TYPED}
    for package in PACKAGES:
        for path in package.rglob("*.py"):
            for call in calls_in(path):
                found[call.func.id].append({each.arg for each in call.keywords})  # type: ignore[attr-defined]
    return found


def calls_in(path: Path) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in TYPED:
            yield node


@pytest.mark.parametrize("name", TYPED)
def test_each_place_that_makes_an_error_gives_the_facts_that_its_class_declares(
    name: str, made: dict[str, list[set[str | None]]]
) -> None:
    assert made[name]
    assert [given for given in made[name] if not DECLARED[name] <= given] == []


def test_a_declared_fact_is_an_attribute_also_of_an_error_that_was_pickled() -> None:
    error = IdempotencyKeyReusedError("other messages", count=3, count_before=2)
    for each in (error, pickle.loads(pickle.dumps(error))):
        before: int = each.count_before
        assert (each.count, before) == (3, 2)
    with pytest.raises(AttributeError):
        _ = IdempotencyKeyReusedError("other messages").count
