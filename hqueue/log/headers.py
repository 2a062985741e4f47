"""Reading headers alone: what was written when, in which topics, without a message of it."""

from __future__ import annotations

from collections.abc import Callable

from hqueue.log.decoding import decoded_headers
from hqueue.log.ports import Row
from hqueue.log.steps import Headers, Newest, Work, request
from hqueue.runtime.clock import Deadline
from hqueue.runtime.steps import Give

__all__ = ["headers_of"]

HEADERS_A_REQUEST = 1_000


def headers_of(
    partition: int, start: int, stop: int, deadline: Callable[[], Deadline]
) -> Work[None]:
    """Gives the headers of the batches that have IDs in ``[start, stop)``, ascending.

    Those of control records and of messages that expired come as well, as long as they are kept.
    A request for 1,000 of them at a time, each with a deadline of its own.
    """
    covering: Row | None = yield from request(Newest(partition, start), deadline())
    slot = start if covering is None else covering.slot
    while slot < stop:
        headers = Headers(partition, slot, HEADERS_A_REQUEST)
        rows: list[Row] = yield from request(headers, deadline())
        for _, header in (yield from decoded_headers(rows)):
            if header.base >= stop:
                return
            slot = header.end
            if slot > start:
                yield Give(header)
        if len(rows) < HEADERS_A_REQUEST:
            return
