"""Receives the notifications of producers: the worker's side of ``HQueueWorkerService``.

The port is open to every process that reaches it, so no notification is trusted. A batch without a
valid MAC is only a hint to look into HBase, like a notification without a batch. A notification
that is too large or can't be decoded ends its connection, and nothing else.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from hqueue.engine import Row
from hqueue.net.guard import PortGuard
from hqueue.push.append_notifier import WORKER_SERVICE, row_of
from hqueue.rpc.callers import Bounds
from hqueue.rpc.calls import NoCallError, check_call
from hqueue.rpc.gathering import FrameGatherer, Request
from hqueue.rpc.messages import Processor
from hqueue.rpc.port import Port
from hqueue.rpc.served_connection import ServedConnection
from hqueue.runtime.clock import SYSTEM_CLOCK

__all__ = ["NotificationServer"]

Notify = Callable[[str, Sequence[int], Sequence[Row]], object]

FRAME_BYTES_MAX = 256 * 1024
"""A frame names all partitions that a queue can have, or holds a small batch, at most."""
CONTAINERS_MAX = 256
"""Of a frame: a batch is a struct with a map, and a producer sends one batch at a time."""
CONNECTIONS_MAX = 4_096
BUFFERED_BYTES_MAX = 16 * 1024 * 1024
"""Of all frames together that have begun to arrive."""
STILL_MS_MAX = 10_000.0
"""How long a frame that has begun may stand still."""
IDLE_MS_MAX = 600_000.0
"""How long a producer may be silent. It connects again when it has something to say."""
TURN_MS = 2.0
"""The frames of a producer that came together are taken for about this long before others' are."""


class Counted(Protocol):
    """Counts a batch that came with a notification."""

    def __call__(self, *, vouched: bool) -> object: ...


class NotificationServer:
    """What all connections of producers have in common. Used by the event loop's thread.

    Args:
        listeners: sockets that listen. They are the server's from now on.
        on_append: called with a queue, its partitions, and rows of them that were appended: each
            of these is as good as if it had been read from HBase.
        vouches_for: whether a batch (``TBatch``) of a queue may be believed.
        count: called for each batch.
        connections_max: at a time.
        guard: who may call; everybody may if None.
        may_notify: whether a principal may notify of appends to a queue. What may not is ignored.
    """

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        on_append: Notify,
        vouches_for: Callable[[str, Any], bool],
        count: Counted,
        *,
        connections_max: int = CONNECTIONS_MAX,
        guard: PortGuard | None = None,
        may_notify: Callable[[ServedConnection, str], bool] = lambda caller, queue: True,
    ) -> None:
        self._on_append = on_append
        self._may_notify = may_notify
        self._handler = _Handler(vouches_for, count)
        self._processor = Processor(WORKER_SERVICE, self._handler, decodes_texts=True)
        self.port = Port(
            listeners,
            Bounds(connections_max, BUFFERED_BYTES_MAX, STILL_MS_MAX, IDLE_MS_MAX),
            "the port for notifications",
            make_gatherer=lambda: FrameGatherer(FRAME_BYTES_MAX),
            serve=self._serve,
            guard=guard,
        )
        """Whose callers they are."""

    def _serve(self, connection: ServedConnection) -> None:
        try:
            self._take_some(connection)
        except NoCallError as exc:
            connection.reason = str(exc)
        except BaseException as exc:  # A fault of ours ends no more than this.
            connection.reason = f"{type(exc).__name__}: {exc}"
        self.port.give_back(connection)

    def _take_some(self, connection: ServedConnection) -> None:
        """Take the requests that have come as a whole, for as long as a turn is."""
        ends_ms = SYSTEM_CLOCK.monotonic_ms() + TURN_MS
        while connection.request is not None:
            self._take(connection, connection.request)
            connection.passed_bytes = 0
            connection.request = connection.gathered()
            if SYSTEM_CLOCK.monotonic_ms() > ends_ms:
                break

    def _take(self, connection: ServedConnection, request: Request) -> None:
        try:
            check_call(request.data, CONTAINERS_MAX)
            self._processor.answer(request.data)
        except NoCallError:
            raise
        except Exception as exc:  # Whatever a stranger sends. Nothing was done.
            raise NoCallError(f"a notification can't be decoded: {type(exc).__name__}") from exc
        # What was understood is passed on: no fault of ours is a stranger's.
        calls, self._handler.calls = self._handler.calls, []
        for call in calls:
            if self._may_notify(connection, call[0]):
                self._on_append(*call)


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
