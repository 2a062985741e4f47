"""SIGTERM and SIGHUP, which end a command as Ctrl-C does."""

from __future__ import annotations

import os
import signal

__all__ = ["INTERRUPTED", "end_by_signals", "ends_by_signal", "exit_code_after"]

INTERRUPTED = 130
_SIGNALS = (signal.SIGTERM, signal.SIGHUP)

_came: list[int] = []
"""The signal that ends this process."""


def end_by_signals() -> None:
    """From now on, let SIGTERM and SIGHUP end this process as Ctrl-C does, with exit code 143 or
    129: what is under way, such as a move of topics' metadata, comes to an orderly end. A second
    one ends it at once. Call it in the main thread. A signal that has a handler keeps it, and one
    that is ignored, as under ``nohup``, stays ignored.
    """
    for each in _SIGNALS:
        if signal.getsignal(each) is signal.SIG_DFL:
            signal.signal(each, _interrupt)


def ends_by_signal() -> bool:
    """Whether such a signal has come: a shell executes no further command then."""
    return bool(_came)


def exit_code_after(code: int) -> int:
    """The exit code of this process, by that of its command: of one that a signal has interrupted
    it names the signal, as a shell does.
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
