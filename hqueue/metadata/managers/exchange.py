"""Records of topics' metadata out of a store, into one, and those of two compared.

A record as a document, which JSON has a line for:

    {"kind": "persistence", "queue": "q", "topic": "t", "version": 3, "ranges": {…},
     "access": {…}}
    {"kind": "subscription", "queue": "q", "topic": "t", "subscriber": "s", "version": 7,
     "preferences": {…}, "state": {…}, "principal": {…}}
    {"kind": "ownership", "queue": "q", "topic": "t", "version": 1, "owner": {…}}

What stands in the objects is in `hqueue.metadata.managers.encoding`. Versions are the store's own,
and mean nothing to another. Owners are not taken into a store: hubs elect them.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from hqueue.errors import (
    BadVersionError,
    InvalidInputError,
    MetadataError,
    SubscriptionStateExistsError,
    UnsupportedFormatError,
)
from hqueue.metadata.managers.encoding import (
    encode_owner_info,
    encode_persistence_info,
    encode_subscription,
)
from hqueue.metadata.managers.following import follow
from hqueue.metadata.managers.infos import (
    HubInfo,
    SubscriptionData,
    TopicPersistenceInfo,
    Versioned,
)
from hqueue.metadata.managers.layout import OWNERSHIP, PERSISTENCE, SUBSCRIPTION, Subject
from hqueue.metadata.managers.listing import KINDS, Entry, Info, decode_info
from hqueue.metadata.managers.opening import TopicMetadata
from hqueue.metadata.ports import NEW, Version
from hqueue.runtime.steps import Work

__all__ = [
    "Difference",
    "Imported",
    "compare_metadata",
    "import_infos",
    "read_document",
    "write_document",
]

TOGETHER = 256
MOVED = (PERSISTENCE, SUBSCRIPTION)
FIELDS = {
    OWNERSHIP: ("owner",),
    PERSISTENCE: ("ranges", "access"),
    SUBSCRIPTION: ("preferences", "state", "principal"),
}


class Imported(NamedTuple):
    """The result of importing a record."""

    subject: Subject
    result: str
    """``created``; ``unchanged``, if the store had it with the same content; ``overwritten``;
    ``skipped``, if it is an owner's record; or ``refused``."""
    reason: MetadataError | InvalidInputError | UnsupportedFormatError | None = None
    """The error if the record was refused; else None."""


class Difference(NamedTuple):
    """A record that differs between two stores."""

    key: str
    subject: Subject | None
    """The record's subject; None if hqueue did not make the key."""
    problem: str


def write_document(queue: str, subject: Subject, info: Info, version: Version) -> dict[str, Any]:
    """Convert a record into a document, which is a JSON object."""
    if isinstance(info, HubInfo):
        fields = encode_owner_info(info)
    elif isinstance(info, SubscriptionData):
        fields = encode_subscription(info)
    else:
        fields = encode_persistence_info(info)
    document: dict[str, Any] = {"kind": subject.kind, "queue": queue, "topic": subject.topic}
    if subject.subscriber is not None:
        document["subscriber"] = subject.subscriber
    document["version"] = version
    return document | {name: json.loads(value) for name, value in fields.items()}


def read_document(line: bytes | str) -> tuple[str, Subject, Info]:
    """Read a document that `write_document` made. Returns the queue, the record's subject, and the
    record's content.

    Raises:
        InvalidInputError: the line is not such a document.
        UnsupportedFormatError: a part of it has a version that this release does not know.
    """
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as exc:
        raise InvalidInputError("a record must be a JSON object") from exc
    if not isinstance(document, Mapping) or document.get("kind") not in KINDS:
        raise InvalidInputError(
            f"a record must be a JSON object with one of these kinds: {', '.join(KINDS)}"
        )
    kind = document["kind"]
    names = ["queue", "topic", *(["subscriber"] if kind == SUBSCRIPTION else [])]
    for name in names:
        if not isinstance(document.get(name), str):
            raise InvalidInputError(f"a record of this kind needs a {name}", kind=kind)
    subject = Subject(kind, *(document[name] for name in names[1:]))
    fields = {
        name: json.dumps(document[name], ensure_ascii=False).encode("utf-8", "surrogatepass")
        for name in FIELDS[kind]
        if name in document
    }
    return document["queue"], subject, decode_info(kind, fields, subject.topic)


