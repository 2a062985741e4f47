"""Taking the wake-ups of producers: the worker's side of ``HQueueWorkerService``."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from thriftpy2.protocol import TCyBinaryProtocol
from thriftpy2.thrift import TProcessor
from thriftpy2.transport import TCyMemoryBuffer

from hqueue.wakeups import WORKER_SERVICE, row_of

if TYPE_CHECKING:
    from hqueue.ports import Row

__all__ = ["WakeUps"]

logger = logging.getLogger(__name__)

Woken = Callable[[str, Sequence[int], "Sequence[Row]"], object]

FRAME_BYTES_MAX = 256 * 1024
"""A frame tells of all partitions that a queue can have, or of a small batch, at most."""


class WakeUps(asyncio.Protocol):
    """A producer's connection. What can't be understood ends it, and nothing else.

    Args:
        woken: told of a queue, its partitions, and rows of them that were appended.
    """

    def __init__(self, woken: Woken) -> None:
        self._woken = woken
        self._handler = _Handler()
        self._processor = TProcessor(WORKER_SERVICE, self._handler)
        self._transport: asyncio.BaseTransport | None = None
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        received, at = self._buffer + data, 0
        while len(received) >= at + 4:
            end = at + 4 + int.from_bytes(received[at : at + 4], "big")
            if end - at - 4 > FRAME_BYTES_MAX:
                return self._end()
            if len(received) < end:
                break
            try:
                self._processor.process(_protocol(received[at + 4 : end]), _protocol(b""))
            except Exception:  # Whatever a stranger sends.
                logger.debug("a wake-up was not understood", exc_info=True)
                return self._end()
            self._handler.tell(self._woken)
            at = end
        self._buffer = received[at:]
        return None

    def _end(self) -> None:
        if self._transport is not None:
            self._transport.close()


def _protocol(frame: bytes) -> Any:
    return TCyBinaryProtocol(TCyMemoryBuffer(frame))  # type: ignore[no-untyped-call]


class _Handler:
    """Keeps what was understood until it is told, so that no fault of ours is a stranger's."""

    def __init__(self) -> None:
        self._calls: list[tuple[str, Sequence[int], Sequence[Row]]] = []

    def tell(self, woken: Woken) -> None:
        calls, self._calls = self._calls, []
        for call in calls:
            woken(*call)

    def appended(
        self, queue: str, partitions: Sequence[int], batches: Sequence[Any] | None = None
    ) -> None:
        self._calls.append((queue, partitions, list(map(row_of, batches or ()))))
