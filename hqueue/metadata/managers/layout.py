"""The keys of topics' metadata, in each kind of store.

In ZooKeeper the tree is Hedwig's; a queue is a Hedwig region:

    <root>/regions/<queue>/topics/<topic>                           the ranges of its messages
    <root>/regions/<queue>/topics/<topic>/hub                       ephemeral: its owner
    <root>/regions/<queue>/topics/<topic>/subscribers/<subscriber>  a subscription

In a store of sorted rows each kind has its own prefix, so that one kind can be listed without
reading the others; a topic's subscriptions lie together:

    <root>/regions/<queue>/topics/<topic>
    <root>/regions/<queue>/owners/<topic>
    <root>/regions/<queue>/subscriptions/<topic>/<subscriber>

Characters of names that no segment may have are escaped as in URLs. After a move to another store
all records lie in a location with a number: below ``<root>/regions/<queue>/places/<number>``.
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple

from hqueue.errors import InvalidInputError
from hqueue.message import topic_bytes
from hqueue.settings.attributes import check_queue_name
from hqueue.settings.limits import NAME_LENGTH_MAX

__all__ = [
    "OWNERSHIP",
    "PERSISTENCE",
    "SUBSCRIPTION",
    "Layout",
    "Rows",
    "Subject",
    "Subtree",
    "Tree",
    "key_in",
    "owners_generation",
    "places",
    "segment",
    "segment_name",
    "subtree_in",
]

_PLAIN = re.compile("[A-Za-z0-9_:-]+")

OWNERSHIP, PERSISTENCE, SUBSCRIPTION = "ownership", "persistence", "subscription"
"""The kinds of records."""


class Subtree(NamedTuple):
    """The keys of all records of a kind: a prefix, and the number of segments below it."""

    prefix: str
    depth: int


class Subject(NamedTuple):
    """The subject of a record: its kind, its topic, and its subscriber."""

    kind: str
    topic: str
    subscriber: str | None = None


class Layout:
    """The keys of one queue's records. Invalid names raise an `InvalidInputError`."""

    _patterns: ClassVar[Mapping[str, str]]
    """The pattern of each kind's keys below the queue, with ``*`` for names."""

    def __init__(self, root: str, queue: str, number: int = 0) -> None:
        self.prefix = _prefix(root, queue, number)
        """The prefix of all keys."""
        self.topics = f"{self.prefix}/topics"
        """The prefix of the keys of `ranges`, which lie one segment below it."""

    def ranges(self, topic: str) -> str:
        return self.key(Subject(PERSISTENCE, topic))

    def owner(self, topic: str) -> str:
        return self.key(Subject(OWNERSHIP, topic))

    def subscription(self, topic: str, subscriber: str) -> str:
        return self.key(Subject(SUBSCRIPTION, topic, subscriber))

    def subscriptions(self, topic: str) -> str:
        """The prefix of a topic's subscriptions, which lie one segment below it."""
        return self.subscription(topic, "-").removesuffix("/-")

    def key(self, subject: Subject) -> str:
        key = self._patterns[subject.kind].replace("*", _topic(subject.topic), 1)
        if subject.kind == SUBSCRIPTION:
            key = key.removesuffix("*") + _subscriber(subject.subscriber)
        return f"{self.prefix}/{key}"

    def subtree(self, kind: str) -> Subtree:
        """The subtree of all records of a kind. It may have other records, too."""
        above, _, below = self._patterns[kind].partition("/")
        return Subtree(f"{self.prefix}/{above}", below.count("/") + 1)

    def subject(self, key: str) -> Subject | None:
        """The subject of the record at a key; None if hqueue did not make the key."""
        parts = key.removeprefix(f"{self.prefix}/").split("/")
        for kind, pattern in self._patterns.items():
            wanted = pattern.split("/")
            if len(parts) == len(wanted) and all(map(_fits, parts, wanted)):
                names = [segment_name(p) for p, at in zip(parts, wanted, strict=True) if at == "*"]
                return None if None in names else Subject(kind, *filter(None, names))
        return None


class Tree(Layout):
    """The `Layout` of a tree of nodes."""

    _patterns: ClassVar = {
        PERSISTENCE: "topics/*",
        OWNERSHIP: "topics/*/hub",
        SUBSCRIPTION: "topics/*/subscribers/*",
    }

    def leading(self, key: str) -> Sequence[str]:
        """The empty nodes to create with a record: for a topic, the parent of its subscriptions."""
        is_topic = key.count("/") == self.topics.count("/") + 1
        return (f"{key}/subscribers",) if is_topic else ()


class Rows(Layout):
    """The `Layout` of sorted rows."""

    _patterns: ClassVar = {
        PERSISTENCE: "topics/*",
        OWNERSHIP: "owners/*",
        SUBSCRIPTION: "subscriptions/*/*",
    }


def owners_generation(key: str) -> str:
    """The node of a tree that is written whenever an owner's record is created at a key: the parent
    of the topic's subscriptions. It has no value, and is deleted only with the queue.
    """
    return f"{key.rpartition('/')[0]}/subscribers"


def key_in(layout: Layout, key: str, *, of: Layout) -> str:
    """Translate a key of another layout into a key of this one. A key that hqueue did not make
    stays as it is.
    """
    subject = None if layout is of else of.subject(key)
    return key if subject is None else layout.key(subject)


def subtree_in(layout: Layout, prefix: str, depth: int, *, of: Layout) -> Subtree:
    """Translate a subtree of another layout: all records of a kind, or a topic's subscriptions.

    Raises:
        InvalidInputError: the subtree is neither.
    """
    if layout is of:
        return Subtree(prefix, depth)
    for kind in (OWNERSHIP, PERSISTENCE, SUBSCRIPTION):
        if of.subtree(kind) == (prefix, depth):
            return layout.subtree(kind)
    subject = of.subject(f"{prefix}/-")
    if depth != 1 or subject is None or subject.kind != SUBSCRIPTION:
        raise InvalidInputError(
            "this key does not hold records of topics", path=prefix, depth=depth
        )
    return Subtree(layout.subscriptions(subject.topic), 1)


def segment(name: str) -> str:
    """A name as a segment of a key."""
    if _PLAIN.fullmatch(name):  # As most are: quoting takes ten times as long.
        return name
    escaped = urllib.parse.quote(name, safe=":")
    return escaped.replace(".", "%2E") if name in (".", "..") else escaped


def segment_name(part: str) -> str | None:
    """The name that a segment stands for; None if hqueue did not make the segment."""
    name = urllib.parse.unquote(part)
    return name if name and segment(name) == part else None


def places(root: str, queue: str) -> str:
    """The prefix of all records that were moved to another store."""
    return f"{root}/regions/{check_queue_name(queue)}/places"


def _prefix(root: str, queue: str, number: int) -> str:
    above = places(root, queue)
    return f"{above}/{number:d}" if number else above.rpartition("/")[0]


def _fits(part: str, wanted: str) -> bool:
    return wanted in ("*", part)


def _topic(topic: str) -> str:
    topic_bytes(topic)
    return segment(topic)


def _subscriber(subscriber: object) -> str:
    if not isinstance(subscriber, str) or not 1 <= len(subscriber) <= NAME_LENGTH_MAX:
        raise InvalidInputError(
            "a subscriber's name must be a string of 1 to 200 characters", subscriber=subscriber
        )
    try:
        return segment(subscriber)
    except UnicodeEncodeError as exc:
        raise InvalidInputError(
            "the name can't be encoded as UTF-8", subscriber=subscriber
        ) from exc
