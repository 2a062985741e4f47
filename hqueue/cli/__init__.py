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
    129   interrupted by SIGHUP
    130   interrupted (Ctrl-C)
    141   the reader of stdout went away, as in ``hqueue scan q | head``
    143   interrupted by SIGTERM
    ====  =====================================================================================
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys

from hqueue.cli.signals import INTERRUPTED, end_by_signals, exit_code_after

# What a command needs is loaded in `main`, where Ctrl-C is expected: before that it would end with
# a traceback.
# ruff: noqa: PLC0415

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["main"]

FAILED_TO_LOAD = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, this process's own if none is given; its exit code."""
    # Python's own handler raises. In the middle of an import, and at the end of the process, that
    # would be shown as a traceback: there a process that is a command ends at once.
    ends = arguments is None and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    code = INTERRUPTED
    # Ctrl-C raises here while modules are loaded, or a connection is closed.
    with contextlib.suppress(KeyboardInterrupt):
        if ends:
            signal.signal(signal.SIGINT, _end)
        run = _load()
        if run is None:
            return FAILED_TO_LOAD
        try:
            if ends:
                signal.signal(signal.SIGINT, signal.default_int_handler)
                end_by_signals()
            code = run(arguments)
        finally:
            if ends:
                signal.signal(signal.SIGINT, _end)
    return exit_code_after(code)


def _load() -> Callable[[Sequence[str] | None], int] | None:
    """What runs commands; None, with a line on stderr, if a package is not installed."""
    from hqueue.cli.streams import complete_streams

    complete_streams()
    try:
        from hqueue.cli.app import main as run  # An extra.
    except ModuleNotFoundError as exc:
        if (exc.name or "hqueue").startswith("hqueue"):
            raise
        from hqueue.runtime.extras import installing

        print(
            f"hqueue: error: a package that commands need is not installed: {installing('cli')}",
            file=sys.stderr,
        )
        return None
    return run


def _end(number: int, frame: object) -> None:
    os._exit(INTERRUPTED)
