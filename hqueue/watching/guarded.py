"""An observer whose errors harm nobody."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from hqueue.message import Headers, Message, ReceivedMessage
from hqueue.runtime.interrupts import is_interruption
from hqueue.runtime.logs import Log
from hqueue.runtime.seldom import SeldomLog
from hqueue.watching.observer import End, Observer

__all__ = ["Guarded"]

Result = TypeVar("Result")

logger = Log(__name__)
_seldom = SeldomLog(logger)


class Guarded(Observer):
    """The same observer, whose errors are logged, at most one a second: the samplers and processors
    of spans are a program's own, and run in the middle of puts and polls. Errors that handlers of
    signals raise are passed on.

    Args:
        observer: the observer.
    """

    def __init__(self, observer: Observer) -> None:
        self.observer = observer

    def put(
        self,
        queue: str,
        messages: Sequence[Message],
        count: int,
        partition: int | None,
        *,
        changeable: bool,
    ) -> tuple[Sequence[Message], End]:
        put = self.observer.put
        given, end = _tried(
            lambda: put(queue, messages, count, partition, changeable=changeable),
            super().put(queue, messages, count, partition, changeable=changeable),
        )
        return given, _quiet(end)

    def create(self, queue: str, headers: Headers, size: int) -> Headers:
        return _tried(lambda: self.observer.create(queue, headers, size), headers)

    def append(self, queue: str, count: int, size: int) -> End:
        ignore = super().append(queue, count, size)
        return _quiet(_tried(lambda: self.observer.append(queue, count, size), ignore))

    def received(
        self, queue: str, group: str | None, first: Sequence[ReceivedMessage], count: int
    ) -> None:
        _tried(lambda: self.observer.received(queue, group, first, count), None)

    def settle(self, queue: str, group: str, answer: str, count: int) -> End:
        ignore = super().settle(queue, group, answer, count)
        return _quiet(_tried(lambda: self.observer.settle(queue, group, answer, count), ignore))

    def answered(self, queue: str, group: str, answer: str, count: int) -> None:
        _tried(lambda: self.observer.answered(queue, group, answer, count), None)

    @contextlib.contextmanager
    def process(self, subscriber: str, messages: Sequence[ReceivedMessage]) -> Iterator[None]:
        block = contextlib.ExitStack()
        _tried(lambda: block.enter_context(self.observer.process(subscriber, messages)), None)
        try:
            yield
        finally:
            error = sys.exc_info()
            _tried(lambda: block.__exit__(*error), None)

    def deliver(self, queue: str, subscriber: str, call: Any) -> End:
        ignore = super().deliver(queue, subscriber, call)
        return _quiet(_tried(lambda: self.observer.deliver(queue, subscriber, call), ignore))


def _quiet(end: End) -> End:
    return lambda result, error: _tried(lambda: end(result, error), None)


def _tried(call: Callable[[], Result], otherwise: Result) -> Result:
    try:
        return call()
    except Exception as exc:
        if is_interruption(exc):
            raise
        _seldom.warning("metrics or traces failed: %s: %s", type(exc).__name__, exc)
        return otherwise
