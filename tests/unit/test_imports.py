"""What isn't chosen isn't imported: which modules come with what a program uses."""

from __future__ import annotations

import ast
import configparser
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import hqueue
from hqueue.cli.app import app

FOREIGN = (
    "google.protobuf",
    "happybase",
    "kazoo",
    "pyarrow",
    "rich",
    "thriftpy2",
    "typer",
)
NATIVE = {"google.protobuf", "kazoo", "thriftpy2"}


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
        ("hqueue.connect", set()),
        ("hqueue.connect_hubs('h:1').close()", {"thriftpy2"}),
        ("hqueue.connect(hbase='native').close()", NATIVE),
        (
            "hqueue.connect(gateways='h:1/2').close()",
            {"happybase", "kazoo", "thriftpy2"},
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
    assert set(hqueue.__all__) == {*checked}
    for name, module in checked.items():
        assert getattr(hqueue, name) is getattr(importlib.import_module(module), name)
    assert set(hqueue.__all__) <= set(dir(hqueue))
    with pytest.raises(AttributeError, match="no attribute 'Quue'"):
        hqueue.Quue  # type: ignore[attr-defined]  # noqa: B018


FRAME = {
    "hqueue",
    "hqueue.errors",
    *(
        f"hqueue.runtime{module}"
        for module in (
            *("", ".causes", ".extras", ".fork", ".interrupts", ".logs", ".threads", ".waiting"),
        )
    ),
    *(
        f"hqueue.cli{module}"
        for module in (
            *("", ".app", ".exits", ".loading", ".output", ".registering", ".session", ".streams"),
            *(".setting_options", ".signals"),
        )
    ),
    *(
        f"hqueue.settings{module}"
        for module in (
            *("", ".addresses", ".attributes", ".connection", ".fields", ".kinds", ".kubernetes"),
            *(".limits", ".loading", ".names", ".numbers", ".port_security", ".security"),
            ".zookeeper_security",
        )
    ),
}
"""What each command is run by; settings, for its own options are those of a connection."""


def run_command(*arguments: str) -> str:
    """A program that runs a command, where nothing listens."""
    given = ["--zookeeper", "127.0.0.1:1", "--operation-timeout-ms", "100", *arguments]
    return (
        "import contextlib, io, os\n"
        "from hqueue.cli import main\n"
        "with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())):\n"
        f"    code = main({given})\n"
    )


def test_the_version_is_shown_without_loading_any_command() -> None:
    loaded = loaded_by(run_command("--version"))
    assert {name for name in loaded if name.startswith("hqueue")} == {
        *FRAME,
        "hqueue.runtime.version",
    }
    assert loaded & set(FOREIGN) == {"typer"}


OTHER_ROLES = {
    *("hqueue_workers", "pyspark", "pyspark_hqueue", "prometheus_client"),
    *("hqueue.topics", "hqueue.consumer", "hqueue.local", "hqueue.hbase.thrift"),
    *("happybase", "pyarrow", "prompt_toolkit"),
}


@pytest.mark.parametrize(
    ("arguments", "own"),
    [
        (("put", "q", "-t", "t", "v"), set()),
        (("list",), set()),
        (("scan", "q"), set()),
        (("publish", "t", "v", "-q", "q", "--hubs", "127.0.0.1:1"), {"hqueue.topics"}),
        (("local", "status"), {"hqueue.local", "happybase"}),
    ],
    ids=lambda given: given[0] if isinstance(given, tuple) else "",
)
def test_a_command_loads_its_own_role_and_no_other(
    arguments: tuple[str, ...], own: set[str]
) -> None:
    assert loaded_by(run_command(*arguments)) & OTHER_ROLES == own


def test_each_command_is_found_by_the_name_of_an_entry_point() -> None:
    root = typer.main.get_command(app)
    declared = configparser.ConfigParser()
    declared.read(Path(hqueue.__file__).parents[1] / "setup.cfg", "utf-8")
    points = declared["options.entry_points"]["hqueue.commands"].split("\n")
    named = {point.partition("=")[0].strip() for point in points if point}
    assert {*root.commands} == named | {"help"}  # type: ignore[attr-defined]
