"""Batches: the bytes of a header and of the bodies.

A batch is one row. Its header lies in ``log:batch``, the bodies of each of its topics in
``message:<topic>``. A message's ID is the header's base plus the message's position in the batch.
`hqueue.format.header` and `hqueue.format.cells` draw the layouts; `hqueue.format.compression`
compresses. An unknown version, codec, flag or layout is an `UnsupportedFormatError`.
"""

from hqueue.format.cells import (
    Column,
    bodies_of,
    check_count,
    check_size,
    control_record,
    decode_bodies,
    encode_bodies,
    encode_values,
    positions,
)
from hqueue.format.compression import CODECS, compressed, plain_cell
from hqueue.format.header import (
    CONTROL,
    FORMAT_VERSION,
    MESSAGES,
    NONCE_BYTES,
    PACKED,
    PLAIN,
    RAW,
    SCATTERED,
    ZSTD,
    Bodies,
    Header,
    TopicEntry,
    decode_header,
    encode_header,
)

__all__ = [
    "CODECS",
    "CONTROL",
    "FORMAT_VERSION",
    "MESSAGES",
    "NONCE_BYTES",
    "PACKED",
    "PLAIN",
    "RAW",
    "SCATTERED",
    "ZSTD",
    "Bodies",
    "Column",
    "Header",
    "TopicEntry",
    "bodies_of",
    "check_count",
    "check_size",
    "compressed",
    "control_record",
    "decode_bodies",
    "decode_header",
    "encode_bodies",
    "encode_header",
    "encode_values",
    "plain_cell",
    "positions",
]
