"""The last release, in an environment of its own, from which processes of a run are upgraded.

``python -m tests.faults.versions FOLDER`` unpacks its files there, and `make` installs them.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

__all__ = ["LAST_RELEASE", "OLDER", "PRESENT", "Code", "NoOlderCodeError", "older_code", "unpack"]

LAST_RELEASE = "9d42acc69ee061406f9e66f5d5a6af7c23d0b999"
"""The commit from which an upgrade starts: a release's tag. 0.1.0 is not released yet, so this is
the last commit before snapshots, traces and the console were added."""

ROOT = Path(__file__).parents[2]
ENVIRONMENT = ROOT / ".venv-older"
"""Makefile has the rule."""

PYTHONS_OWN = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
ASKED = "import hqueue, hqueue_workers as w; print(hqueue.__file__, w.__file__, sep='\\n')"


class NoOlderCodeError(Exception):
    """The code of the last release can't be had here."""


@dataclasses.dataclass(frozen=True)
class Code:
    """The code that a process of a run uses.

    The programs of the suite are the present ones in any case. With the older code they are
    programs that were not upgraded together with the library.

    Args:
        python: the interpreter, of the environment that has the code.
        folder: where the interpreter is started; it finds the suite's programs there.
    """

    python: Path
    folder: Path

    def environment(self) -> Mapping[str, str]:
        """The environment's variables; those that lead to the present code are for it alone."""
        if self.folder == ROOT:
            return os.environ
        return {name: value for name, value in os.environ.items() if name not in PYTHONS_OWN}


PRESENT = Code(Path(sys.executable), ROOT)
OLDER = Code(ENVIRONMENT / "bin" / "python", ENVIRONMENT / "programs")


def older_code() -> Code:
    """The code of the last release, from its environment.

    Raises:
        NoOlderCodeError: the environment is missing, has another release, or Python finds other
            code there.
    """
    release = ENVIRONMENT / "release"
    if not (ENVIRONMENT / "installed").exists() or release.read_text().strip() != LAST_RELEASE:
        raise NoOlderCodeError(
            f"{ENVIRONMENT.name} does not have {LAST_RELEASE}: `make test-upgrades` and "
            f"`make {ENVIRONMENT.name}/installed` install it"
        )
    OLDER.folder.mkdir(exist_ok=True)
    if not (OLDER.folder / "tests").exists():
        (OLDER.folder / "tests").symlink_to(ROOT / "tests")
    found = subprocess.run(
        [OLDER.python, "-c", ASKED],
        cwd=OLDER.folder,
        env=OLDER.environment(),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout.split("\n")
    if not all(Path(path).is_relative_to(ENVIRONMENT / "lib") for path in found[:2]):
        raise NoOlderCodeError(f"Python in {ENVIRONMENT.name} finds other code: {found}")
    return OLDER


def unpack(folder: Path) -> None:
    """Put the files of the last release into a folder, and the release's commit beside the folder.

    Args:
        folder: a folder that does not exist yet.

    Raises:
        NoOlderCodeError: git does not have the commit.
    """
    has = subprocess.run(
        ["git", "cat-file", "-e", f"{LAST_RELEASE}^{{commit}}"],
        cwd=ROOT,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    if has.returncode != 0:
        raise NoOlderCodeError(
            f"git does not have {LAST_RELEASE}: clone the whole history, for example with "
            "`git fetch --unshallow`"
        )
    archive = ["git", "archive", "--format=tar", LAST_RELEASE]
    with (
        subprocess.Popen(archive, cwd=ROOT, stdout=subprocess.PIPE) as git,
        tarfile.open(fileobj=git.stdout, mode="r|") as files,
    ):
        files.extractall(folder, filter="data")
    if git.returncode != 0:
        raise NoOlderCodeError(f"git archive ended with {git.returncode}")
    (folder.parent / "release").write_text(f"{LAST_RELEASE}\n")


if __name__ == "__main__":
    try:
        unpack(Path(sys.argv[1]))
    except NoOlderCodeError as exc:
        sys.exit(str(exc))
