"""Batches: the bytes of a header and of the bodies.

A batch is one row. Its header lies in ``log:batch``, the bodies of each of its topics in
``message:<topic>``. A message's ID is the header's base plus the message's position in the batch.
`hqueue.format.header`, `hqueue.format.cells` and `hqueue.format.columns` draw the layouts;
`hqueue.format.compression` compresses. An unknown version, codec, flag or layout is an
`UnsupportedFormatError`.
"""

from hqueue.format.cells import (
    Column,
    bodies_of,
    check_count,
    check_size,
    control_record,
    decode_bodies,
    decode_headers,
    decode_keys,
    encode_bodies,
    encode_message,
    encode_values,
    offsets_at,
    positions,
)
from hqueue.format.compression import CODECS, compressed, plain_cell
from hqueue.format.control import encode_fences, fences_of, owners_of, with_owners
from hqueue.format.header import (
    CONTROL,
    FORMAT_1,
    FORMAT_2,
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
    "FORMAT_1",
    "FORMAT_2",
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
    "decode_headers",
    "decode_keys",
    "encode_bodies",
    "encode_fences",
    "encode_header",
    "encode_message",
    "encode_values",
    "fences_of",
    "offsets_at",
    "owners_of",
    "plain_cell",
    "positions",
    "with_owners",
]
