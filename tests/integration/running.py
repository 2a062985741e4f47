"""Processes of their own that use the library: the programs beside this file."""

from __future__ import annotations

import contextlib
import itertools
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType

__all__ = ["Program"]

FOLDER = Path(__file__).parent / "programs"


class Program:
    """A running program. It is ended with the block that it was started for.

    Args:
        name: its file, without the suffix.
        arguments: its arguments.
        environment: its environment.
    """

    def __init__(self, name: str, *arguments: object, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(FOLDER / f"{name}.py"), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=dict(environment),
        )

    def __enter__(self) -> Program:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()

    @property
    def pid(self) -> int:
        return self._process.pid

    def await_ready(self) -> None:
        """Wait until it says that it is ready."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line != "ready\n":
            _, errors = self._process.communicate(timeout=60)
            raise AssertionError(f"a program did not get ready: {line}{errors}")

    def begin(self) -> None:
        """Let it go on after it was ready."""
        assert self._process.stdin is not None
        self._process.stdin.write("begin\n")
        self._process.stdin.flush()

    def lines(self, number: int | None = None) -> Iterator[str]:
        """The next lines that it prints, as they come: so many, or all until its end."""
        assert self._process.stdout is not None
        for line in itertools.islice(self._process.stdout, number):
            yield line.rstrip("\n")

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Let it stand still for the block."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def result(self, timeout_s: float = 120) -> list[str]:
        """Wait for its end, and return the lines that it printed.

        Raises:
            AssertionError: it failed; its errors are in the text.
        """
        output, errors = self._process.communicate(timeout=timeout_s)
        assert self._process.returncode == 0, errors
        return output.splitlines()
