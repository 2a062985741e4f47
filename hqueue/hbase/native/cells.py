"""Cell blocks: rows' cells one after the other, as HBase's KeyValueCodec writes them.

offset  size  field                big-endian
0       4     length of what follows
4       4     length of the key    ┐
8       4     length of the value  │
12      2     length of the row    ┘
14      …     row
…       1     length of the family
…       …     family, and then qualifier: what is left of the key but for 9 bytes
…       8     timestamp            ┐ 2^63 - 1 in a put: the server's now
…       1     type, 4 for a put    ┘
…       …     value
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["Cell", "CellReader", "put_cells"]

_LENGTHS = struct.Struct(">IIIH")
_TAIL = struct.Struct(">QB")
_NOW_AND_PUT = _TAIL.pack(2**63 - 1, 4)


class Cell(NamedTuple):
    """A cell as it was read."""

    row: bytes
    family: bytes
    qualifier: bytes
    timestamp_ms: int
    value: memoryview
    """A view of the answer's frame."""


def put_cells(
    row: bytes, values: Iterable[tuple[bytes, bytes, bytes]]
) -> tuple[list[bytes], int, int]:
    """The cells of a put.

    Args:
        row: their row.
        values: family, qualifier and value of each.

    Returns:
        Pieces of a cell block, values as they are; their bytes together; the number of cells.
    """
    pieces: list[bytes] = []
    size = count = 0
    for family, qualifier, value in values:
        key = 12 + len(row) + len(family) + len(qualifier)
        lengths = _LENGTHS.pack(8 + key + len(value), key, len(value), len(row))
        front = b"".join((lengths, row, bytes((len(family),)), family, qualifier, _NOW_AND_PUT))
        pieces += (front, value)
        size += len(front) + len(value)
        count += 1
    return pieces, size, count


class CellReader:
    """Takes cells off a cell block, in order.

    Args:
        block: the block. The cells' values are views of it.
    """

    def __init__(self, block: memoryview) -> None:
        self._block = block
        self._at = 0

    def take(self, count: int) -> list[Cell]:
        """The next cells, this many.

        Raises:
            ValueError: there are not this many, or they are none.
        """
        block, at, cells = self._block, self._at, []
        if count > len(block):
            raise ValueError("a cell block has fewer cells than it should")
        for _ in range(count):
            try:
                total, key, size, row = _LENGTHS.unpack_from(block, at)
                family = block[at + 14 + row]
            except (struct.error, IndexError) as exc:
                raise ValueError("a cell block is cut off") from exc
            begin = at + 14
            first = begin + row + 1
            end = at + 12 + key
            if total != 8 + key + size or first + family > end - 9 or end + size > len(block):
                raise ValueError("a cell's lengths contradict each other")
            timestamp_ms, _ = _TAIL.unpack_from(block, end - 9)
            cells.append(
                Cell(
                    bytes(block[begin : begin + row]),
                    bytes(block[first : first + family]),
                    bytes(block[first + family : end - 9]),
                    timestamp_ms,
                    block[end : end + size],
                )
            )
            at = end + size
        self._at = at
        return cells

    def finish(self) -> None:
        """Check that all cells were taken.

        Raises:
            ValueError: cells are left.
        """
        if self._at != len(self._block):
            raise ValueError("a cell block has more cells than it should")
