"""Taking the notifications of producers: the worker's side of ``HQueueWorkerService``.

The port is open to all that reach it, and nobody is believed: a batch without a MAC that counts is
a hint to look into HBase, as a notification without a batch is, and what can't be understood, or is
too much, ends its connection and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from hqueue import Row
from hqueue.push.append_notifier import WORKER_SERVICE, row_of
from hqueue.rpc.calls import check_call
from hqueue.rpc.messages import Processor

__all__ = ["NotificationServer"]

logger = logging.getLogger(__name__)

Notify = Callable[[str, Sequence[int], Sequence[Row]], object]

FRAME_BYTES_MAX = 256 * 1024
"""A frame tells of all partitions that a queue can have, or of a small batch, at most."""
CONTAINERS_MAX = 256
"""Of a frame: a batch is a struct with a map, and a producer sends one batch at a time."""
CONNECTIONS_MAX = 4_096
BUFFERED_BYTES_MAX = 16 * 1024 * 1024
"""Of all frames together that have begun to arrive."""


class Counted(Protocol):
    """Counts a batch that came with a notification."""

    def __call__(self, *, vouched: bool) -> object: ...


class NotificationServer:
    """What all connections of producers have in common. Used by the event loop's thread.

    Args:
        on_append: called with a queue, its partitions, and rows of them that were appended: each
            of these is as good as if it had been read from HBase.
        vouches_for: whether a batch (``TBatch``) of a queue may be believed.
        count: called for each batch.
    """

    def __init__(
        self, on_append: Notify, vouches_for: Callable[[str, Any], bool], count: Counted
    ) -> None:
        self.on_append = on_append
        self.connections = 0
        self.buffered_bytes = 0
        self._handler = _Handler(vouches_for, count)
        self._processor = Processor(WORKER_SERVICE, self._handler, decodes_texts=True)

    def connection(self) -> asyncio.Protocol:
        """A protocol for a connection that is made."""
        return _Connection(self)

    def take(self, frame: bytes) -> None:
        """Do what a frame says.

        Raises:
            Exception: it can't be understood. Nothing was done.
        """
        check_call(frame, CONTAINERS_MAX)
        self._processor.answer(frame)

    def flush(self) -> None:
        """Pass on what was understood: no fault of ours is a stranger's."""
        calls, self._handler.calls = self._handler.calls, []
        for call in calls:
            self.on_append(*call)


class _Connection(asyncio.Protocol):
    """A producer's connection."""

    def __init__(self, server: NotificationServer) -> None:
        self._server = server
        self._transport: asyncio.BaseTransport | None = None
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._server.connections += 1
        if self._server.connections > CONNECTIONS_MAX:
            logger.warning("no more than %d producers may be connected", CONNECTIONS_MAX)
            self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections -= 1
        self._forget(len(self._buffer))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._server.buffered_bytes += len(data)
        at = 0
        while len(self._buffer) >= at + 4:
            end = at + 4 + int.from_bytes(self._buffer[at : at + 4], "big")
            if end - at - 4 > FRAME_BYTES_MAX:
                return self._end()
            if len(self._buffer) < end:
                break
            try:
                self._server.take(bytes(self._buffer[at + 4 : end]))
            except Exception:  # Whatever a stranger sends.
                logger.debug("a notification was not understood", exc_info=True)
                return self._end()
            self._server.flush()
            at = end
        self._forget(at)
        if self._server.buffered_bytes > BUFFERED_BYTES_MAX:
            self._end()
        return None

    def _forget(self, count: int) -> None:
        del self._buffer[:count]
        self._server.buffered_bytes -= count

    def _end(self) -> None:
        self._forget(len(self._buffer))
        if self._transport is not None:
            self._transport.close()


class _Handler:
    """Keeps what was understood."""

    def __init__(self, vouches_for: Callable[[str, Any], bool], count: Counted) -> None:
        self.calls: list[tuple[str, Sequence[int], Sequence[Row]]] = []
        self._vouches_for = vouches_for
        self._count = count

    def appended(
        self, queue: str, partitions: Sequence[int], batches: Sequence[Any] | None = None
    ) -> None:
        rows = []
        for batch in batches or ():
            vouched = self._vouches_for(queue, batch)
            self._count(vouched=vouched)
            if vouched:
                rows.append(row_of(batch))
        self.calls.append((queue, partitions, rows))
