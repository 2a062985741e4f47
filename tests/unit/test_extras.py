"""What is needed without the extras: nothing of theirs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hqueue.runtime.extras import installing

ROOT = Path(__file__).parents[2]
COMMANDS = ("typer", "rich", "prompt_toolkit")
SERVER = ("psutil", "filelock", "tomli_w")
WORKER = ("prometheus_client",)
TRACES = ("opentelemetry",)
SPARK = ("pyspark", "pyarrow", "pandas", "py4j")
ALL = (*COMMANDS, *SERVER, *WORKER, *TRACES, *SPARK, "matplotlib")


def run(
    code: str, *missing: str, arguments: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Run a program where these modules can't be imported."""
    blocked = f"import sys\nsys.modules.update(dict.fromkeys({missing!r}))\n"
    return subprocess.run(
        [sys.executable, "-c", blocked + code, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def command(*arguments: str, missing: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """Run ``hqueue`` where these modules can't be imported."""
    code = "from hqueue.cli import main\nsys.exit(main())"
    return run(code, *missing, arguments=arguments)


def test_the_library_is_used_without_any_extra(tmp_path: Path) -> None:
    code = f"""
import os
os.environ.update(HQUEUE_LOCAL_HOME={str(tmp_path)!r})
import hqueue
with hqueue.connect(connect_timeout_ms=100):
    hqueue.Subscription("reader")
    hqueue.Message("topic", b"value")
ours = ("hqueue.cli.", "hqueue.local.")
assert not [name for name in sys.modules if f"{{name}}.".startswith(ours)]
"""
    ended = run(code, *ALL)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_running_local_server_is_found_without_any_extra(tmp_path: Path) -> None:
    (tmp_path / "connection.toml").write_text('gateways = ["there:1/2"]\n')
    code = f"""
import hqueue
settings = hqueue.Settings.load({{}}, {{"HQUEUE_LOCAL_HOME": {str(tmp_path)!r}}})
assert settings.gateways[0].host == "there", settings
"""
    ended = run(code, *ALL)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_every_module_of_the_library_is_imported_without_any_extra() -> None:
    names = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in sorted((ROOT / "hqueue").rglob("*.py"))
    ]
    needing = (
        "hqueue.__main__.", "hqueue.cli.", "hqueue.local.", "hqueue.consume.arrow.",
        "hqueue.format.arrow", "hqueue.metrics.families.",
        "hqueue.metrics.client.",
        "hqueue.metrics.work.", "hqueue.traces.propagation.", "hqueue.traces.spans.",
    )  # fmt: skip
    names = [name for name in names if not f"{name}.".startswith(needing)]
    assert {"hqueue.connecting", "hqueue.zookeeper.member"} <= set(names)
    ended = run(f"import importlib\nfor name in {names!r}: importlib.import_module(name)", *ALL)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_the_local_server_says_which_extra_it_needs() -> None:
    ended = run("import hqueue.local", *SERVER)
    assert ended.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: a package that hqueue.local needs is not installed: "
        + installing("local")
    )


@pytest.mark.parametrize("missing", [COMMANDS, ("typer",)])
def test_the_command_says_which_extra_it_needs(missing: tuple[str, ...]) -> None:
    ended = command("--help", missing=missing)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == (
        "hqueue: error: a package that commands need is not installed: "
        "pip install 'hqueue-hbase[cli]', or in a clone of HQueue '.[cli]'\n"
    )


@pytest.mark.thorough("processes that import all of it")
@pytest.mark.parametrize(
    ("name", "extra", "missing"),
    [
        ("worker", "worker", WORKER),
        ("pipeline", "spark", SPARK),
        ("local", "local", SERVER),
        ("demo", "local", ("psutil",)),
    ],
)
def test_a_command_whose_extra_is_missing_is_listed_and_says_so(
    name: str, extra: str, missing: tuple[str, ...]
) -> None:
    shown = command("--help", missing=missing)
    assert shown.returncode == 0
    assert f"{name} " in shown.stdout
    words = " ".join(shown.stdout.replace("│", " ").split())
    needs = f"needs is not installed: {installing(extra)}"
    assert f"A package that the command {needs}" in words
    for arguments in [(name,), (name, "--help"), (name, "some", "--option", "1")]:
        ended = command(*arguments, missing=missing)
        assert ended.returncode == 2
        assert ended.stderr.startswith(f"hqueue: error: a package that the command {needs}")
        assert len(ended.stderr.splitlines()) == 1
