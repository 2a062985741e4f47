"""Interrupting the main thread as a handler of a signal does, at every place where it may.

There are two lists of places, each with a function that goes through it.

- `each_interruption`: after calls of what is written in C, at the beginnings of functions that are
  written in Python, and in what waits; each time that it is come to.
- `each_line`: each line that is run, at its beginning, and once more when it is run again, as in a
  loop. That covers the backward jumps of loops, and the further places at which CPython 3.10 runs
  handlers: any jump, and the return of a function. It is stricter than CPython is.

Left out are lines at which no handler can be run, and an error would mean what none ever does:

- the line of a `with` to which its block comes back to call `__exit__`,
- the first line of a `finally`, and what follows an `if` there that calls nothing,
- the line of an `except`, where an error is taken up, and that of a `try`, which does nothing.

A handler runs within an instruction: here within the last one of the block before, which the block
guards; `each_interruption` makes a place of that. Left out are also the turns of a comprehension
from CPython 3.12 on, where it is no function of its own: an error that comes out of tracing there
passes by what guards it, one that comes out of a handler doesn't. And what runs because something
is freed: Python reports its errors, and goes on.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import hqueue
import hqueue_workers

__all__ = ["Interrupted", "each_interruption", "each_line"]

_HERE = tuple(str(Path(each.__path__[0])) for each in (hqueue, hqueue_workers))
_FREEING = ("weakref.py", "_weakrefset.py", "forgotten.py")
_INLINED = sys.version_info >= (3, 12)
"""Whether comprehensions run in the frame that they stand in."""
_WAITS = ("acquire", "sendmsg", "sendall", "send", "recv", "recv_into", "poll", "connect", "sleep")


class Interrupted(TimeoutError, RuntimeError, ValueError, EOFError):  # noqa: N818  (as programs do)
    """What the handler raises: a time limit's error, which is an `OSError`; and of each other class
    that the library takes for an answer of the system or of a server.
    """


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


class _Line:
    """Calls the handler at the first line that was not interrupted before, by this or another one.

    Args:
        places: the lines that were interrupted. Each counts once when it is run first in a call of
            its function, and once when it is run again.
    """

    def __init__(self, places: set[tuple[str, int, bool]]) -> None:
        self._places = places
        self._run: dict[FrameType, set[int]] = {}
        self.where = ""

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        return None if self.where or not _is_ours(frame) or _is_freeing(frame) else self._in_frame

    def _in_frame(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "return":
            self._run.pop(frame, None)
        if event != "line" or self.where:
            return self._in_frame
        path, line = frame.f_code.co_filename, frame.f_lineno
        lines = self._run.setdefault(frame, set())
        again = line in lines
        lines.add(line)
        place = (path, line, again)
        if place in self._places or not _may_be_interrupted(path, line, again):
            return self._in_frame
        self._places.add(place)
        self.where = f"{frame.f_code.co_name}, {path}:{line}{' again' if again else ''}"
        sys.settrace(None)
        _handle(signal.SIGALRM, frame)
        return None


def _may_be_interrupted(path: str, line: int, again: bool) -> bool:
    never, returns = _left_out(path)
    return line not in never and not (again and line in returns)


@functools.cache
def _left_out(path: str) -> tuple[frozenset[int], frozenset[int]]:
    """The lines at which no handler is run: ever, and when a block comes back to them."""
    never: set[int] = set()
    returns: set[int] = set()
    for node in ast.walk(ast.parse(Path(path).read_text())):
        if isinstance(node, ast.Try):
            never.update(each.lineno for each in (node, *node.handlers))
            never.update(_first_lines(node.finalbody))
        elif isinstance(node, ast.With):
            returns.update({node.lineno, *(each.context_expr.lineno for each in node.items)})
        elif isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp)) and _INLINED:
            returns.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return frozenset(never), frozenset(returns)


def _first_lines(block: list[ast.stmt]) -> Iterator[int]:
    """The lines that are run before a block calls anything, and the one that does."""
    for first in block[:1]:
        yield first.lineno
        if isinstance(first, ast.If) and not any(
            isinstance(each, ast.Call) for each in ast.walk(first.test)
        ):
            yield from _first_lines(first.body)


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


def each_line(call: Callable[[], object]) -> Iterator[str]:
    """As `each_interruption`, at each line of the library that is run: once when it is come to, and
    once when it is come to again.
    """
    places: set[tuple[str, int, bool]] = set()
    tracing = sys.gettrace()
    with _handled():
        while True:
            line = _Line(places)
            try:
                sys.settrace(line)
                call()
            except Interrupted:
                assert line.where
            finally:
                sys.settrace(tracing)
            if not line.where:
                return
            yield line.where
