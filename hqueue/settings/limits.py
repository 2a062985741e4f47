"""Every fixed bound of the log's format and of the library, in one place."""

from __future__ import annotations

PARTITIONS_MAX = 32_767
"""Partitions of a queue: partition IDs are 0 to 32,766, so a row key never begins with 0xff."""

SEQUENCE_BITS = 15
SEQUENCE_MAX = (1 << SEQUENCE_BITS) - 1
"""Messages under one timestamp have the sequences 0 to 32,767, as in Alibaba's HQueue."""

TIMESTAMP_MS_MAX = (1 << 48) - 1
"""A timestamp fits 48 bits (the year 10889), so that a MessageID fits a signed 64-bit integer."""

MESSAGE_ID_MAX = (TIMESTAMP_MS_MAX << SEQUENCE_BITS) | SEQUENCE_MAX

TOPIC_BYTES_MAX = 255
"""UTF-8 bytes of a topic's name: it is an HBase qualifier, repeated in every row and header."""

NAME_BYTES_MAX = 1_024
"""Of a text in a call that names something, before anything is done with it. All names are shorter;
what each may have is checked beside it.
"""

APPLICATION_MAX = 100
"""Preferences of an application's own that are kept with a subscription."""

HOST_LENGTH_MAX = 253
"""Of a host's name, as the DNS has it."""

TOPICS_PER_BATCH_MAX = 1_024

BATCH_MESSAGES_MAX = 65_536

REASON_LENGTH_MAX = 1_000
"""Characters that a dead letter says of why it is one."""

BATCH_HEADERS_MAX = 262_144
"""Headers of all messages of one batch, but for the system's own: four for each of as many messages
as a batch has. Those of 8 MiB that are empty would be a million, and a call with them takes half a
gigabyte where it is read."""

OWN_HEADERS_MAX = 16
"""Headers of one message that are the system's own, at most."""

CALL_HEADERS_MAX = BATCH_HEADERS_MAX + OWN_HEADERS_MAX
"""Headers of all messages of one call that every process which listens takes: of whatever is put,
and of whatever is delivered."""

BATCH_BYTES_MAX = 8 * 1024 * 1024
"""Bodies and their offsets of one batch. HBase refuses cells of 10 MiB and more."""

HEADER_ROOM_BYTES = BATCH_BYTES_MAX // 2 // BATCH_HEADERS_MAX
"""What cuts batches by their bytes, half of `BATCH_BYTES_MAX` at most, counts this many for each
header beside its own: so none gets more headers than a batch may have."""

QUEUE_NAME_LENGTH_MAX = 200

NAME_LENGTH_MAX = 200
"""Of the name of a subscriber, a worker, a producer or a principal."""

TTL_SECONDS_MIN = 60
TTL_SECONDS_MAX = 2**31 - 1
"""HBase keeps a family's TTL as a signed 32-bit number of seconds; this value means 'forever'."""

HEADER_GRACE_MS = 3_600_000
"""A header is collected when its bodies expired this long ago. It is far longer than any request
can be under way, so that no late put can find a slot empty that was filled once."""

TAIL_TRUST_MS = 1_000
"""How long a cached tail may be used after the last successful contact with its partition."""

ANSWER_BYTES_MAX = 1024 * 1024 * 1024
"""What one answer of a gateway may have. No request asks for this much."""

SCAN_BYTES_MAX = ANSWER_BYTES_MAX // 2
"""What a scanner may be set to hold at a time."""

TRUNCATE_PAUSE_MS = 3_000
"""How long truncation keeps a queue disabled: longer than `TAIL_TRUST_MS`."""
