"""Where a small fault can be planted, and the line with it."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["KINDS", "Site", "sample", "sites_in"]

COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
SIGNS: dict[type[ast.operator], str] = {ast.Add: "-", ast.Sub: "+"}
HARMLESS_RECEIVERS = {"_log", "log", "logger", "_logger", "logging", "warnings"}
"""What these are called with is for people: its loss breaks no promise."""


@dataclass(frozen=True)
class Site:
    """A place in a file, and what stands there instead."""

    kind: str
    path: str
    line: int
    start: int
    stop: int
    is_statement: bool
    planted: bytes

    def plant(self, source: bytes) -> bytes:
        """The file with the fault."""
        return source[: self.start] + self.planted + source[self.stop :]


class _Finder(ast.NodeVisitor):
    """Collects the sites of one file. Offsets count bytes, as those of ``ast`` do."""

    def __init__(self, path: str, source: bytes) -> None:
        self._path = path
        self._source = source
        self._lines = [0]
        for line in source.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self.found: list[Site] = []

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self._lines[node.lineno - 1] + node.col_offset,
            self._lines[node.end_lineno - 1] + node.end_col_offset,
        )

    def _text(self, node: ast.expr) -> bytes:
        start, stop = self._span(node)
        return self._source[start:stop]

    def _operand(self, node: ast.expr) -> bytes:
        """Its text, with the parentheses that it may have had: they are no part of it."""
        simple = ast.Name | ast.Attribute | ast.Constant | ast.Call | ast.Subscript
        return self._text(node) if isinstance(node, simple) else b"(%s)" % self._text(node)

    def _add(self, kind: str, node: ast.expr | ast.stmt, planted: bytes) -> None:
        statement = isinstance(node, ast.stmt)
        self.found.append(
            Site(kind, self._path, node.lineno, *self._span(node), statement, planted)
        )

    def visit_Compare(self, node: ast.Compare) -> None:
        other = COMPARISONS[type(node.ops[0])]
        if len(node.ops) == 1:
            left, right = self._operand(node.left), self._operand(node.comparators[0])
            self._add("comparison", node, b"(%s %s %s)" % (left, other.encode(), right))
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        other = b" or " if isinstance(node.op, ast.And) else b" and "
        parts = [self._operand(value) for value in node.values]
        self._add("condition", node, b"(%s)" % other.join(parts))
        self.generic_visit(node)

    def _condition(self, node: ast.If | ast.While | ast.IfExp) -> None:
        if b"TYPE_CHECKING" in self._text(node.test):
            return
        if not isinstance(node.test, ast.Compare | ast.BoolOp):  # Those are sites by themselves.
            self._add("condition", node.test, b"(not %s)" % self._operand(node.test))
        self.generic_visit(node)

    visit_If = visit_While = visit_IfExp = _condition  # noqa: N815

    def visit_BinOp(self, node: ast.BinOp) -> None:
        sign = SIGNS.get(type(node.op))
        words = any(
            isinstance(side, ast.JoinedStr | ast.List | ast.Tuple)
            or (isinstance(side, ast.Constant) and isinstance(side.value, str | bytes))
            for side in (node.left, node.right)
        )
        if sign is not None and not words:
            left, right = self._operand(node.left), self._operand(node.right)
            self._add("sign", node, b"(%s %s %s)" % (left, sign.encode(), right))
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        sign = SIGNS.get(type(node.op))
        if sign is not None:
            target, value = self._text(node.target), self._text(node.value)
            self._add("sign", node, b"%s %s= %s" % (target, sign.encode(), value))
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        call = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(call, ast.Call) and not _is_harmless(call):
            self._add("call", node, b"pass")
        self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Texts are for people."""

    def visit_arg(self, node: ast.arg) -> None:
        """Types are no places."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for part in (*node.decorator_list, node.args, *node.body):
            self.visit(part)

    visit_FunctionDef = visit_AsyncFunctionDef = _function  # noqa: N815


def _is_harmless(call: ast.Call) -> bool:
    function = call.func
    return (
        isinstance(function, ast.Attribute)
        and isinstance(function.value, ast.Name)
        and function.value.id in HARMLESS_RECEIVERS
    )


KINDS: Sequence[str] = ("comparison", "condition", "sign", "call")


def sites_in(path: str, source: bytes) -> list[Site]:
    """All places of a file."""
    finder = _Finder(path, source)
    finder.visit(ast.parse(source))
    return finder.found


def _all_sites(root: Path, wanted: Callable[[str], bool]) -> Iterator[Site]:
    for path in sorted(root.rglob("*.py")):
        name = str(path.relative_to(root))
        if wanted(name):
            yield from sites_in(name, path.read_bytes())


def sample(root: Path, wanted: Callable[[str], bool], seed: int, count: int) -> list[Site]:
    """So many places, of each kind as many; the same for the same seed and tree."""
    chance = random.Random(seed)
    by_kind: dict[str, list[Site]] = {kind: [] for kind in KINDS}
    for site in _all_sites(root, wanted):
        by_kind[site.kind].append(site)
    for sites in by_kind.values():
        chance.shuffle(sites)
    chosen: list[Site] = []
    while len(chosen) < count and any(by_kind.values()):
        for kind in KINDS:
            if by_kind[kind] and len(chosen) < count:
                chosen.append(by_kind[kind].pop())
    return chosen
