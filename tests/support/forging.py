"""A stranger who reaches a worker's port and knows the log's format, but no key."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hqueue import Message
from hqueue.format.cells import encode_bodies
from hqueue.format.header import encode_header
from hqueue.format.rowkey import encode
from hqueue.log.offsets import PartitionOffsets
from hqueue.metadata import Address
from hqueue.push.append_notifier import BATCH
from tests.support.notifications import frame_of

__all__ = ["Forged", "forge", "notification", "send"]


class Forged(NamedTuple):
    """A batch that nobody put, with checksums that fit."""

    partition: int
    slot: int
    header: bytes
    cells: Mapping[bytes, bytes]


def forge(offsets: PartitionOffsets, values: Sequence[bytes]) -> Forged:
    """A batch as it would lie where a partition ends."""
    bodies = encode_bodies([Message("t", value) for value in values])
    partition, slot = offsets.partition, int(offsets.end)
    header = encode_header(
        encode(partition, slot), bodies, base=slot + 1, ordinal=offsets.end_ordinal,
        nonce=b"stranger", published_ms=offsets.end.timestamp,
    )  # fmt: skip
    return Forged(partition, slot, header, bodies.cells)


def notification(
    queue: str, forged: Forged, key: bytes | None = None, mac: bytes | None = None
) -> bytes:
    """The call that tells a worker of a batch, as it is on the wire."""
    return frame_of(queue, [forged.partition], [BATCH(*forged, key, mac)])


def send(address: Address, *frames: bytes) -> None:
    """Send frames over a connection of their own."""
    with socket.create_connection(address, 5) as connection:
        connection.sendall(b"".join(frames))
