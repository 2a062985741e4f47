"""What tests know of the library's inside: each file's count can only fall.

A test that reaches into another object, or replaces a part of a module, makes that part dear to
change. A test uses what a user of the module has: its result, its log line, its arguments and
properties, or a double that it hands over. What is left is counted in `tests/golden/insides.txt`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).parent
LEFT = TESTS.parent / "golden" / "insides.txt"
OURS = ("hqueue", "tests")

PUBLIC = {"_asdict", "_exit", "_fields", "_make", "_replace"}
"""Public, whatever their names are: of named tuples, and of `os`."""
FOREIGN = {"_log_destroy_pending", "_recv", "_send", "_seqid", "_set_running_loop"}
"""Of asyncio and of thriftpy2's clients."""


class Insides(NamedTuple):
    """What a file of tests knows of the library's inside."""

    accesses: int = 0
    """To private attributes of other objects."""
    replaced: int = 0
    """Parts of the library that a test replaces by `setattr`."""


def insides_of(source: str) -> Insides:
    tree = ast.parse(source)
    foreign = set(_foreign_imports(tree))
    accesses = replaced = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            accesses += _is_private(node) and _root_of(node) not in foreign
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            replaced += node.func.attr == "setattr" and _is_ours(node.args[0], foreign)
    return Insides(accesses, replaced)


def _foreign_imports(tree: ast.Module) -> Iterator[str]:
    """The names of what is imported that is not the library's."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                if not each.name.startswith(OURS):
                    yield each.asname or each.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom) and not (node.module or "").startswith(OURS):
            yield from (each.asname or each.name for each in node.names)


def _is_private(node: ast.Attribute) -> bool:
    if not node.attr.startswith("_") or node.attr.startswith("__"):
        return False
    of = node.value
    is_own = isinstance(of, ast.Name) and of.id in ("self", "cls")
    is_base = isinstance(of, ast.Call) and ast.unparse(of.func) == "super"
    return not is_own and not is_base and node.attr not in PUBLIC | FOREIGN


def _is_ours(target: ast.expr, foreign: set[str]) -> bool:
    """Whether what is replaced may be the library's: a module, a class, or an object of it."""
    if isinstance(target, ast.Constant):
        return str(target.value).startswith(OURS)
    return _root_of(target) not in foreign


def _root_of(node: ast.expr) -> str:
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def found() -> dict[str, Insides]:
    files = {str(path.relative_to(TESTS)): path for path in sorted(TESTS.rglob("*.py"))}
    insides = {name: insides_of(path.read_text()) for name, path in files.items()}
    return {name: each for name, each in insides.items() if any(each)}


def left() -> dict[str, Insides]:
    lines = [line.split() for line in LEFT.read_text().splitlines() if not line.startswith("#")]
    return {name: Insides(int(accesses), int(replaced)) for name, accesses, replaced in lines}


def test_no_test_knows_more_of_the_inside_than_it_did() -> None:
    known = left()
    none = Insides()
    more = {
        name: each
        for name, each in found().items()
        if each.accesses > known.get(name, none).accesses
        or each.replaced > known.get(name, none).replaced
    }
    assert not more, "use what the module's users have, or pass a double as an argument"


def test_what_is_looked_for_is_found() -> None:
    source = (
        "import threading\n"
        "from hqueue.produce import appending\n"
        "def test(monkeypatch, queue):\n"
        "    queue._log.appender._port.close()\n"
        "    queue.description._replace(ttl=1)\n"
        "    threading._shutdown()\n"
        "    monkeypatch.setattr(threading.Thread, 'start', print)\n"
        "    monkeypatch.setattr(appending, 'compressed', print)\n"
        "    monkeypatch.setattr('hqueue.runtime.loop.RETRY_S', 1)\n"
        "    monkeypatch.setattr(queue.log, 'put', print)\n"
        "class Double(Base):\n"
        "    def __init__(self):\n"
        "        self._port = super()._port\n"
    )
    assert insides_of(source) == Insides(accesses=2, replaced=3)


if __name__ == "__main__":
    comments = [line for line in LEFT.read_text().splitlines() if line.startswith("#")]
    lines = [f"{name} {each.accesses} {each.replaced}" for name, each in found().items()]
    LEFT.write_text("\n".join([*comments, *lines]) + "\n")
