"""A job as a program, for ``spark-submit`` and ``python -m``: it is the command of that name."""

from __future__ import annotations

import sys
from typing import NoReturn

from hqueue.cli import main as command_line

__all__ = ["main"]


def main(name: str) -> NoReturn:
    """Run ``hqueue pipeline NAME`` with this process's arguments, and end with its exit code.

    The connection's settings come from where `hqueue.connect` finds them.
    """
    sys.exit(command_line(["pipeline", name, *sys.argv[1:]]))
