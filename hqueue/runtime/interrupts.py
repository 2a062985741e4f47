"""Telling what a handler of a signal raised from what went wrong.

Handlers raise errors of any class in the middle of anything: a time limit may well be a
`TimeoutError`, which is an `OSError`. Code that takes an error for an answer of the system or of a
server asks here first, and lets those of handlers pass.
"""

from __future__ import annotations

import signal
import threading
from types import CodeType
from typing import TypeGuard

from hqueue.errors import HQueueError

__all__ = ["is_interruption", "is_own"]

WRAPPED_MAX = 8
"""How often a handler may be wrapped, and be recognised."""


def is_interruption(error: BaseException) -> bool:
    """Whether an error came out of a handler of a signal, or is not for anybody to catch."""
    if not isinstance(error, Exception):
        return True
    if threading.current_thread() is not threading.main_thread():
        return False  # Handlers run in the main thread.
    codes = {_code(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    traceback = error.__traceback__
    while codes and traceback is not None:
        if traceback.tb_frame.f_code in codes:
            return True
        traceback = traceback.tb_next
    return False


def is_own(error: BaseException) -> TypeGuard[HQueueError]:
    """Whether the library raised an error where it was doing its work: what it was doing is then as
    that left it. An `HQueueError` that a handler raised may have come between any two steps.
    """
    return isinstance(error, HQueueError) and not is_interruption(error)


def _code(handler: object) -> CodeType | None:
    """What runs when a handler is called, if that is written in Python: a function, one that is
    bound to an object or to arguments, or an object that can be called.
    """
    for _ in range(WRAPPED_MAX):
        if not callable(handler):  # `SIG_DFL` is an enum's member, whose class can be called.
            return None
        code = getattr(handler, "__code__", None)
        if isinstance(code, CodeType):
            return code
        wrapped = getattr(handler, "__func__", None) or getattr(handler, "func", None)
        handler = wrapped or getattr(type(handler), "__call__", None)  # noqa: B004
    return None
