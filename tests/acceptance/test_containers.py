"""Container files and the compose file: they copy and install what exists, and run what is ours."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from hqueue import Settings
from hqueue.cli.app import app
from hqueue_workers.console.settings import ConsoleSettings
from hqueue_workers.hub.settings import HubSettings
from hqueue_workers.node.settings import WorkerSettings

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "deploy" / "compose" / "compose.yaml"
FILES = (
    ROOT / "workers" / "deploy" / "Containerfile",
    ROOT / "deploy" / "compose" / "Containerfile.hbase",
)
ROLES = {"worker": WorkerSettings, "hub": HubSettings, "console": ConsoleSettings}


def copied(file: Path) -> list[str]:
    """What a container file copies from the repository."""
    lines = re.findall(r"^COPY (?!--from)(.+) \S+$", file.read_text("utf-8"), re.MULTILINE)
    return [name for line in lines for name in line.split()]


def extras(file: Path) -> set[str]:
    (found,) = re.findall(r"'/source\[([\w,]+)\]'", file.read_text("utf-8"))
    return set(found.split(","))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_what_is_copied_and_installed_exists(file: Path) -> None:
    assert len(copied(file)) >= 9
    assert not [name for name in copied(file) if not (ROOT / name).exists()]
    declared = configparser.ConfigParser()
    declared.read(ROOT / "setup.cfg", "utf-8")
    assert extras(file) <= set(declared["options.extras_require"])


@pytest.mark.release
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_installation_of_an_image_works(file: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in copied(file):
        subprocess.run(["cp", "--recursive", "--no-dereference", ROOT / name, source], check=True)
    environment = tmp_path / "installed"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    wanted = f"{source}[{','.join(sorted(extras(file)))}]"
    constraint = ["--constraint", source / "constraints.txt"]
    subprocess.run(
        [environment / "bin" / "pip", "install", "--quiet", *constraint, wanted],
        env={**os.environ, "SETUPTOOLS_SCM_PRETEND_VERSION_FOR_HQUEUE_HBASE": "7.1.2"},
        check=True,
        timeout=500,
    )
    shown = subprocess.run(
        [environment / "bin" / "hqueue", "--version"], capture_output=True, text=True, check=True
    )
    assert shown.stdout == "7.1.2\n"
    for command in sorted({"worker", "hub", "console"} if "worker" in extras(file) else {"local"}):
        subprocess.run(
            [environment / "bin" / "hqueue", command, "--help"], check=True, capture_output=True
        )


def services() -> dict[str, Any]:
    import yaml  # noqa: PLC0415  (`make test-chart` installs it)

    found: dict[str, Any] = yaml.safe_load(COMPOSE.read_text("utf-8"))["services"]
    return found


@pytest.mark.chart
@pytest.mark.parametrize("name", ROLES)
def test_a_service_runs_a_command_of_ours_with_settings_of_ours(name: str, tmp_path: Path) -> None:
    service = services()[name]
    first, *rest = service["command"]
    root = typer.main.get_command(app)
    with root.make_context("hqueue", [first], resilient_parsing=True) as context:
        command = root.get_command(context, first)  # type: ignore[attr-defined]
        assert command is not None
        command.make_context(first, rest, parent=context)
    (tmp_path / "connection.toml").write_text('zookeeper = "127.0.0.1:1"\n')
    environ = {**service["environment"], "HQUEUE_LOCAL_HOME": str(tmp_path)}
    assert environ.pop("ROLE") == name
    assert Settings.load(None, environ).zookeeper == "127.0.0.1:1"
    ROLES[name].load(None, environ)


@pytest.mark.chart
def test_the_files_that_services_are_built_from_exist() -> None:
    for service in services().values():
        if build := service.get("build"):
            context = COMPOSE.parent / build["context"]
            assert (context / build["dockerfile"]).resolve() in FILES


@pytest.mark.chart
def test_what_a_service_serves_is_published_on_loopback_alone() -> None:
    found = services()
    published = [each.split(":") for each in found["hbase"]["ports"]]
    assert {host for host, _, _ in published} == {"127.0.0.1"}
    assert all(outside == inside for _, outside, inside in published)
    served: set[str] = set()
    for name, kind in ROLES.items():
        settings: Any = kind.load(None, {**found[name]["environment"], "HQUEUE_CONFIG": os.devnull})
        # A port on a container's own loopback can't be reached from outside.
        assert settings.metrics_host == "0.0.0.0"
        served.add(str(settings.metrics_port))
        if name != "worker":
            assert getattr(settings, "listen_host", settings.host) == "0.0.0.0"
            served.add(str(settings.port))
    assert {inside for _, _, inside in published} == served
