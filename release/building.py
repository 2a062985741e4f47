"""Builds the sdist and the wheel of a commit, so that the same commit gives the same bytes.

What would differ is fixed: times are that of the commit, modes do not depend on the umask, and no
owner is named. setuptools does so for wheels alone, so an sdist is packed again.
"""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

__all__ = [
    "Built",
    "build_by_sdist",
    "build_directly",
    "check_out",
    "commit_time",
    "commit_to_release",
]

UMASK = 0o022
BUILD_TIMEOUT_S = 600
FILE_MODE, PROGRAM_MODE = 0o644, 0o755


class Built(NamedTuple):
    """The files of one build."""

    sdist: Path
    wheel: Path


def commit_time(source: Path) -> int:
    """When the commit in this clone was made, in seconds since 1970."""
    return int(_git(source, "show", "--no-patch", "--format=%ct", "HEAD"))


def commit_to_release(repository: Path) -> str:
    """The commit that is checked out in a repository.

    Raises:
        SystemExit: the repository has changes that are not committed.
    """
    changed = _git(repository, "status", "--porcelain")
    if changed:
        sys.exit(f"commit these changes, or undo them: a release is of a commit:\n{changed}")
    return _git(repository, "rev-parse", "HEAD")


def check_out(repository: Path, commit: str, target: Path) -> Path:
    """Clone a commit of a repository, with its tags, whatever is checked out there by now."""
    # No hard links: nothing that happens to the repository meanwhile changes the clone.
    _git(repository, "clone", "--quiet", "--no-local", "--no-checkout", ".", str(target))
    _git(target, "checkout", "--quiet", "--detach", commit)
    return target


def build_by_sdist(source: Path, folder: Path, epoch: int) -> Built:
    """Build the sdist of a clone, and the wheel from what is in this sdist, as pip would do it."""
    sdist = _sdist(source, folder, epoch, {"TZ": "UTC", "PYTHONHASHSEED": "1"})
    unpacked = folder / "unpacked"
    with tarfile.open(sdist) as archive:
        archive.extractall(unpacked, filter="data")
    (top,) = unpacked.iterdir()
    return Built(sdist, _wheel(top, folder, epoch, {"TZ": "UTC", "PYTHONHASHSEED": "1"}))


def build_directly(source: Path, folder: Path, epoch: int) -> Built:
    """Build both from a clone, in another time zone and with another order of sets."""
    other = {"TZ": "Pacific/Kiritimati", "PYTHONHASHSEED": "2"}
    return Built(_sdist(source, folder, epoch, other), _wheel(source, folder, epoch, other))


def _sdist(source: Path, folder: Path, epoch: int, environ: Mapping[str, str]) -> Path:
    _build("--sdist", source, folder, epoch, environ)
    (found,) = folder.glob("*.tar.gz")
    _pack_again(found, epoch)
    return found


def _wheel(source: Path, folder: Path, epoch: int, environ: Mapping[str, str]) -> Path:
    _build("--wheel", source, folder, epoch, environ)
    (found,) = folder.glob("*.whl")
    return found


def _build(kind: str, source: Path, folder: Path, epoch: int, environ: Mapping[str, str]) -> None:
    """Build with the packages that are installed here: constraints.txt has their versions."""
    built = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", kind, "--outdir", folder, source],
        env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch), **environ},
        umask=UMASK,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    if built.returncode:
        sys.exit(f"the build failed:\n{built.stdout}")


def _pack_again(sdist: Path, epoch: int) -> None:
    """Write the same files in the order of their names, with one time, without owners."""
    packed = sdist.with_suffix(".again")
    with (
        tarfile.open(sdist) as old,
        packed.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=epoch) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda each: each.name):
            member.mtime, member.pax_headers = epoch, {}
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            program = member.isdir() or member.mode & 0o100
            member.mode = PROGRAM_MODE if program else FILE_MODE
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    packed.replace(sdist)


def _git(folder: Path, *arguments: str) -> str:
    asked = subprocess.run(
        ["git", *arguments],
        cwd=folder,
        check=True,
        umask=UMASK,
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
    )
    return asked.stdout.strip()