def import_infos(
    metadata: TopicMetadata, infos: Iterable[tuple[Subject, Info]], *, overwrite: bool = False
) -> Iterator[Imported]:
    """Import records into a store, some hundred at a time. Yields the result of each, in their
    order.

    A record that is there already with the same content stays, so an interrupted import can be
    repeated.

    Args:
        metadata: the metadata of the store.
        infos: the records.
        overwrite: whether a record with other content is overwritten; otherwise it is refused. A
            record that another process changes at the same time is refused in any case.

    Raises:
        StoreUnavailableError: with an outcome.
    """
    given = iter(infos)
    while batch := [*itertools.islice(given, TOGETHER)]:
        yield from _import(metadata, batch, overwrite=overwrite)


def compare_metadata(first: TopicMetadata, second: TopicMetadata) -> Iterator[Difference]:
    """Find the records that differ between two stores, and those that can't be read in one. Owners
    are not compared.

    If records change meanwhile, a difference may be returned that does not exist any more.
    """
    for entry, other in _pairs(first, second):
        if isinstance(entry.found, UnsupportedFormatError):
            yield _difference(entry, f"it can't be read in {first.store}: {entry.found}")
        elif isinstance(other, UnsupportedFormatError):
            yield _difference(entry, f"it can't be read in {second.store}: {other}")
        elif other is None:
            yield _difference(entry, f"it is in {first.store} only")
        elif entry.found.value != other.value:
            yield _difference(entry, f"{first.store} and {second.store} differ")
    for entry, other in _pairs(second, first):
        if other is not None:
            continue  # It was compared.
        if isinstance(entry.found, UnsupportedFormatError):
            yield _difference(entry, f"it can't be read in {second.store}: {entry.found}")
        else:
            yield _difference(entry, f"it is in {second.store} only")


def _import(
    metadata: TopicMetadata, batch: list[tuple[Subject, Info]], *, overwrite: bool
) -> list[Imported]:
    """All of them at once: while one waits for its answer the others ask."""
    results = [
        follow(_taken_in(metadata, subject, info, overwrite=overwrite)) for subject, info in batch
    ]
    return [each.result() for each in results]


def _taken_in(
    metadata: TopicMetadata, subject: Subject, info: Info, *, overwrite: bool
) -> Work[Any, Imported]:
    """Take one record in."""
    if subject.kind == OWNERSHIP:
        return Imported(subject, "skipped")
    try:
        try:
            yield from _write(metadata, subject, info, NEW)
        except (BadVersionError, SubscriptionStateExistsError):
            known = yield from _find(metadata, subject)
            if known is not None and known.value == info:
                return Imported(subject, "unchanged")
            if known is None or not overwrite:
                raise
            yield from _write(metadata, subject, info, known.version)
            return Imported(subject, "overwritten")
    except (MetadataError, InvalidInputError, UnsupportedFormatError) as exc:
        return Imported(subject, "refused", exc)
    return Imported(subject, "created")


def _write(
    metadata: TopicMetadata, subject: Subject, info: Info, version: Version
) -> Work[Any, Version]:
    """Write a record if it is of this version; `NEW`: if there is none."""
    topic, subscriber = subject.topic, subject.subscriber
    if isinstance(info, SubscriptionData):
        assert subscriber is not None
        manager = metadata.subscriptions
        if version == NEW:
            return manager.create_subscription_data.steps(topic, subscriber, info)
        return manager.replace_subscription_data.steps(topic, subscriber, info, version)
    assert not isinstance(info, HubInfo)
    return metadata.persistence.write_topic_persistence_info.steps(topic, info, version)


def _find(
    metadata: TopicMetadata, subject: Subject
) -> (
    Work[Any, Versioned[SubscriptionData] | None]
    | Work[Any, Versioned[TopicPersistenceInfo] | None]
):
    if subject.subscriber is not None:
        read = metadata.subscriptions.read_subscription_data
        return read.steps(subject.topic, subject.subscriber)
    return metadata.persistence.read_topic_persistence_info.steps(subject.topic)


def _pairs(
    first: TopicMetadata, second: TopicMetadata
) -> Iterator[tuple[Entry, Versioned[Any] | UnsupportedFormatError | None]]:
    """The records of the first store, each with that of the second."""
    entries = first.entries(MOVED)
    while batch := [*itertools.islice(entries, TOGETHER)]:
        asked = [
            None if each.subject is None else follow(_find(second, each.subject)) for each in batch
        ]
        for entry, future in zip(batch, asked, strict=True):
            try:
                yield entry, None if future is None else future.result()
            except UnsupportedFormatError as exc:
                yield entry, exc


def _difference(entry: Entry, problem: str) -> Difference:
    return Difference(entry.key, entry.subject, problem)
