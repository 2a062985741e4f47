"""Deleting old headers in passing: the process that writes to a partition also tidies it."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from hqueue.errors import HQueueError
from hqueue.log import PartitionWriter
from hqueue.log.table_ports import AsyncLogPort
from hqueue.runtime.clock import Clock, do_step_in_loop
from hqueue.runtime.held import if_free
from hqueue.runtime.logs import Log
from hqueue.runtime.loop import BackgroundLoop
from hqueue.runtime.program_loop import ProgramLoop, loop_here
from hqueue.runtime.steps import Work, carry_out_in_loop

__all__ = ["HeaderReaper"]

logger = Log(__name__)

EVERY_MS = 60_000


class HeaderReaper:
    """Collects a partition's old headers, once a minute at most. Made again in a forked child.

    In the background, one at a time: HBase's master has to be asked for the TTL, and puts must not
    wait for that. What was appended in an event loop of the program has that loop collect.

    Args:
        port: the rows.
        expired_ms: work that finds up to when bodies were written that have expired; None if none
            do.
        clock: where time comes from.
    """

    def __init__(
        self, port: AsyncLogPort, expired_ms: Callable[[], Work[Any, int | None]], clock: Clock
    ) -> None:
        self._port = port
        self._expired_ms = expired_ms
        self._clock = clock
        self._due_ms: dict[int, float] = {}
        self._starting = threading.Lock()
        self._loop: BackgroundLoop | None = None
        """The one that collected last."""
        self._collecting: Future[None] | None = None

    def collect_if_due(self, writer: PartitionWriter) -> None:
        """Collect in the background if it is time. Returns at once; whatever fails is logged."""
        now_ms = self._clock.monotonic_ms()
        due_ms = self._due_ms.get(writer.partition)
        if due_ms is None:  # Many processes that start together don't all collect together.
            due_ms = self._due_ms[writer.partition] = now_ms + random.random() * EVERY_MS
        if now_ms < due_ms:
            return
        if_free(self._starting, lambda: self._start(writer, now_ms))

    def _start(self, writer: PartitionWriter, now_ms: float) -> None:
        if self._is_collecting() or (loop := loop_here()) is None:
            return
        self._due_ms[writer.partition] = now_ms + EVERY_MS
        self._loop, self._collecting = loop, loop.start(self._collect, writer)

    def _is_collecting(self) -> bool:
        if self._collecting is None or self._collecting.done():
            return False
        loop = self._loop
        return not (isinstance(loop, ProgramLoop) and loop.loop.is_closed())

    async def _collect(self, writer: PartitionWriter) -> None:
        do = partial(do_step_in_loop, self._port, self._clock)
        try:
            await carry_out_in_loop(self._collected(writer), do)
        except HQueueError:
            logger.debug("can't delete old headers now; a later append tries again", exc_info=True)

    def _collected(self, writer: PartitionWriter) -> Work[Any, None]:
        """Nothing is tried twice."""
        expired_ms = yield from self._expired_ms()
        if expired_ms is not None:
            yield from writer.collect(expired_ms)
