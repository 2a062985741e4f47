"""A log's port for an event loop, on one that blocks: threads make its requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from hqueue.errors import HQueueError, Outcome, StoreUnavailableError
from hqueue.log.ports import Row, RowStream
from hqueue.log.table_ports import LogPort

__all__ = ["Calling", "LogInThreads"]

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Calling(Protocol):
    """How a loop has something called that blocks: as `hqueue.runtime.loop` has."""

    async def __call__(self, call: Callable[[], Result], /) -> Result: ...


def _awaited(
    method: Callable[Concatenate[Any, Parameters], Result],
) -> Callable[Concatenate[LogInThreads, Parameters], Coroutine[Any, Any, Result]]:
    """The same method of the port, called as the loop has it called."""
    name = method.__name__

    async def call(
        log: LogInThreads, /, *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Result:
        return await log._call(partial(getattr(log._port, name), *args, **kwargs))

    return call


class LogInThreads:
    """The store's `AsyncLogPort`, on its `LogPort`. For any number of loops.

    A caller may be cancelled: a request that no thread has begun is not made, and what becomes of
    another is unknown.

    Args:
        port: what blocks.
        call: has it called.
    """

    def __init__(self, port: LogPort, call: Calling) -> None:
        self._port = port
        self._call = call

    newest = _awaited(LogPort.newest)
    headers = _awaited(LogPort.headers)
    get = _awaited(LogPort.get)
    put_if_absent = _awaited(LogPort.put_if_absent)
    header = _awaited(LogPort.header)
    backwards = _awaited(LogPort.backwards)
    delete_headers = _awaited(LogPort.delete_headers)
    delete_row = _awaited(LogPort.delete_row)
    clock_offset_ms = _awaited(LogPort.clock_offset_ms)
    record = _awaited(LogPort.record)
    replace_record = _awaited(LogPort.replace_record)

    async def open(
        self, partition: int, start: int, stop: int, topics: Iterable[str] | None
    ) -> _StreamInThreads:
        return _StreamInThreads(
            partial(self._port.open, partition, start, stop, topics), self._call
        )


class _StreamInThreads:
    """The store's `AsyncRowStream`. It is opened by the first `read`, so that no caller who is
    cancelled leaves it open.
    """

    def __init__(self, open_stream: Callable[[], RowStream], call: Calling) -> None:
        self._open = open_stream
        self._call = call
        self._opened: RowStream | None = None
        self._gone = False

    async def read(self, rows: int) -> list[Row]:
        if self._gone:
            raise StoreUnavailableError(
                "the scan was closed or interrupted", outcome=Outcome.NOT_APPLIED
            )
        try:
            return await self._call(partial(self._read, rows))
        except asyncio.CancelledError:
            self._gone = True  # A thread may have rows of it that nobody gets.
            raise

    async def close(self) -> None:
        self._gone = True
        if self._opened is not None:
            try:
                await self._call(self._opened.close)
            except HQueueError:  # No thread does it: the store lets go of it when it is old.
                pass

    def _read(self, rows: int) -> list[Row]:
        if self._opened is None:
            self._opened = self._open()
            if self._gone:  # `close` did not see it.
                self._opened.close()
        return self._opened.read(rows)
