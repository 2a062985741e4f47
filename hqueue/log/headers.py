"""Reading headers alone: what was written when, in which topics, without a message of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from hqueue.format import Header
from hqueue.log.ports import HeaderPort
from hqueue.log.rows import header_of
from hqueue.runtime.clock import Deadline

__all__ = ["headers_of"]

HEADERS_A_REQUEST = 1_000


def headers_of(
    partition: int, start: int, stop: int, port: HeaderPort, deadline: Callable[[], Deadline]
) -> Iterator[Header]:
    """The headers of the batches that have IDs in ``[start, stop)``, ascending.

    Those of control records and of messages that expired come as well, as long as they are kept.
    A request for 1,000 of them at a time, each with a deadline of its own.
    """
    covering = deadline().run(lambda: port.newest(partition, start))
    slot = start if covering is None else covering.slot
    while slot < stop:
        rows = deadline().run(partial(port.headers, partition, slot, HEADERS_A_REQUEST))
        for row in rows:
            header = header_of(row)
            if header.base >= stop:
                return
            slot = header.end
            if slot > start:
                yield header
        if len(rows) < HEADERS_A_REQUEST:
            return
