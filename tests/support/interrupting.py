"""Interrupting the main thread as a handler of a signal does, at every place where it may.

There are two lists of places, each with a function that goes through it.

- `each_interruption`: after calls of what is written in C, at the beginnings of functions that are
  written in Python, and in what waits; the first and the second time that it is reached by the same
  calls, so in each way that leads there, and in a loop.
- `each_line`: each line that is run, at its beginning, and once more when it is run again, as in a
  loop. That covers the backward jumps of loops, and the further places at which CPython 3.10 runs
  handlers: any jump, and the return of a function. It is stricter than CPython is.

Left out are lines at which no handler can be run, and an error would mean what none ever does:

- the line of a `with` to which its block comes back to call `__exit__`,
- the first line of a `finally`, and what follows an `if` there that calls nothing,
- the line of an `except`, where an error is taken up, and that of a `try`, which does nothing,
- the line that yields a name straight after an assignment of a name, or first in a `try`.

A handler runs within an instruction: here within the last one of the block before, which the block
guards; `each_interruption` makes a place of that. Left out are also the turns of a comprehension
from CPython 3.12 on, where it is no function of its own: an error that comes out of tracing there
passes by what guards it, one that comes out of a handler doesn't. And what runs because something
is freed, a generator's end too: Python reports its errors, and goes on. Cycles are freed between
the calls: what runs then belongs to none of them.
"""

from __future__ import annotations

import ast
import collections
import concurrent.futures._base
import contextlib
import dis
import functools
import gc
import inspect
import itertools
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

__all__ = ["Handle", "Interrupted", "each_interruption", "each_line"]

Handle = Callable[[int, FrameType | None], object]

_ROOT = Path(__file__).parents[2]
_HERE = tuple(map(str, (_ROOT / "hqueue", _ROOT / "workers" / "hqueue_workers")))
_FREEING = ("weakref.py", "_weakrefset.py", "forgotten.py")
_FREED = ("<genexpr>", "pauses")
_ASKING = (
    "FOR_ITER",
    "SEND",
    "YIELD_FROM",
    "CALL",
    "PRECALL",
    "LIST_EXTEND",
    "SET_UPDATE",
    "UNPACK",
    "DICT_UPDATE",
    "CONTAINS",
)
"""What asks a generator for its next."""
_INLINED = sys.version_info >= (3, 12)
"""Whether comprehensions run in the frame that they stand in."""
_STANDARD = (threading.__file__, concurrent.futures._base.__file__)
"""What of the standard library is written in Python, and takes locks for its callers."""
_WAITS = ("acquire", "sendmsg", "sendall", "send", "recv", "recv_into", "poll", "connect", "sleep")


class Interrupted(TimeoutError, RuntimeError, ValueError, EOFError):  # noqa: N818  (as programs do)
    """What the handler raises: a time limit's error, which is an `OSError`; and of each other class
    that the library takes for an answer of the system or of a server.
    """


def _raise(number: int, frame: FrameType | None) -> None:
    raise Interrupted(f"signal {number}")


class _Point:
    """Calls the handler at the first place of this kind that was not reached before:

    after a call of what is written in C, where a function written in Python begins, and in what
    waits. Calls that code of the library makes count, what they wait in, and what `threading` and
    `concurrent.futures` do for it; what other libraries do within themselves does not.

    Args:
        places: those that were reached. Each counts once when it is first reached by the same
            calls, and once when it is reached again.
        every: of those that were not, each n-th is interrupted.
        handle: the handler.
    """

    def __init__(self, places: set[tuple[object, ...]], every: int, handle: Handle) -> None:
        self._places = places
        self._left = every
        self._handle = handle
        self._came: collections.Counter[tuple[object, ...]] = collections.Counter()
        self.where = ""

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "c_call":
            counts = argument.__name__ in _WAITS and _is_ours(frame, callers=3)
        elif event == "c_return":
            counts = _is_ours(frame) or _is_for_ours(frame)
        else:
            begins = event == "call" and not _is_resumed(frame)
            counts = begins and (_is_ours(frame, callers=1) or _is_for_ours(frame))
        if not counts or _is_freeing(frame):
            return
        name = getattr(argument, "__name__", "")
        way = (event, name, *_way_to(frame))
        self._came[way] += 1
        place = (min(self._came[way], 2), *way)
        if place in self._places:
            return
        self._places.add(place)
        self._left -= 1
        if not self._left:
            code = frame.f_code
            self.where = f"{event} {name} in {code.co_name}, {code.co_filename}:{frame.f_lineno}"
            sys.setprofile(None)
            self._handle(signal.SIGALRM, frame)


def _way_to(frame: FrameType | None) -> list[int]:
    """Where each function is that led here. Code is known by where it lies: its hash takes long."""
    way: list[int] = []
    while frame is not None and (code := frame.f_code) is not each_interruption.__code__:
        way += id(code), frame.f_lasti
        frame = frame.f_back
    return way


def _is_ours(frame: FrameType | None, callers: int = 0) -> bool:
    """Whether code of the library runs, or is among so many callers."""
    for _ in range(1 + callers):
        if frame is not None and frame.f_code.co_filename.startswith(_HERE):
            return True
        frame = None if frame is None else frame.f_back
    return False


def _is_for_ours(frame: FrameType) -> bool:
    """Whether the standard library takes and releases locks here for code of the library."""
    return frame.f_code.co_filename in _STANDARD and _is_ours(frame, callers=4)


