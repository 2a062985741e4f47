"""Errors as users of Spark see them.

Spark shows the traceback of a worker process first, with Spark's own frames and the causes of the
error, and the error's text below. So our errors leave these processes as texts alone: the first
line that a user sees says what happened, and what to do.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from hqueue import HQueueError
from hqueue.runtime.logs import Log

__all__ = ["main_is_of_spark", "plain_errors", "plain_iteration"]

P = ParamSpec("P")
T = TypeVar("T")

logger = Log(__name__)


def main_is_of_spark(module: str = "") -> bool:
    """Whether Spark began this process, as a worker, and its program is this module of PySpark.

    Args:
        module: the module's name below ``pyspark.``; any if empty.
    """
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    name = "" if spec is None else spec.name
    return name == f"pyspark.{module}" if module else name.startswith("pyspark.")


def plain_errors(function: Callable[P, T]) -> Callable[P, T]:
    """Let the function raise an `HQueueError` without a cause, and without frames below it."""

    @functools.wraps(function)
    def plain(*args: P.args, **named: P.kwargs) -> T:
        try:
            return function(*args, **named)
        except HQueueError as exc:
            raise _bare(exc) from None

    return plain


def plain_iteration(function: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """Like `plain_errors`, for what the function's iterator raises."""

    @functools.wraps(function)
    def plain(*args: P.args, **named: P.kwargs) -> Iterator[T]:
        try:
            yield from function(*args, **named)
        except HQueueError as exc:
            raise _bare(exc) from None

    return plain


def _bare(exc: HQueueError) -> HQueueError:
    logger.debug("this error's traceback is not shown to Spark", exc_info=True)
    if main_is_of_spark():
        # It reports the error and ends. Without frames there is no line above the error's text.
        sys.tracebacklimit = 0
    return exc.with_traceback(None)
