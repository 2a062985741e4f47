"""Calling functions of the program in threads of this library."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from hqueue.runtime.logs import Log

__all__ = ["call_foreign"]

logger = Log(__name__)

Result = TypeVar("Result")
Parameters = ParamSpec("Parameters")


def call_foreign(
    what: str,
    function: Callable[Parameters, Result],
    *arguments: Parameters.args,
    **named: Parameters.kwargs,
) -> tuple[Result | None, BaseException | None]:
    """Call a function of the program: a callback, a listener, a handler. Never raises.

    Whatever the function raises is logged and returned, and the thread goes on: other callers wait
    for it. That includes what is not an `Exception`: `SystemExit`, `KeyboardInterrupt`, a test's
    failure. Only its main thread can end a program, so here they end nothing.

    Args:
        what: what is called, for the log.
        function: the function.
        arguments, named: its arguments.

    Returns:
        Its value and None, or None and the error.
    """
    try:
        return function(*arguments, **named), None
    except Exception as exc:
        logger.exception("%s failed", what)
        return None, exc
    except BaseException as exc:
        logger.exception(
            "%s raised %s in a library thread; it was ignored, and the thread goes on",
            what,
            type(exc).__name__,
        )
        return None, exc
