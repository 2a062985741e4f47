"""The command line: ``hqueue``.

Data goes to stdout, everything else to stderr. The exit code says what became of the command:

    ====  =====================================================================================
    code  meaning
    ====  =====================================================================================
    0     done
    1     refused or failed, nothing is open: a queue in the wrong state, an answer of HBase's,
          a clock that is off, a local server that did not start, a demo whose check failed
    2     wrong usage or input: nothing was sent, or as much as the message says
    3     HBase, ZooKeeper or a hub was not available, and the operation is not applied
    4     the outcome is unknown: the operation may have been applied, or may be yet
    5     the log is corrupt, or of a format that this release does not know
    130   interrupted (Ctrl-C)
    141   the reader of stdout went away, as in ``hqueue scan q | head``
    ====  =====================================================================================
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from hqueue.cli.streams import complete_streams
from hqueue.runtime.extras import installing

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, this process's own if none is given; its exit code."""
    complete_streams()
    try:
        try:
            from hqueue.cli.app import main as run  # noqa: PLC0415  (an extra)
        except ModuleNotFoundError as exc:
            if (exc.name or "hqueue").startswith("hqueue"):
                raise
            print(f"hqueue: error: commands need more: {installing('cli')}", file=sys.stderr)
            return 2
        return run(arguments)
    except KeyboardInterrupt:  # While modules are loaded, or a connection is closed.
        return 130
