"""Batches: the bytes of a header and of the bodies.

A batch is one row. Its header lies in ``log:batch``, the bodies of each of its topics in
``message:<topic>``. A message's ID is the header's base plus the message's position in the batch.
`hqueue.batch.header` and `hqueue.batch.cells` draw the layouts. An unknown version, flag or layout
is an `UnsupportedFormatError`.
"""

from hqueue.batch.cells import (
    Bodies,
    Column,
    bodies_of,
    check_cell,
    check_count,
    check_size,
    control_record,
    decode_bodies,
    encode_bodies,
    positions,
)
from hqueue.batch.header import (
    CONTROL,
    FORMAT_VERSION,
    MESSAGES,
    NONCE_BYTES,
    PACKED,
    RAW,
    SCATTERED,
    Header,
    TopicEntry,
    decode_header,
    encode_header,
)

__all__ = [
    "CONTROL",
    "FORMAT_VERSION",
    "MESSAGES",
    "NONCE_BYTES",
    "PACKED",
    "RAW",
    "SCATTERED",
    "Bodies",
    "Column",
    "Header",
    "TopicEntry",
    "bodies_of",
    "check_cell",
    "check_count",
    "check_size",
    "control_record",
    "decode_bodies",
    "decode_header",
    "encode_bodies",
    "encode_header",
    "positions",
]
