"""All records of a queue's topics, one after the other."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

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
from hqueue.runtime.steps import Give, Work, taken_in

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
) -> Work[Any, None]:
    """Work that gives the records of these kinds, as lists of `Entry`: kind by kind, by their keys'
    order. A record that can't be read is reported, and stops nothing.
    """
    unknown = set(kinds) - set(KINDS)
    if unknown:
        raise InvalidInputError("unknown kind of record", kind=min(unknown))
    for kind in filter(kinds.__contains__, KINDS):

        def entries(page: Sequence[tuple[str, Found]], kind: str = kind) -> Work[Any, None]:
            yield Give([_entry(layout, kind, key, found) for key, found in page])

        yield from taken_in(records.scan.asked(*layout.subtree(kind)), entries)


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
