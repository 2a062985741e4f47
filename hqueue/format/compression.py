"""Compression of a batch's cells.

Each cell is compressed separately, so that a reader of one topic needs no other. What a header says
of a cell, it says of the cell as it was before: so the same messages have the same directory in
every codec, and how large a cell becomes is known before it is decompressed.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping

import zstandard

from hqueue.errors import CorruptLogError
from hqueue.format.cells import check_cell
from hqueue.format.header import PLAIN, ZSTD, Bodies, Header, TopicEntry
from hqueue.settings.limits import BATCH_BYTES_MAX

__all__ = ["CODECS", "compressed", "plain_cell"]

CODECS: Mapping[str, int] = {"none": PLAIN, "zstd": ZSTD}
"""The codecs that can be written, by name."""

BYTES_MIN = 1_024
"""Smaller cells are not compressed: it would hardly help, and any tool of HBase shows them as they
are.
"""

LEVEL = 1
"""docs/log-format.md has what it was compared with."""

PROBE_BYTES = 16 * 1024
SHARE_MAX = 7 / 8
"""A cell that does not shrink to this share is stored uncompressed: reading it would cost more than
it saves.
"""


def compressed(bodies: Bodies, codec: int) -> Bodies:
    """The bodies with their cells compressed, if that makes them much smaller and they are not so
    already.
    """
    if codec == PLAIN or bodies.codec != PLAIN or bodies.size < BYTES_MIN:
        return bodies
    largest = max(bodies.cells.values(), key=len)
    if len(largest) > 2 * PROBE_BYTES:  # A look into its middle, as it may be 8 MiB of noise.
        middle = len(largest) // 2
        probe = memoryview(largest)[middle : middle + PROBE_BYTES]
        if len(_compress(probe)) > SHARE_MAX * PROBE_BYTES:
            return bodies
    cells = {topic: _compress(cell) for topic, cell in bodies.cells.items()}
    if sum(map(len, cells.values())) > SHARE_MAX * bodies.size:
        return bodies
    return dataclasses.replace(bodies, cells=cells, codec=codec)


def plain_cell(row: bytes, header: Header, entry: TopicEntry, cell: bytes) -> bytes:
    """A cell as it was before it was compressed, compared with what its header says of it.

    Args:
        row: the row's key, for errors.
        header: the row's header.
        entry: the topic.
        cell: what lies in the row under this topic.

    Raises:
        CorruptLogError: it is not what was written.
    """
    if header.codec == ZSTD:
        cell = _decompress(row, entry, cell)
    check_cell(row, entry, cell)
    return cell


def _compress(data: bytes | memoryview) -> bytes:
    return _CONTEXTS.compressor.compress(data)


def _decompress(row: bytes, entry: TopicEntry, cell: bytes) -> bytes:
    # Nobody writes more; so a header or a frame that lies gets no more memory than honest ones.
    if entry.size <= BATCH_BYTES_MAX:
        try:
            if zstandard.frame_content_size(cell) == entry.size:
                return _CONTEXTS.decompressor.decompress(cell, allow_extra_data=False)
        except zstandard.ZstdError:
            pass
    raise CorruptLogError(
        "a topic's messages in a batch can't be decompressed", row=row.hex(), topic=entry.topic
    )


class _Contexts(threading.local):
    """What zstd works with: a thread's own, and used again."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=LEVEL)
        self.decompressor = zstandard.ZstdDecompressor()


_CONTEXTS = _Contexts()
