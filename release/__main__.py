"""Builds a release of the commit that is checked out, into a folder:

    hqueue_hbase-VERSION.tar.gz             the sdist
    hqueue_hbase-VERSION-py3-none-any.whl   the wheel
    hqueue_hbase-VERSION.cdx.json           what an installation of EXTRAS consists of: CycloneDX
    SHA256SUMS

Sdist and wheel are built twice, in two places, and must be the same bytes; the wheel that the sdist
builds must be the one that the commit builds. `twine check` must accept both, and the installed
wheel must run. Nothing is uploaded, and there are no attestations yet.

    python -m release [--folder dist] [--without-sbom]
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from release.building import (
    Built,
    build_by_sdist,
    build_directly,
    check_out,
    commit_time,
    commit_to_release,
)

ROOT = Path(__file__).parents[1]
EXTRAS = "cli,worker"
"""What an image has: the SBOM lists the packages of such an installation."""

INSTALL_TIMEOUT_S = 900


def main() -> None:
    """Build a release, or end with an error that says what is wrong."""
    parser = argparse.ArgumentParser(prog="python -m release", description="Build a release.")
    parser.add_argument("--folder", type=Path, default=ROOT / "dist", help="default: dist")
    parser.add_argument(
        "--without-sbom",
        action="store_true",
        help="neither install the wheel nor list its packages: needs no index",
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hqueue-release-") as temporary:
        built = _build_twice(Path(temporary))
        _run(sys.executable, "-m", "twine", "check", "--strict", *map(str, built))
        options.folder.mkdir(parents=True, exist_ok=True)
        files = [Path(shutil.copy(path, options.folder)) for path in built]
        if not options.without_sbom:
            files.append(_describe(files[1], Path(temporary, "installed")))
    sums = "".join(f"{_sha256(path)}  {path.name}\n" for path in files)
    (options.folder / "SHA256SUMS").write_text(sums, encoding="utf-8")
    print(sums, end="")


def _build_twice(folder: Path) -> Built:
    """Build in two places, and compare."""
    places = [folder / "first", folder / "elsewhere" / "second"]
    for place in places:
        place.mkdir(parents=True)
    commit = commit_to_release(ROOT)
    sources = [check_out(ROOT, commit, place / "source") for place in places]
    epoch = commit_time(sources[0])
    first = build_by_sdist(sources[0], places[0], epoch)
    second = build_directly(sources[1], places[1], epoch)
    for one, other in zip(first, second, strict=True):
        if (one.name, _sha256(one)) != (other.name, _sha256(other)):
            kept = tempfile.mkdtemp(prefix="hqueue-release-differs-")
            for number, path in enumerate((one, other), 1):
                shutil.copy(path, Path(kept, f"{number}-{path.name}"))
            sys.exit(f"two builds of one commit differ: compare both files in {kept}")
    return first


def _describe(wheel: Path, environment: Path) -> Path:
    """Install the wheel, run it, and list what was installed."""
    _run(sys.executable, "-m", "venv", "--without-pip", str(environment))
    python = str(environment / "bin" / "python")
    pip = (sys.executable, "-m", "pip", "--python", python)
    _run(*pip, "install", "--quiet", "--constraint", "constraints.txt", f"{wheel}[{EXTRAS}]")
    _run(*pip, "check")
    _run(str(environment / "bin" / "hqueue"), "worker", "--help")
    name = "-".join(wheel.name.split("-")[:2])
    sbom = wheel.with_name(f"{name}.cdx.json")
    listing = ("cyclonedx_py", "environment", "--output-reproducible", "--output-file", str(sbom))
    _run(sys.executable, "-m", *listing, python)
    return sbom


def _run(*command: str) -> None:
    ended = subprocess.run(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=INSTALL_TIMEOUT_S,
        check=False,
    )
    if ended.returncode:
        sys.exit(f"this command failed: {' '.join(command)}\n{ended.stdout}")


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    main()
