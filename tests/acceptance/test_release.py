"""A release: what is built, what it installs, and that this runs. `make test-release`."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from hqueue.local import LocalServer

pytestmark = pytest.mark.release

ROOT = Path(__file__).parents[2]
BUILD_TIMEOUT_S = 500


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make release` leaves: it needs a clone without changes."""
    folder = tmp_path_factory.mktemp("dist")
    ended = subprocess.run(
        [sys.executable, "-m", "release", "--folder", folder],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return folder


@pytest.fixture(scope="module")
def installed(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that has the wheel, with the extra `cli` alone."""
    environment = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    (wheel,) = folder.glob("*.whl")
    pip = [environment / "bin" / "pip", "install", "--quiet"]
    subprocess.run(
        [*pip, "--constraint", ROOT / "constraints.txt", f"{wheel}[cli]"],
        check=True,
        timeout=BUILD_TIMEOUT_S,
    )
    return environment / "bin"


def run(command: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    # Not in the clone, whose modules Python would find there.
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HQUEUE_")}
    return subprocess.run(
        [command, *arguments],
        cwd=command.parent,
        env={**clean, **environ},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_sums_are_those_of_the_files(folder: Path) -> None:
    lines = (folder / "SHA256SUMS").read_text().splitlines()
    listed = {name: digest for digest, name in (line.split() for line in lines)}
    assert set(listed) == {path.name for path in folder.iterdir()} - {"SHA256SUMS"}
    assert len(listed) == 3
    for name, digest in listed.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest


def test_all_times_are_that_of_the_commit(folder: Path) -> None:
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        members = archive.getmembers()
    assert len({member.mtime for member in members}) == 1
    assert {(member.uid, member.uname) for member in members} == {(0, "")}
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as shipped:
        assert len({each.date_time for each in shipped.infolist()}) == 1


def test_the_sbom_lists_the_wheel_and_what_it_needs(folder: Path) -> None:
    (sbom,) = folder.glob("*.cdx.json")
    document = json.loads(sbom.read_text())
    assert document["bomFormat"] == "CycloneDX"
    names = {each["name"] for each in document["components"]}
    assert {"hqueue-hbase", "kazoo", "thriftpy2", "typer", "prometheus_client"} <= names
    assert names.isdisjoint({"pyspark", "psutil", "pytest"})


def test_the_installed_package_comes_without_what_starts_servers(installed: Path) -> None:
    shown = run(installed / "hqueue", "--help")
    assert shown.returncode == 0
    assert "Not installed" in shown.stdout
    for name, extra in (("local", "local"), ("worker", "worker"), ("pipeline", "spark")):
        ended = run(installed / "hqueue", name, "--help")
        assert ended.returncode == 2
        assert f"pip install 'hqueue-hbase[{extra}]'" in ended.stderr
        assert len(ended.stderr.splitlines()) == 1


def test_the_installed_command_puts_and_scans_on_a_real_server(
    installed: Path, server: LocalServer
) -> None:
    home = {"HQUEUE_LOCAL_HOME": str(server.home)}
    queue = f"released{os.getpid()}"
    hqueue = installed / "hqueue"
    for arguments in (
        ("create", queue, "--partitions", "2"),
        ("put", queue, "--topic", "t", "hello", "there"),
    ):
        ended = run(hqueue, *arguments, **home)
        assert ended.returncode == 0, ended.stderr
    shown = run(hqueue, "scan", queue, "--format", "json", **home)
    assert shown.returncode == 0, shown.stderr
    found = sorted(json.loads(line)["value"] for line in shown.stdout.splitlines())
    assert found == ["hello", "there"]