def _is_freeing(frame: FrameType | None) -> bool:
    """Whether this runs because something is freed: Python reports its error, and goes on."""
    for _ in range(4):
        if frame is not None:
            code = frame.f_code
            if code.co_filename.endswith(_FREEING) or _is_let_go(frame):
                return True
            if code.co_name in _FREED and _is_ours(
                frame
            ):  # The thread that takes it up frees it, too.
                return True
            frame = frame.f_back
    return False


def _is_let_go(frame: FrameType) -> bool:
    """Whether a generator goes on at an instruction of its caller that asks it for nothing: there
    it is freed, and ends.
    """
    caller = frame.f_back
    if caller is None or not frame.f_code.co_flags & inspect.CO_GENERATOR:
        return False
    return not _asks(caller)


def _is_resumed(frame: FrameType) -> bool:
    """Whether a generator goes on behind what it yielded. There an error that comes out of tracing
    passes by what guards it, before CPython 3.12; one that comes out of a handler doesn't.
    """
    if not frame.f_code.co_flags & inspect.CO_GENERATOR or frame.f_lasti < 0:
        return False
    last = frame.f_lasti
    at = [dis.opname[each] for each in frame.f_code.co_code[last : last + 3 : 2]]
    # CPython 3.10 stands before a `yield from`, and runs no handler there when it goes on.
    return at[0].startswith(("YIELD", "SEND")) or at[-1] == "YIELD_FROM"


_asking: dict[tuple[int, int], bool] = {}


def _asks(caller: FrameType) -> bool:
    place = id(caller.f_code), caller.f_lasti
    if place not in _asking:
        instruction = dis.opname[caller.f_code.co_code[caller.f_lasti]]
        _asking[place] = instruction.startswith(_ASKING)
    return _asking[place]


class _Line:
    """Calls the handler at the first line that was not reached before, by this or another one.

    Args:
        places: the lines that were reached. Each counts once when it is run first in a call of its
            function, and once when it is run again.
        every: of those that were not, each n-th is interrupted.
        handle: the handler.
    """

    def __init__(self, places: set[tuple[str, int, bool]], every: int, handle: Handle) -> None:
        self._places = places
        self._left = every
        self._handle = handle
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
        self._left -= 1
        if self._left:
            return self._in_frame
        self.where = f"{frame.f_code.co_name}, {path}:{line}{' again' if again else ''}"
        sys.settrace(None)
        self._handle(signal.SIGALRM, frame)
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
        never.update(_yields_straight(getattr(node, "body", None)))
        if isinstance(node, ast.Try):
            never.update(each.lineno for each in node.body[:1] if _yields_name(each))
            never.update(each.lineno for each in (node, *node.handlers))
            never.update(_first_lines(node.finalbody))
        elif isinstance(node, ast.With):
            returns.update({node.lineno, *(each.context_expr.lineno for each in node.items)})
        elif isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp)) and _INLINED:
            returns.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return frozenset(never), frozenset(returns)


def _yields_straight(block: object) -> Iterator[int]:
    """The lines that yield a name straight after an assignment of one: nothing is called between,
    and nothing jumps.
    """
    if isinstance(block, list):
        for before, statement in itertools.pairwise(block):
            assigns = isinstance(before, ast.Assign) and isinstance(before.value, ast.Name)
            if assigns and _yields_name(statement):
                yield statement.lineno


def _yields_name(statement: ast.stmt) -> bool:
    yields = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Yield)
    return yields and isinstance(statement.value.value, ast.Name)


def _first_lines(block: list[ast.stmt]) -> Iterator[int]:
    """The lines that are run before a block calls anything, and the one that does."""
    for first in block[:1]:
        yield first.lineno
        if isinstance(first, ast.If) and not any(
            isinstance(each, ast.Call) for each in ast.walk(first.test)
        ):
            yield from _first_lines(first.body)


@contextlib.contextmanager
def _handled(handle: Handle) -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def _collecting_nothing() -> Iterator[None]:
    """Without the collector of cycles, and what listens to it."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def each_interruption(
    call: Callable[[], object], *, every: int = 1, handle: Handle = _raise
) -> Iterator[str]:
    """Call something again and again, and interrupt it at a place more each time, until it is done
    without; where each interruption was, for a test to look what it left behind.

    Args:
        call: what is interrupted. It may take another way each time.
        every: only each n-th place.
        handle: the handler; it raises `Interrupted` by default.
    """
    places: set[tuple[object, ...]] = set()
    with _handled(handle):
        while True:
            point = _Point(places, every, handle)
            try:
                with _collecting_nothing():
                    sys.setprofile(point)
                    call()
            except Interrupted:
                assert point.where
            finally:
                sys.setprofile(None)
            if not point.where:
                return
            yield point.where


def each_line(
    call: Callable[[], object], *, every: int = 1, handle: Handle = _raise
) -> Iterator[str]:
    """As `each_interruption`, at each line of the library that is run: once when it is reached, and
    once when it is reached again.
    """
    places: set[tuple[str, int, bool]] = set()
    tracing = sys.gettrace()
    with _handled(handle):
        while True:
            line = _Line(places, every, handle)
            try:
                with _collecting_nothing():
                    sys.settrace(line)
                    call()
            except Interrupted:
                assert line.where
            finally:
                sys.settrace(tracing)
            if not line.where:
                return
            yield line.where
