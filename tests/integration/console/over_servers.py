"""A console over real servers, and the command line beside it."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
from collections.abc import Iterator, Mapping

import hqueue
from hqueue import local
from tests.acceptance.commands import DEADLINE_S, command
from tests.support.console import RunningConsole, running_console

__all__ = ["SHOWN_MS", "asked_by_the_command_line", "hasty_console"]

AWAY_MS = 8_000
"""So soon the console's connection gives up."""
SHOWN_MS = 90_000
"""Pages load again every five or ten seconds, and servers take their time to come back."""


@contextlib.contextmanager
def hasty_console(server: local.LocalServer) -> Iterator[RunningConsole]:
    """A console that soon says that servers are away, and may make changes."""
    hasty = server.settings(hbase="native", operation_timeout_ms=AWAY_MS)
    with (
        hqueue.connect(settings=hasty) as own,
        running_console(own, allow_changes=True) as running,
    ):
        yield running


def asked_by_the_command_line(environment: Mapping[str, str], *arguments: str) -> str:
    """The question that a command asks at a terminal. The answer is no."""
    master, slave = pty.openpty()
    try:
        os.write(master, b"n\n")
        done = subprocess.run(
            [*command(), *arguments],
            env=environment,
            stdin=slave,
            capture_output=True,
            timeout=DEADLINE_S,
            check=False,
            text=True,
        )
    finally:
        os.close(master)
        os.close(slave)
    question, answers, _ = done.stderr.partition(" [y/N]:")
    assert answers, done.stderr
    assert "Nothing was done." in done.stderr
    return question
