"""Running the real command."""

from __future__ import annotations

import dataclasses
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

DEADLINE_S = 240.0


def command() -> list[str]:
    """The installed ``hqueue``; the package itself where it is not installed."""
    script = Path(sys.executable).with_name("hqueue")
    return [str(script)] if script.exists() else [sys.executable, "-m", "hqueue.cli"]


@dataclasses.dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    code: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.decode().splitlines()


class Running:
    """A command that runs, or another program; its stdout is read line by line."""

    def __init__(
        self,
        arguments: tuple[str, ...],
        environment: dict[str, str],
        program: Sequence[str] | None = None,
    ) -> None:
        self._process = subprocess.Popen(
            [*(program or command()), *arguments],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._lines: queue.Queue[bytes] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def line(self) -> str:
        """The next line of stdout, as soon as it is there."""
        return self._lines.get(timeout=DEADLINE_S).decode().rstrip("\n")

    def error_line(self) -> str:
        """The next line of stderr, as soon as it is there."""
        assert self._process.stderr is not None
        return self._process.stderr.readline().decode().rstrip("\n")

    def write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        self._process.stdin.flush()

    def interrupt(self) -> None:
        """What Ctrl-C does."""
        self._process.send_signal(signal.SIGINT)

    def terminate(self) -> None:
        """What a service manager does."""
        self.signal(signal.SIGTERM)

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self) -> Ended:
        """Close stdin and wait; what stdout had beyond the lines that were taken."""
        assert self._process.stdin is not None
        assert self._process.stderr is not None
        self._process.stdin.close()
        err = self._process.stderr.read().decode()
        code = self._process.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)
        rest = b"".join(self._lines.queue)
        return Ended(code, rest, err)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(DEADLINE_S)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)


Run = Callable[..., Ended]
Start = Callable[..., Running]


def run_installed(environment: dict[str, str]) -> Run:
    """What runs the installed command to its end, in a process of its own."""

    def run_command(
        *arguments: str | bytes, stdin: bytes = b"", env: dict[str, str] | None = None
    ) -> Ended:
        done = subprocess.run(
            [*command(), *arguments],
            env={**environment, **(env or {})},
            input=stdin,
            capture_output=True,
            timeout=DEADLINE_S,
            check=False,
        )
        err = done.stderr.decode()
        assert "Traceback" not in err, err
        return Ended(done.returncode, done.stdout, err)

    return run_command
