"""What isn't chosen isn't imported: which modules come with what a program uses."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import hqueue

FOREIGN = (
    "google.protobuf",
    "happybase",
    "kazoo",
    "pyarrow",
    "rich",
    "tenacity",
    "thriftpy2",
    "typer",
)
NATIVE = {"google.protobuf", "kazoo", "tenacity", "thriftpy2"}


def loaded_by(program: str) -> set[str]:
    """The modules that a new process has when it has run a program."""
    text = f"{program}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-I", "-c", text], capture_output=True, text=True, check=True, timeout=60
    )
    return set(json.loads(done.stdout))


def test_a_bare_import_loads_nothing_but_the_package() -> None:
    before = loaded_by("")
    more = loaded_by("import hqueue") - before
    assert {name for name in more if name.startswith("hqueue")} == {"hqueue"}
    assert more.isdisjoint(FOREIGN)


@pytest.mark.parametrize(
    ("program", "allowed"),
    [
        ("hqueue.HQueueError", set()),
        ("hqueue.Message", set()),
        ("hqueue.Settings", set()),
        ("hqueue.connect", {"tenacity"}),
        ("hqueue.connect(hubs='h:1').close()", {"tenacity", "thriftpy2"}),
        ("hqueue.connect(hbase='native').close()", NATIVE),
        (
            "hqueue.connect(gateways='h:1/2').close()",
            {"happybase", "kazoo", "tenacity", "thriftpy2"},
        ),
    ],
)
def test_what_is_used_brings_its_own_libraries_and_no_others(
    program: str, allowed: set[str]
) -> None:
    loaded = loaded_by(f"import hqueue\n{program}")
    assert loaded & set(FOREIGN) <= allowed
    assert "hqueue.cli" not in loaded


def test_each_public_name_is_that_of_its_module_for_type_checkers_and_for_programs() -> None:
    tree = ast.parse(Path(hqueue.__file__).read_text())
    checked = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hqueue.")
        for alias in node.names
    }
    assert checked == hqueue._WHERE  # type: ignore[attr-defined]
    assert set(hqueue.__all__) == {*checked, "__version__"}
    for name in hqueue.__all__:
        assert getattr(hqueue, name) is not None
    assert set(hqueue.__all__) <= set(dir(hqueue))
    with pytest.raises(AttributeError, match="no attribute 'Quue'"):
        hqueue.Quue  # type: ignore[attr-defined]  # noqa: B018
