"""A copy of the tree, in which faults are planted and tests run."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .judging import CHOSEN, ENDED
from .reached import REACHED

__all__ = ["Run", "Tree"]

ROOT = Path(__file__).parents[2]

SERVERLESS = "not servers and not thorough and not kafka and not drivers and not larger"


@dataclass
class Run:
    """How tests ended."""

    code: int
    """The exit code of pytest."""

    tests: dict[str, tuple[str, float]]
    """How each test ended, and how many seconds it took."""

    written: str
    """What pytest wrote."""


class Tree:
    """The copy: what git knows or would add, as it is now.

    Args:
        folder: an empty folder for the copy and for what its tests write.
        test_s_max: how long a test may take; then it fails.
    """

    def __init__(self, folder: Path, test_s_max: int) -> None:
        self.root = folder / "tree"
        self.reached = folder / "reached"
        """What the probes write."""
        self._folder = folder
        self._test_s_max = test_s_max
        self._changes = 0
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT, check=True, capture_output=True,
        ).stdout  # fmt: skip
        for name in filter(None, listed.decode().split("\0")):
            origin = ROOT / name
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            if origin.is_symlink() or origin.is_file():
                shutil.copy2(origin, self.root / name, follow_symlinks=False)

    def write(self, path: str, source: bytes) -> None:
        """Change a file. Its time of change is new, too: Python compiles it again."""
        self._changes += 1
        (self.root / path).write_bytes(source)
        os.utime(self.root / path, (self._changes, self._changes))

    def environment(self) -> dict[str, str]:
        """That of a program that runs over the copy."""
        folders = (self.root, self.root / "workers", self.root / "spark")
        inherited = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        return {
            **inherited,
            "PYTHONPATH": os.pathsep.join(map(str, folders)),
            "PYTHONPYCACHEPREFIX": str(self._folder / "compiled"),
        }

    def run(self, tests: Sequence[str], seconds: float, *options: str) -> Run | None:
        """Run these tests in their order, or all; ``None`` if they take longer than that."""
        chosen, ended = self._folder / "chosen.json", self._folder / "ended.json"
        chosen.write_text(json.dumps(tests))
        ended.unlink(missing_ok=True)
        files = dict.fromkeys(test.partition("::")[0] for test in tests)
        command = [
            sys.executable, "-m", "pytest", "--quiet", "-p", "no:cacheprovider",
            "-p", "tests.mutants.judging", "-m", SERVERLESS, "--timeout", str(self._test_s_max),
            "--hypothesis-seed", "0", *options, *files,
        ]  # fmt: skip
        environment = {
            **self.environment(),
            CHOSEN: str(chosen),
            ENDED: str(ended),
            REACHED: str(self.reached),
        }
        process = subprocess.Popen(
            command, cwd=self.root, env=environment, text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            written, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            _kill(process)
        found = json.loads(ended.read_text()) if ended.exists() else {}
        return Run(process.returncode, {name: tuple(how) for name, how in found.items()}, written)


def _kill(process: subprocess.Popen[str]) -> None:
    """End the tests, and all that they started and left in their group."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # All have ended.
    process.wait()
