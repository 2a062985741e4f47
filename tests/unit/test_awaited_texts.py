"""The texts that tests wait for in the output of processes are texts of the code.

A test on servers that waits for a text that the code no longer says fails only after minutes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ("hqueue", "workers", "spark", "tests/support")
TESTS = ("tests/acceptance", "tests/conformance", "tests/integration", "tests/spark")
OUTPUTS = {"err", "log", "output", "stderr", "text"}
FIELD = re.compile(r"%[-.\d]*[a-z]|\{[^}]*\}")
"""Where a text has a value."""
VALUE = re.compile(r"'[^']*'|\[?\b\w+=[^ ]*|(?<![\w-])[\d,.]+|\(\d+ B\)|\b\w+(?:Error|Exit)\b")
"""A value in an awaited text: a quoted name, a fact, a number, a size or a class."""


def words_of(node: ast.AST, value: re.Pattern[str]) -> Iterator[list[str]]:
    """The words of each text in some code, without docstrings, split at values."""
    docstrings = {id(each.value) for each in ast.walk(node) if isinstance(each, ast.Expr)}
    for each in ast.walk(node):
        if isinstance(each, ast.Constant) and isinstance(each.value, str | bytes):
            text = each.value if isinstance(each.value, str) else each.value.decode("latin-1")
            if id(each) not in docstrings:
                for part in value.split(text):
                    # "1 problem" and "2 problems" are one text to this test.
                    yield [word.rstrip("s").lower() for word in re.findall(r"[\w'-]+", part)]


def awaited(tree: ast.AST) -> Iterator[tuple[ast.expr, bool]]:
    """Each text that is awaited by ``said("…")``, or asserted by ``"…" in result.err``; and whether
    it is the former.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            if node.func.attr == "said":
                yield node.args[0], True
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In):
            where = node.comparators[0]
            name = getattr(where, "attr", None) or getattr(where, "id", None)
            if name in OUTPUTS:
                yield node.left, False


def test_awaited_texts_are_said() -> None:
    pairs, first, last = set[tuple[str, str]](), set[str](), set[str]()
    for file in (file for folder in SOURCES for file in (ROOT / folder).rglob("*.py")):
        for words in filter(None, words_of(ast.parse(file.read_text()), FIELD)):
            pairs.update(pairwise(words))
            first.add(words[0])
            last.add(words[-1])
    unsaid, short, checked = [], [], 0
    for file in (file for folder in TESTS for file in sorted((ROOT / folder).rglob("test_*.py"))):
        tree = ast.parse(file.read_text())
        texts = list(awaited(tree))
        theirs = {id(node) for text, _ in texts for node in ast.walk(text)}
        own = {
            pair
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and id(node) not in theirs
            for words in words_of(node, FIELD)
            for pair in pairwise(words)
        }
        for text, is_awaited in texts:
            where = f"{file.relative_to(ROOT)}:{text.lineno}"
            for words in words_of(text, VALUE):
                checked += 1
                # Two words that many texts have say nothing: "is cut" is in "is cut off".
                short += [where] if is_awaited and len(words) < 3 else []
                unsaid += [
                    (where, *pair)
                    for pair in pairwise(words)
                    if pair not in pairs | own and not (pair[0] in last and pair[1] in first)
                ]
    assert not unsaid, unsaid
    assert not short, short
    assert checked > 200
