"""Finds constructions that readers stumble over, in everything that people read; for `make lint`.

`constructions.txt` lists them with what to write instead. Read are the comments and strings of
Python files, and the whole text of pages, IDLs and configuration files, but for code.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["CONSTRUCTIONS", "Construction", "Finding", "constructions", "findings"]

CONSTRUCTIONS = Path(__file__).with_name("constructions.txt")
_CODE = re.compile(r"^( *)```.*?^\1```|``.+?``|`[^`]+`", re.DOTALL | re.MULTILINE)
_MARGIN = re.compile(r"(?<=\n)[ \t]*(?:#+|\*|//)")
"""What begins the lines of a comment."""


class Construction(NamedTuple):
    pattern: re.Pattern[str]
    instead: str


class Finding(NamedTuple):
    line: int
    written: str
    instead: str


def constructions(text: str) -> list[Construction]:
    """The constructions of a file like `constructions.txt`, which says how its lines are read."""
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    pairs = (line.rsplit(" | ", 1) for line in lines)
    return [
        Construction(re.compile(pattern.replace(" ", r"\s+"), re.IGNORECASE), instead)
        for pattern, instead in pairs
    ]


def findings(name: str, source: str, known: list[Construction]) -> Iterator[Finding]:
    """What is found in a file of this name."""
    for first, text in _texts_of_python(source) if name.endswith(".py") else [(1, source)]:
        prose = _MARGIN.sub("", _CODE.sub(lambda code: "`" + "\n" * code[0].count("\n"), text))
        for pattern, instead in known:
            for found in pattern.finditer(prose):
                line = first + prose.count("\n", 0, found.start())
                yield Finding(line, " ".join(found[0].split()), instead)


def _texts_of_python(source: str) -> Iterator[tuple[int, str]]:
    """The comments and strings of a module, each with its first line."""
    comment: list[str] = []
    end = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if comment and token.start[0] != end + 1:
                yield end - len(comment) + 1, "\n".join(comment)
                comment = []
            end = token.start[0]
            comment.append(token.string.lstrip("# "))
    if comment:
        yield end - len(comment) + 1, "\n".join(comment)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value
