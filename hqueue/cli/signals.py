"""Lets SIGTERM and SIGHUP end a command as Ctrl-C does."""

from __future__ import annotations

import os
import signal

__all__ = ["INTERRUPTED", "end_by_signals", "ends_by_signal", "exit_code_after"]

INTERRUPTED = 130
_SIGNALS = (signal.SIGTERM, signal.SIGHUP)

_came: list[int] = []
"""The signals that came. The first one decides the exit code."""


def end_by_signals() -> None:
    """Let SIGTERM and SIGHUP end this process as Ctrl-C does, with exit code 143 or 129: work that
    is under way, such as a move of topics' metadata, is ended cleanly. A second signal ends the
    process at once. Call this in the main thread. A signal that has a handler keeps it, and one
    that is ignored, as under ``nohup``, stays ignored.
    """
    for each in _SIGNALS:
        if signal.getsignal(each) is signal.SIG_DFL:
            signal.signal(each, _interrupt)


def ends_by_signal() -> bool:
    """Whether SIGTERM or SIGHUP has come. If so, ``hqueue shell`` executes no further command."""
    return bool(_came)


def exit_code_after(code: int) -> int:
    """The exit code of this process, given that of its command. If a signal has interrupted the
    command, the exit code names the signal, as shells do.
    """
    return 128 + _came[0] if _came and code == INTERRUPTED else code


def _interrupt(number: int, _frame: object) -> None:
    _came.append(number)
    for each in _SIGNALS:
        if signal.getsignal(each) is _interrupt:
            signal.signal(each, _end)
    raise KeyboardInterrupt


def _end(number: int, _frame: object) -> None:
    os._exit(128 + number)
