"""Interrupting the main thread as a handler of a signal does, at every place where it may."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import hqueue

__all__ = ["Interrupted", "each_interruption"]

_HERE = str(Path(hqueue.__file__).parent)
_FREEING = ("weakref.py", "_weakrefset.py", "forgotten.py")
_WAITS = ("acquire", "sendmsg", "sendall", "send", "recv", "recv_into", "poll", "connect", "sleep")


class Interrupted(TimeoutError):  # noqa: N818  (what programs call theirs)
    """What the handler raises: a time limit's error, which is an `OSError`."""


def _handle(number: int, frame: FrameType | None) -> None:
    raise Interrupted(f"signal {number}")


class _Point:
    """Calls the handler at the n-th place at which CPython may.

    It does so after a call of what is written in C, where a function written in Python begins, and
    in what waits. Calls that code of the library makes count, and what they wait in; what other
    libraries do within themselves does not.
    """

    def __init__(self, number: int) -> None:
        self.left = number
        self.where = ""

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "c_call":
            counts = argument.__name__ in _WAITS and _is_ours(frame, callers=3)
        elif event == "c_return":
            counts = _is_ours(frame)
        else:
            counts = event == "call" and _is_ours(frame, callers=1)
        if not counts or _is_freeing(frame):
            return
        self.left -= 1
        if not self.left:
            name = getattr(argument, "__name__", "")
            code = frame.f_code
            self.where = f"{event} {name} in {code.co_name}, {code.co_filename}:{frame.f_lineno}"
            sys.setprofile(None)
            _handle(signal.SIGALRM, frame)


def _is_ours(frame: FrameType | None, callers: int = 0) -> bool:
    """Whether code of the library runs, or is among so many callers."""
    for _ in range(1 + callers):
        if frame is not None and frame.f_code.co_filename.startswith(_HERE):
            return True
        frame = None if frame is None else frame.f_back
    return False


def _is_freeing(frame: FrameType | None) -> bool:
    """Whether this runs because something is freed: Python reports its error, and goes on."""
    for _ in range(4):
        if frame is not None:
            code = frame.f_code
            if code.co_name == "<genexpr>" or code.co_filename.endswith(_FREEING):
                return True
            frame = frame.f_back
    return False


@contextlib.contextmanager
def _handled() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, _handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before)


def each_interruption(call: Callable[[], object], *, every: int = 1) -> Iterator[str]:
    """Call something again and again, and interrupt it at its first place, at its second and so on,
    until it is done without; where each interruption was, for a test to look what it left behind.

    Args:
        call: what is interrupted. It may take another way each time.
        every: only each n-th place.
    """
    with _handled():
        number = 1
        while True:
            point = _Point(number)
            try:
                sys.setprofile(point)
                call()
            except Interrupted:
                assert point.where
            finally:
                sys.setprofile(None)
            if not point.where:
                return
            yield point.where
            number += every
