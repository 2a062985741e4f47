"""The versions of Python that this machine has, for what each of them does in its own way.

They are looked for as commands (``python3.12``), and among those that pyenv installed. Each gets an
environment of its own, made once by `make`, with what the library itself needs.

    python -m tests.support.pythons [3.12]
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["PRESENT", "environment_of", "versions"]

ROOT = Path(__file__).parents[2]
OLDEST = (3, 10)
MINORS_TO_LOOK_FOR = range(OLDEST[1], 30)
INSTALLING_S = 600
PRESENT = f"{sys.version_info[0]}.{sys.version_info[1]}"
"""The version that the tests run with. Its environment is theirs."""


@functools.cache
def versions() -> dict[str, Path]:
    """Every version from 3.10 on that is here, with its command; the present one among them."""
    found = {}
    for minor in MINORS_TO_LOOK_FOR:
        version = f"3.{minor}"
        named = shutil.which(f"python{version}")
        by_pyenv = sorted(Path(_pyenv_root(), "versions").glob(f"{version}.*/bin/python"))
        for command in [*([named] if named else []), *by_pyenv]:
            # A command of pyenv may stand for a version that isn't chosen here.
            if _version_of(Path(command)) == version:
                found[version] = Path(command)
                break
    found[PRESENT] = Path(sys.executable)
    return found


def environment_of(version: str) -> Path:
    """The command of this version that has the library; its environment is made if there is none.

    Raises:
        subprocess.CalledProcessError: it can't be made.
    """
    if version == PRESENT:
        return Path(sys.executable)
    folder = ROOT / f".venv-python-{version}"
    with _alone():
        subprocess.run(
            ["make", "--no-print-directory", f"{folder.name}/installed"],
            cwd=ROOT,
            check=True,
            timeout=INSTALLING_S,
            stdout=subprocess.DEVNULL,
        )
    return folder / "bin" / "python"


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Other processes of these tests may want the same, and installing leaves traces in the folder
    of the project meanwhile.
    """
    with Path(tempfile.gettempdir(), f"hqueue-pythons-{os.getuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _pyenv_root() -> str:
    if root := os.environ.get("PYENV_ROOT"):
        return root
    if shutil.which("pyenv"):
        asked = subprocess.run(["pyenv", "root"], capture_output=True, text=True, check=False)
        if asked.returncode == 0:
            return asked.stdout.strip()
    return str(Path.home() / ".pyenv")


def _version_of(command: Path) -> str | None:
    asked = subprocess.run(
        [command, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
        capture_output=True,
        text=True,
        check=False,
    )
    return asked.stdout.strip() if asked.returncode == 0 else None


if __name__ == "__main__":
    if len(sys.argv) == 2:
        print(versions().get(sys.argv[1]) or sys.exit(f"there is no Python {sys.argv[1]} here"))
    else:
        for each, command in versions().items():
            print(each, command)
