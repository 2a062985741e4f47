"""Rows of a queue's table: valid ones, and what becomes of them.

A checksum stops nearly every damage at once. So some rows are mended after they were damaged:
the directory gets the sizes and checksums of the cells as they are, and the header a checksum that
fits. What such a row says is nonsense that a faulty writer could have written.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import zstandard
from hypothesis import strategies as st

from hqueue.format.cells import control_record, encode_bodies
from hqueue.format.compression import compressed
from hqueue.format.header import ZSTD, Bodies, encode_header
from tests.support.batches import bodies_lists

from .damage import NUMBERS, Damage, damaged, damages

__all__ = ["GOLDEN", "Forgery", "Stored", "batches", "forgeries", "written"]

FIXED = (
    (2, 1),
    (3, 1),
    (4, 1),
    (5, 1),
    (6, 2),
    (8, 8),
    (16, 4),
    (20, 4),
    (24, 8),
    (40, 8),
    (48, 4),
)
"""Offset and width of the numbers of a header, as `hqueue.format` draws them."""

ENTRY = ((0, 4), (4, 4), (8, 4), (12, 4), (16, 1), (17, 1))
"""Those of an entry of the directory."""

COLUMNS = ((18, 4), (22, 4))
"""Those that an entry has in format 2 beside them."""

DIRECTORY_AT = 52
ENTRY_BYTES = {1: 18, 2: 26}
"""By the version of the format."""


@dataclasses.dataclass(frozen=True, slots=True)
class Stored:
    """A row: its key, and its cells by topic."""

    key: bytes
    header: bytes
    cells: Mapping[bytes, bytes]


GOLDEN = [
    Stored(
        bytes.fromhex(batch["row"]),
        bytes.fromhex(batch["header"]),
        {topic.encode(): bytes.fromhex(cell) for topic, cell in batch["cells"].items()},
    )
    for version in ("v1", "v2")
    for batch in json.loads(
        (Path(__file__).parents[1] / "golden" / f"{version}.json").read_text(encoding="utf-8")
    )["batches"]
]

batches: st.SearchStrategy[Bodies] = st.one_of(
    bodies_lists.map(encode_bodies),
    st.builds(
        lambda bodies, times: compressed(encode_bodies(bodies * times), ZSTD),
        bodies_lists,
        st.integers(20, 60),
    ),
    st.binary(max_size=20).map(control_record),
)
"""What writers append."""


@dataclasses.dataclass(frozen=True, slots=True)
class Forgery:
    """What is done to a row.

    Args:
        cells: damage to the cell of each topic in turn.
        mends_directory: whether the directory gets the cells' new sizes and checksums.
        numbers: (which number of the header, its new value).
        header: damage to the header's bytes.
        signs: whether the header gets a checksum that fits.
        key: damage to the row key.
        drops: leaves out the cell of this topic, counted modulo one more than there are.
        renames: puts that cell back under this topic, which may be none.
    """

    cells: Sequence[Sequence[Damage]]
    mends_directory: bool
    numbers: Sequence[tuple[int, int]]
    header: Sequence[Damage]
    signs: bool
    key: Sequence[Damage]
    drops: int
    renames: bytes

    def apply(self, row: Stored, donor: bytes = b"") -> Stored:
        """The forged row."""
        key = damaged(row.key, self.key)
        cells = dict(row.cells)
        for topic, done in zip(row.cells, self.cells, strict=False):
            cells[topic] = damaged(cells[topic], done, donor)
        header = bytearray(row.header)
        entries = _entries(row.header)
        if self.mends_directory:
            for at, topic in entries:
                if topic in cells:
                    size = int.from_bytes(header[at + 8 : at + 12], "big")
                    plain = _plain(cells[topic], header[4], size)
                    header[at + 8 : at + 16] = struct.pack(">II", len(plain), zlib.crc32(plain))
        numbers = ENTRY if row.header[2] == 1 else ENTRY + COLUMNS
        places = [*FIXED, *((at + more, width) for at, _ in entries for more, width in numbers)]
        for index, number in self.numbers:
            at, width = places[index % len(places)]
            header[at : at + width] = number.to_bytes(8, "big")[-width:]
        data = damaged(bytes(header), self.header, donor)
        if self.signs and len(data) >= 4:
            data = data[:-4] + struct.pack(">I", zlib.crc32(data[:-4], zlib.crc32(key)))
        names = [*cells]
        dropped = self.drops % (len(names) + 1)
        if dropped < len(names):
            cell = cells.pop(names[dropped])
            if self.renames:
                cells[self.renames] = cell
        return Stored(key, data, cells)


def _plain(cell: bytes, codec: int, size: int) -> bytes:
    """What the directory speaks of, if it can be had."""
    if codec == ZSTD:
        with contextlib.suppress(zstandard.ZstdError):
            return zstandard.ZstdDecompressor().decompress(cell, max_output_size=size)
    return cell


def _entries(header: bytes) -> list[tuple[int, bytes]]:
    """Where the entries of a valid header's directory lie, and their topics."""
    found, at = [], DIRECTORY_AT
    for _ in range(int.from_bytes(header[6:8], "big")):
        name_at = at + ENTRY_BYTES[header[2]]
        name = header[name_at : name_at + header[at + 17]]
        found.append((at, name))
        at = name_at + len(name)
    return found


_nothing = st.just(())
_whole = Forgery((), False, (), (), True, (), -1, b"")
_cells = st.lists(damages(2), min_size=1, max_size=3)
_numbers = st.lists(st.tuples(st.integers(0, 40), NUMBERS), min_size=1, max_size=3)

forgeries: st.SearchStrategy[Forgery] = st.one_of(
    # One thing at a time, with all else made to fit: it gets furthest.
    st.builds(lambda cells: dataclasses.replace(_whole, cells=cells, mends_directory=True), _cells),
    st.builds(lambda numbers: dataclasses.replace(_whole, numbers=numbers), _numbers),
    st.builds(lambda header: dataclasses.replace(_whole, header=header), damages(3)),
    st.builds(
        Forgery,
        cells=_cells | _nothing,
        mends_directory=st.booleans(),
        numbers=_numbers | _nothing,
        header=damages(2) | _nothing,
        signs=st.booleans(),
        key=damages(1) | _nothing,
        drops=st.integers(-1, 3),
        renames=st.sampled_from([b"", b"\xff", b"a", b"t"]),
    ),
)


def written(bodies: Bodies, key: bytes, *, base: int, ordinal: int) -> Stored:
    """The row that a writer makes of a batch."""
    header = encode_header(
        key, bodies, base=base, ordinal=ordinal, nonce=b"noncenon", published_ms=base >> 15
    )
    return Stored(key, header, bodies.cells)
