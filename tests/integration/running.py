"""Processes of their own that use the library: the programs beside this file."""

from __future__ import annotations

import contextlib
import itertools
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType

__all__ = ["Program"]

FOLDER = Path(__file__).parent / "programs"
LINE_S = 120.0


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
        # Read as they come, by one reader: what one has buffered no other one would see.
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._errors: list[str] = []
        self._readers = [threading.Thread(target=each) for each in (self._read, self._read_errors)]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> Program:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._end(timeout_s=60)

    @property
    def pid(self) -> int:
        return self._process.pid

    def await_ready(self) -> None:
        """Wait until it says that it is ready."""
        line = self._next()
        if line != "ready":
            self._end(timeout_s=60)
            raise AssertionError(f"a program did not get ready: {line}{self._errors}")

    def begin(self) -> None:
        """Let it go on after it was ready."""
        assert self._process.stdin is not None
        self._process.stdin.write("begin\n")
        self._process.stdin.flush()

    def lines(self, number: int | None = None) -> Iterator[str]:
        """The next lines that it prints, as they come: so many, or all until its end."""
        for _ in itertools.count() if number is None else range(number):
            line = self._next()
            if line is None:
                break
            yield line

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
        self._end(timeout_s)
        assert self._process.returncode == 0, "".join(self._errors)
        return list(self.lines())

    def _next(self) -> str | None:
        """The next line; None at the end, which is met again and again."""
        line = self._lines.get(timeout=LINE_S)
        if line is None:
            self._lines.put(None)
        return line

    def _end(self, timeout_s: float) -> None:
        """Wait for its end, with nothing more to read for it."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait(timeout_s)
        for reader in self._readers:
            reader.join(timeout_s)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as errors:
            self._errors.extend(errors)
