"""Drivers in processes of their own, which can be killed with all that they started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType

__all__ = ["Driver"]

PROGRAMS = Path(__file__).parent / "programs"


class Driver:
    """A running driver. It is killed at the end of its block, if it did not end.

    Args:
        log: where its output goes.
        command: what is run by this Python.
    """

    def __init__(self, log: Path, *command: str) -> None:
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, *command], stdout=output, stderr=output, start_new_session=True
            )

    @classmethod
    def of_program(cls, program: str, log: Path, /, **options: object) -> Driver:
        """Run a program of the tests, by its file's name without the suffix, with options."""
        return cls(log, str(PROGRAMS / f"{program}.py"), json.dumps(options))

    def __enter__(self) -> Driver:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def kill(self) -> None:
        """Kill it, its JVM and its Python workers (SIGKILL). When this returns they have ended."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def result(self, timeout_s: float = 180) -> bool:
        """Wait for its end; whether it did what it should."""
        return self._process.wait(timeout_s) == 0

    def was_killed(self, timeout_s: float = 180) -> bool:
        """Wait for its end; whether SIGKILL was that."""
        return self._process.wait(timeout_s) == -signal.SIGKILL

    def said(self) -> str:
        """The end of its output, for a test that failed."""
        return self._log.read_text(errors="replace")[-5_000:]
