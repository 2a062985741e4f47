"""What a user installs is complete."""

from __future__ import annotations

import email
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import hqueue
from hqueue.runtime.extras import DISTRIBUTION
from tests.acceptance.commands import command

ROOT = Path(__file__).parents[2]
PACKAGES = {"hqueue", "hqueue_workers", "pyspark_hqueue"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built without network from a copy of what git would commit."""
    source = tmp_path_factory.mktemp("source")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True,
    ).stdout  # fmt: skip
    for name in filter(None, listed.decode().split("\0")):
        origin, target = ROOT / name, source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if origin.is_symlink():
            target.symlink_to(origin.readlink())
        elif origin.exists():
            target.write_bytes(origin.read_bytes())
    return build(source, tmp_path_factory.mktemp("wheel"))


def build(source: Path, folder: Path) -> Path:
    """The wheel of a source tree, in that folder."""
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", str(folder), str(source)],
        check=True,
    )
    (found,) = folder.glob("*.whl")
    return found


@pytest.mark.thorough("builds a wheel")
def test_the_wheel_ships_every_module_and_data_file(wheel: Path) -> None:
    shipped = set(zipfile.ZipFile(wheel).namelist())
    wanted = {str(path.relative_to(ROOT)) for path in (ROOT / "hqueue").rglob("*.py")}
    for folder, package in (("workers", "hqueue_workers"), ("spark", "pyspark_hqueue")):
        base = ROOT / folder
        wanted |= {str(path.relative_to(base)) for path in (base / package).rglob("*.py")}
    wanted |= {f"{name}/py.typed" for name in PACKAGES} | {"hqueue/local/pom.xml"}
    wanted |= {f"hqueue/rpc/idl/{path.name}" for path in (ROOT / "thrift").glob("*.thrift")}
    console = ROOT / "workers" / "hqueue_workers" / "console"
    wanted |= {
        f"hqueue_workers/console/{path.relative_to(console)}"
        for folder in ("static", "templates")
        for path in (console / folder).iterdir()
    }
    assert wanted <= shipped


@pytest.mark.thorough("builds a wheel")
def test_the_wheel_ships_nothing_beside_its_packages(wheel: Path) -> None:
    top = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    packages = {name for name in top if not name.endswith(".dist-info")}
    assert packages == PACKAGES


@pytest.mark.thorough("builds a wheel")
def test_the_wheel_says_its_version_and_its_licence(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as shipped:
        (folder,) = {name.split("/")[0] for name in shipped.namelist() if ".dist-info/" in name}
        metadata = email.message_from_bytes(shipped.read(f"{folder}/METADATA"))
        licence = shipped.read(f"{folder}/licenses/LICENSE")
    assert metadata["Name"] == DISTRIBUTION
    # The copy has no git, as the build of an image.
    assert metadata["Version"] == "0.1.dev0"
    assert "Apache-2.0" in (metadata["License"], metadata["License-Expression"])
    assert licence == (ROOT / "LICENSE").read_bytes()


def test_the_command_says_the_version() -> None:
    shown = subprocess.run([*command(), "--version"], check=True, capture_output=True, text=True)
    assert shown.stdout == f"{hqueue.__version__}\n"


@pytest.mark.thorough("builds a wheel")
def test_only_the_extra_local_brings_what_starts_servers(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as shipped:
        (name,) = (name for name in shipped.namelist() if name.endswith("/METADATA"))
        metadata = email.message_from_bytes(shipped.read(name))
        assert not [name for name in shipped.namelist() if name.endswith((".jar", ".class"))]
    needing = {
        re.split(r"[<>=!;\s]", text)[0]: re.search(r"extra == \W(\w+)", text)
        for text in metadata.get_all("Requires-Dist", [])
    }
    servers = {"filelock", "psutil", "tomli-w"}
    assert {name for name, extra in needing.items() if extra and extra[1] == "local"} == servers
    always = {name for name, extra in needing.items() if extra is None}
    assert always.isdisjoint({*servers, "pyspark", "pyarrow", "typer", "prometheus_client"})
    assert "hqueue-hbase" not in always


@pytest.mark.thorough("builds a wheel")
def test_the_installed_wheel_finds_its_data(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = (
        "import hqueue, hqueue.hbase, hqueue.push, hqueue.local.jars as jars, pathlib\n"
        "assert pathlib.Path(hqueue.__file__).is_relative_to(pathlib.Path.cwd())\n"
        "assert (pathlib.Path(jars.__file__).parent / 'pom.xml').is_file()\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)


@pytest.mark.thorough("builds a wheel")
def test_spark_finds_the_data_source_of_an_installed_wheel(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = (
        "import pkgutil, importlib, sys\n"
        "found = [m for m in pkgutil.iter_modules(['.']) if m.name.startswith('pyspark_')]\n"
        "source = importlib.import_module(found[0].name).DefaultSource\n"
        "assert source.name() == 'hqueue'\n"
        "assert 'pyarrow' not in sys.modules and 'hqueue' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)


@pytest.mark.thorough("builds a wheel")
def test_the_container_file_copies_all_that_the_wheel_is_built_from(
    wheel: Path, tmp_path: Path
) -> None:
    text = (ROOT / "workers" / "deploy" / "Containerfile").read_text()
    source = tmp_path / "source"
    source.mkdir()
    for line in re.findall(r"^COPY (?!--from)(.+) /source", text, re.MULTILINE):
        for name in line.split():
            if (ROOT / name).is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(ROOT / name, source / name, ignore=ignored, symlinks=True)
            else:
                shutil.copy(ROOT / name, source / name)
    built = build(source, tmp_path / "wheel")
    assert set(zipfile.ZipFile(built).namelist()) == set(zipfile.ZipFile(wheel).namelist())
