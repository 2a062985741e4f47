"""A batch whose checksums fit and that no reader can decode, as a writer with a fault wrote it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from unittest import mock

import hqueue
from hqueue import Message
from hqueue.format import cells as cells_module
from hqueue.format.cells import encode_bodies
from hqueue.format.header import Bodies
from hqueue.format.rowkey import encode
from hqueue.message import Headers

__all__ = ["BAD", "put_unreadable", "unreadable_bodies", "unreadable_headers"]

BAD = "this name is none"
"""The name of headers that make a topic's messages unreadable."""

_encode_headers = cells_module.encode_headers


def unreadable_bodies(messages: Sequence[Message]) -> Bodies:
    """These messages. Those of a topic can't be read if one of them has a header of this name."""
    with unreadable_headers():
        return encode_bodies(messages)


@contextlib.contextmanager
def unreadable_headers() -> Iterator[None]:
    """Let this process write headers of that name so that they can't be read."""

    def forged(headers: Sequence[Headers]) -> bytes:
        return _encode_headers(headers).replace(BAD.encode(), b"\xff" * len(BAD))

    with mock.patch.object(cells_module, "encode_headers", forged):
        yield


def put_unreadable(queue: hqueue.Queue, messages: Sequence[Message], partition: int = 0) -> str:
    """Put them, and tell in which row they lie."""
    slot = int(queue.offsets([partition])[0].end)
    queue._log.appender.append(unreadable_bodies(messages), partition)
    return encode(partition, slot).hex()
