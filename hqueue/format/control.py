"""What hubs record in headers about the topics that they own.

A control record: which topics have another owner from here on.

    payload, its numbers big-endian
     0       1     version            1
     1       2     topics             entries, at least 1
     3       …     entries            one a topic, ascending by the topic's bytes

    an entry
     0       8     epoch              that of the topic's owner from here on
     8       1     length             bytes of the topic
     9       …     topic              UTF-8

A batch of messages that a hub appended: by which ownership of each topic. A batch that somebody put
into the queue has no such payload, so it is nothing of a topic that has an owner, whatever its
messages say.

    payload
     0       1     version            1
     1       …     epochs             8 bytes for each entry of the directory, in its order: that of
                                      the topic's owner, who appended this

Readers that don't know it pass over it. The header that carries either has its checksum.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterator, Mapping

from hqueue.errors import CorruptLogError, InvalidInputError, UnsupportedFormatError
from hqueue.format.cells import CONTROL_BYTES_MAX, control_record
from hqueue.format.header import EPOCH_MAX, MESSAGES, OWNERS_VERSION, Bodies, Header
from hqueue.message import topic_bytes
from hqueue.settings.numbers import check_whole

__all__ = [
    "EPOCH_MAX",
    "FENCES_VERSION",
    "OWNERS_VERSION",
    "encode_fences",
    "fences_of",
    "owners_of",
    "with_owners",
]

FENCES_VERSION = 1

_PAYLOAD = struct.Struct(">BH")
_ENTRY = struct.Struct(">QB")
TOPICS_MAX = 2**16 - 1


def encode_fences(epochs: Mapping[str, int]) -> Iterator[Bodies]:
    """Control records that say of each topic its owner's epoch; as many as they fill.

    Raises:
        InvalidInputError: there is no topic, or a name or an epoch can't be. Before the first
            record is given.
    """
    if not epochs:
        raise InvalidInputError("a control record needs at least one topic")
    entries = sorted((topic_bytes(topic), epoch) for topic, epoch in epochs.items())
    for _, epoch in entries:
        check_whole(epoch, 0, EPOCH_MAX, option="epoch")
    return _records(entries)


def fences_of(row: bytes, payload: bytes) -> dict[str, int]:
    """The topics of the control record in a row, and the epoch of each one's owner from there on.

    Raises:
        UnsupportedFormatError: its version is not known here.
        CorruptLogError: it isn't what an owner wrote. Both name the row.
    """
    if payload and payload[0] != FENCES_VERSION:
        raise UnsupportedFormatError(
            "unknown version of a control record; a newer release may read it",
            row=row.hex(),
            version=payload[0],
        )
    epochs: dict[str, int] = {}
    try:
        _, count = _PAYLOAD.unpack_from(payload)
        at, before = _PAYLOAD.size, b""
        for _ in range(count):
            epoch, length = _ENTRY.unpack_from(payload, at)
            at += _ENTRY.size + length
            name = struct.unpack_from(f"{length}s", payload, at - length)[0]
            if name <= before or epoch > EPOCH_MAX:
                raise CorruptLogError("a control record contradicts itself", row=row.hex())
            epochs[name.decode()] = epoch
            before = name
    except (struct.error, UnicodeDecodeError) as exc:
        raise CorruptLogError("a control record is cut off", row=row.hex()) from exc
    if not epochs or at != len(payload):
        raise CorruptLogError("a control record contradicts itself", row=row.hex())
    return epochs


def with_owners(bodies: Bodies, epochs: Mapping[str, int]) -> Bodies:
    """A batch of messages that carries the epoch of each of its topics' owners.

    Args:
        bodies: the batch.
        epochs: of each of its topics.

    Raises:
        InvalidInputError: it has no messages, or an epoch can't be.
    """
    if bodies.kind != MESSAGES:
        raise InvalidInputError(
            "only a batch of messages can carry the epochs of topics' owners", kind=bodies.kind
        )
    of_entries = [
        check_whole(epochs[topic.decode()], 0, EPOCH_MAX, option="epoch") for topic in bodies.cells
    ]
    payload = struct.pack(f">B{len(of_entries)}Q", OWNERS_VERSION, *of_entries)
    return dataclasses.replace(bodies, control=payload)


def owners_of(row: bytes, header: Header) -> dict[str, int]:
    """The topics of a batch that their owners appended, and the epoch of each one's owner; none
    where it is not by owners.

    Raises:
        UnsupportedFormatError: its version is not known here.
        CorruptLogError: it isn't what an owner wrote. Both name the row.
    """
    try:
        return header.owner_epochs
    except CorruptLogError as exc:
        exc.facts["row"] = row.hex()
        raise


def _records(entries: list[tuple[bytes, int]]) -> Iterator[Bodies]:
    held: list[bytes] = []
    room = CONTROL_BYTES_MAX - _PAYLOAD.size
    for name, epoch in entries:
        entry = _ENTRY.pack(epoch, len(name)) + name
        if len(entry) > room or len(held) == TOPICS_MAX:
            yield _record(held)
            held, room = [], CONTROL_BYTES_MAX - _PAYLOAD.size
        held.append(entry)
        room -= len(entry)
    yield _record(held)


def _record(entries: list[bytes]) -> Bodies:
    return control_record(_PAYLOAD.pack(FENCES_VERSION, len(entries)) + b"".join(entries))
