"""A program that signals itself: ``signal_at.py <signal> <number> <program> <arguments…>``.

It runs the program as it is. Points are counted from 1: after each poll that gives messages, before
and after each put, and before and after each commit. At the point of that number the process sends
itself the signal; with number 0 it never does. It says on stderr when an idempotency key stood for
other messages.
"""

from __future__ import annotations

import itertools
import os
import runpy
import signal
import sys
from collections.abc import Callable
from typing import Any
from unittest import mock

from hqueue import Consumer, IdempotencyKeyReusedError, Queue


class Points:
    """Counts points, and sends the signal at one of them."""

    def __init__(self, kind: signal.Signals, number: int) -> None:
        self._kind, self._number = kind, number
        self._points = itertools.count(1)

    def reach(self) -> None:
        if next(self._points) == self._number:
            os.kill(os.getpid(), self._kind)

    def around(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **named: Any) -> Any:
            self.reach()
            try:
                result = method(*arguments, **named)
            except IdempotencyKeyReusedError:
                print("reused", file=sys.stderr, flush=True)
                raise
            self.reach()
            return result

        return called

    def after(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **named: Any) -> Any:
            result = method(*arguments, **named)
            if result:
                self.reach()
            return result

        return called


def main() -> None:
    _, kind, number, *program = sys.argv
    points = Points(signal.Signals[kind], int(number))
    sys.argv = program
    with (
        mock.patch.object(Consumer, "poll", points.after(Consumer.poll)),
        mock.patch.object(Consumer, "commit", points.around(Consumer.commit)),
        mock.patch.object(Queue, "put", points.around(Queue.put)),
    ):
        runpy.run_path(program[0], run_name="__main__")


main()
