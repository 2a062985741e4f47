"""No loop whose turns end by a condition stands right in a block that holds a lock, or takes
notice of whatever is raised: see `hqueue.runtime.held`.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

import hqueue
import hqueue_workers

ROOTS = [Path(each.__path__[0]) for each in (hqueue, hqueue_workers)]
PROGRAMS = [ROOTS[0] / "cli", ROOTS[0] / "local"]
"""They end when they are interrupted, and with them all that they hold."""
FILES = [
    path
    for root in ROOTS
    for path in sorted(root.rglob("*.py"))
    if not any(path.is_relative_to(each) for each in PROGRAMS)
]
LOCKS = ("lock", "_work", "_requests", "_making", "_sending", "_reading", "_turn")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.GeneratorExp)


def guarded(tree: ast.AST) -> Iterator[ast.stmt]:
    """What stands in blocks that hold a lock, or take notice of whatever is raised."""
    for node in ast.walk(tree):
        if isinstance(node, ast.With) and any(_holds(item.context_expr) for item in node.items):
            yield from node.body
        if isinstance(node, ast.Try) and any(map(_catches_all, node.handlers)):
            yield from node.body


def _holds(context: ast.expr) -> bool:
    text = ast.unparse(context)
    return text.startswith("Held(") or text.endswith(LOCKS)


def _catches_all(handler: ast.ExceptHandler) -> bool:
    return handler.type is None or ast.unparse(handler.type) == "BaseException"


def loops(node: ast.AST) -> Iterator[ast.AST]:
    """Those that run in the same frame, and whose turns may end by a condition."""
    if isinstance(node, FUNCTIONS):
        return
    if _may_jump_back(node):
        yield node
    for child in ast.iter_child_nodes(node):
        yield from loops(child)


def _may_jump_back(node: ast.AST) -> bool:
    if isinstance(node, ast.While):
        return not isinstance(node.test, ast.Constant)
    if isinstance(node, ast.For):
        return _ends_by_condition(node.body)
    if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp)):
        return any(each.ifs for each in node.generators)
    return False


def _ends_by_condition(body: list[ast.stmt]) -> bool:
    last = body[-1]
    if isinstance(last, ast.If):
        return not last.orelse or _ends_by_condition(last.body) or _ends_by_condition(last.orelse)
    inner = itertools.chain.from_iterable(map(ast.walk, body))
    return any(isinstance(each, ast.Continue) for each in inner)


@pytest.mark.parametrize("path", FILES, ids=lambda path: "-".join(path.parts[-3:]))
def test_no_loop_that_ends_by_a_condition_stands_in_a_guarded_block(path: Path) -> None:
    found = [loop for block in guarded(ast.parse(path.read_text())) for loop in loops(block)]
    assert [f"{path}:{loop.lineno}" for loop in found] == []  # type: ignore[attr-defined]
