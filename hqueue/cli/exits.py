"""Exit codes, and messages on stderr."""

from __future__ import annotations

import enum
import sys
import traceback

from hqueue.errors import (
    BufferFullError,
    CorruptLogError,
    HQueueError,
    HubUnavailableError,
    InvalidInputError,
    Outcome,
    SettingsError,
    StoreUnavailableError,
)
from hqueue.runtime.causes import causes

__all__ = [
    "EXIT_CODES_TEXT",
    "ExitCode",
    "OutputError",
    "exit_code_of",
    "is_caused_by_interrupt",
    "say",
    "show_error",
]


class ExitCode(enum.IntEnum):
    """What the exit codes mean; the table is in `hqueue.cli`."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    UNAVAILABLE = 3
    OUTCOME_UNKNOWN = 4
    CORRUPT = 5
    INTERRUPTED = 130
    PIPE_CLOSED = 141


# Paragraphs: the help's layout joins the lines of one.
EXIT_CODES_TEXT = """Exit codes: 0 done; 1 refused or failed; 2 wrong usage or input; 3 HBase,
ZooKeeper or a hub is not available, nothing was applied; 4 the outcome is unknown, it may have been
applied; 5 the log is corrupt; 130 interrupted by Ctrl-C (129: by SIGHUP; 143: by SIGTERM); 141 the
reader of stdout went away.

Data goes to stdout, everything else to stderr."""


class OutputError(HQueueError):
    """Stdout could not be written to. What was read from the queue is not lost."""

    default_outcome = Outcome.NOT_APPLIED


def exit_code_of(error: HQueueError) -> ExitCode:
    """The exit code for an error that ends a command."""
    if error.outcome is Outcome.UNKNOWN:
        return ExitCode.OUTCOME_UNKNOWN
    if isinstance(error, (InvalidInputError, SettingsError)):
        return ExitCode.USAGE
    if isinstance(error, (StoreUnavailableError, HubUnavailableError, BufferFullError)):
        return ExitCode.UNAVAILABLE
    if isinstance(error, CorruptLogError):
        return ExitCode.CORRUPT
    return ExitCode.FAILED


def is_caused_by_interrupt(error: BaseException) -> bool:
    """Whether an interruption caused it: up to Python 3.11 one that comes while a class is made is
    raised as an error of the class.
    """
    return any(isinstance(each, KeyboardInterrupt) for each in causes(error))


def say(text: str) -> None:
    """Write a message for people to stderr, since stdout is for data."""
    print(text, file=sys.stderr)


def show_error(error: HQueueError, *, verbose: bool = False) -> None:
    """Write an error to stderr: its text and facts, those of several lines below it."""
    long = {k: v for k, v in error.facts.items() if isinstance(v, str) and "\n" in v}
    short = {k: v for k, v in error.facts.items() if k not in long}
    if error.outcome is Outcome.UNKNOWN:
        short["outcome"] = error.outcome.value
    listed = ", ".join(f"{key}={_shown(value)}" for key, value in short.items())
    lines = [f"hqueue: error: {error.text}" + (f" [{listed}]" if listed else "")]
    for key, value in long.items():
        lines += [f"{key}:", *(f"    {line}" for line in str(value).splitlines())]
    say("\n".join(lines))
    if verbose:
        traceback.print_exception(error, file=sys.stderr)


def _shown(value: object) -> str:
    return repr(value) if isinstance(value, (str, bytes)) else str(value)
