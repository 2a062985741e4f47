"""All records of a queue's topics, one after the other."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from hqueue.errors import InvalidInputError, UnsupportedFormatError
from hqueue.metadata.fields import FieldRecord, FieldRecords, Fields, Found
from hqueue.metadata.managers.encoding import (
    decode_owner_info,
    decode_persistence_info,
    decode_subscription,
)
from hqueue.metadata.managers.infos import (
    HubInfo,
    SubscriptionData,
    TopicPersistenceInfo,
    Versioned,
)
from hqueue.metadata.managers.layout import (
    OWNERSHIP,
    PERSISTENCE,
    SUBSCRIPTION,
    Layout,
    Subject,
)

__all__ = ["KINDS", "Entry", "Info", "decode_info", "list_entries"]

KINDS = (PERSISTENCE, SUBSCRIPTION, OWNERSHIP)

Info = HubInfo | TopicPersistenceInfo | SubscriptionData
"""The content of a record."""


class Entry(NamedTuple):
    """A record and its key."""

    key: str
    subject: Subject | None
    """The record's subject; None if hqueue did not make the key. The record can't be read then,
    either."""
    found: Versioned[Info] | UnsupportedFormatError
    """The record's content, or the error if it can't be read."""


def list_entries(
    records: FieldRecords, layout: Layout, kinds: Collection[str] = KINDS
) -> Iterator[Entry]:
    """The records of these kinds, kind by kind, by their keys' order. What can't be read is named,
    and stops nothing.
    """
    unknown = set(kinds) - set(KINDS)
    if unknown:
        raise InvalidInputError("unknown kind of record", kind=min(unknown))
    for kind in KINDS:
        if kind in kinds:
            subtree = layout.subtree(kind)
            for key, found in records.scan(*subtree):
                yield _entry(layout, kind, key, found)


def decode_info(kind: str, fields: Fields, path: str) -> Info:
    """What the fields of a record of a kind say.

    Raises:
        UnsupportedFormatError: they can't be read.
    """
    if kind == OWNERSHIP:
        return decode_owner_info(fields, path)
    if kind == PERSISTENCE:
        return decode_persistence_info(fields, path)
    return decode_subscription(fields, path)


def _entry(layout: Layout, kind: str, key: str, found: Found) -> Entry:
    subject = layout.subject(key)
    if subject is None or subject.kind != kind:
        return Entry(
            key,
            None,
            UnsupportedFormatError("this node or row is not a record of hqueue", path=key),
        )
    if not isinstance(found, FieldRecord):
        return Entry(key, subject, found)
    try:
        info = decode_info(kind, found.fields, key)
    except UnsupportedFormatError as exc:
        return Entry(key, subject, exc)
    return Entry(key, subject, Versioned(info, found.version))
