"""The two faces of an open log, the blocking one and that for event loops, behind one: so what is
promised of both is tested by the same tests.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from itertools import chain
from typing import Any, TypeVar

from hqueue import Scan
from hqueue.engine import LoopLog
from hqueue.handle import QueueLog
from hqueue.log import Batch
from tests.support.looped import LoopThread

__all__ = ["BlockingFace", "LoopFace", "taken"]

Result = TypeVar("Result")


async def taken(given: AsyncIterator[list[Result]]) -> list[Result]:
    """All that is given, one after the other."""
    return [each async for some in given for each in some]


class BlockingFace:
    """In the caller's thread."""

    def __init__(self, log: QueueLog) -> None:
        self._log = log

    def cursor(self, partition: int, scan: Scan, bytes_max: int) -> Any:
        return self._log.reader.open(partition, scan, bytes_max)

    def read(self, cursor: Any) -> list[Batch]:
        return cursor.read(self._log.reader.deadline())  # type: ignore[no-any-return]

    def read_once(self, cursor: Any) -> list[Batch]:
        return cursor.read_once(self._log.reader.deadline())  # type: ignore[no-any-return]

    def check_tail(self, cursor: Any) -> None:
        cursor.check_tail(self._log.reader.deadline())

    def release(self, cursor: Any) -> None:
        cursor.release()

    def poll(self, cursors: Sequence[Any], bytes_max: int, **options: int) -> list[Batch]:
        return [*chain.from_iterable(self._log.reader.poll(cursors, bytes_max, **options))]

    def follow(self, cursors: Sequence[Any], bytes_max: int, **options: Any) -> list[Batch]:
        given = self._log.reader.follow(cursors, bytes_max, closed=lambda: False, **options)
        return [*chain.from_iterable(given)]

    def ask(self, name: str, *args: Any) -> Any:
        return getattr(self._log.reader, name)(*args)

    def write(self, name: str, *args: Any, **named: Any) -> Any:
        return getattr(self._log.appender, name)(*args, **named)

    def done(self, result: Any) -> Any:
        """What comes of a call of an owned log."""
        return result


class LoopFace:
    """In an event loop."""

    def __init__(self, log: QueueLog, loop: LoopThread) -> None:
        self._log = LoopLog(log, lambda topic: [])
        self._loop = loop

    def cursor(self, partition: int, scan: Scan, bytes_max: int) -> Any:
        return self._log.reader.cursor(partition, scan, bytes_max)

    def read(self, cursor: Any) -> list[Batch]:
        return self._run(self._log.reader.read, cursor)

    def read_once(self, cursor: Any) -> list[Batch]:
        return self._run(self._log.reader.read_once, cursor)

    def check_tail(self, cursor: Any) -> None:
        self._run(self._log.reader.check_tail, cursor)

    def release(self, cursor: Any) -> None:
        self._run(self._log.reader.release, cursor)

    def poll(self, cursors: Sequence[Any], bytes_max: int, **options: int) -> list[Batch]:
        return self._loop.run(taken(self._log.reader.poll(cursors, bytes_max, **options)))

    def follow(self, cursors: Sequence[Any], bytes_max: int, **options: Any) -> list[Batch]:
        return self._loop.run(taken(self._log.reader.follow(cursors, bytes_max, **options)))

    def ask(self, name: str, *args: Any) -> Any:
        return self._run(getattr(self._log.reader, name), *args)

    def write(self, name: str, *args: Any, **named: Any) -> Any:
        return self.done(getattr(self._log.appender, name)(*args, **named))

    def done(self, result: Any) -> Any:
        """What comes of a call of an owned log."""
        return self._loop.run(result) if asyncio.iscoroutine(result) else result

    def _run(self, call: Callable[..., Coroutine[Any, Any, Result]], *args: Any) -> Result:
        return self._loop.run(call(*args))
