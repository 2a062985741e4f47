"""Taking the wake-ups of producers: the worker's side of ``HQueueWorkerService``."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from thriftpy2.protocol import TCyBinaryProtocol
from thriftpy2.thrift import TProcessor
from thriftpy2.transport import TCyMemoryBuffer

from hqueue.wakeups import WORKER_SERVICE

__all__ = ["WakeUps"]

logger = logging.getLogger(__name__)

FRAME_BYTES_MAX = 256 * 1024
"""A frame tells of all partitions that a queue can have, at most."""


class WakeUps(asyncio.Protocol):
    """A producer's connection. What can't be understood ends it, and nothing else.

    Args:
        woken: told of a queue and its partitions.
    """

    def __init__(self, woken: Callable[[str, Sequence[int]], object]) -> None:
        self._processor = TProcessor(WORKER_SERVICE, _Handler(woken))
        self._transport: asyncio.BaseTransport | None = None
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 4:
            size = int.from_bytes(self._buffer[:4], "big")
            if size > FRAME_BYTES_MAX:
                return self._end()
            if len(self._buffer) < 4 + size:
                return None
            frame, self._buffer = self._buffer[4 : 4 + size], self._buffer[4 + size :]
            try:
                self._processor.process(_protocol(frame), _protocol(b""))
            except Exception:  # Whatever a stranger sends.
                logger.debug("a wake-up was not understood", exc_info=True)
                return self._end()
        return None

    def _end(self) -> None:
        if self._transport is not None:
            self._transport.close()


def _protocol(frame: bytes) -> Any:
    return TCyBinaryProtocol(TCyMemoryBuffer(frame))  # type: ignore[no-untyped-call]


class _Handler:
    def __init__(self, woken: Callable[[str, Sequence[int]], object]) -> None:
        self._woken = woken

    def appended(self, queue: str, partitions: Sequence[int]) -> None:
        self._woken(queue, partitions)
