"""Publishing once: which messages, numbered by their publishers, are in a topic already."""

from __future__ import annotations

import collections
import threading
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from hqueue import BufferFullError, Message
from hqueue.metadata.records import is_name
from hqueue.settings.numbers import is_whole, whole_number
from hqueue_workers.hub.writing.owned_topic import (
    Numbered,
    OwnedTopic,
    Publish,
    UnknownNumbersError,
)

__all__ = [
    "NUMBER",
    "NUMBER_MAX",
    "PUBLISHER",
    "Newest",
    "Numbers",
    "newest_of",
    "numbered_messages",
]

PUBLISHER, NUMBER = "hqueue.publisher", "hqueue.number"
"""The headers that say so. The number is in decimal digits."""

NUMBER_MAX = 2**63 - 1

PUBLISHERS_MAX = 65_536
"""Remembered for a partition; some 20 MB."""


class Newest(NamedTuple):
    """A publisher's newest message in a topic."""

    number: int
    id: int


def numbered_messages(
    messages: Sequence[Message], numbered: Numbered | None
) -> tuple[Sequence[Message], int]:
    """Messages as they are stored, and their size. Those that come have no headers of the system's
    own.
    """
    made = messages
    if numbered is not None:
        publisher = numbered.publisher.encode()
        made = [
            Message(
                message.topic,
                message.value,
                message.key,
                (*message.headers, (PUBLISHER, publisher), (NUMBER, b"%d" % number)),
            )
            for number, message in enumerate(messages, numbered.number)
        ]
    return made, sum(message.size for message in made)


def newest_of(
    messages: Iterable[Message],
    publishers_max: int | None = None,
    only: Container[str] | None = None,
) -> dict[str, Newest]:
    """The newest numbered message of each publisher among some that were read; or of the `only`
    ones that are looked for.

    Raises:
        BufferFullError: there are more publishers.
    """
    found: dict[str, Newest] = {}
    for message in messages:
        if not message.headers:
            continue
        headers = dict(message.headers)
        name, number = headers.get(PUBLISHER, b"").decode("ascii", "replace"), _number_of(headers)
        if number is None or not is_name(name) or (only is not None and name not in only):
            continue
        if name not in found or found[name].number < number:
            found[name] = Newest(number, int(message.id))  # type: ignore[attr-defined]
            if publishers_max is not None and len(found) > publishers_max:
                raise BufferFullError(
                    "more publishers have numbered messages of the topic than can be remembered",
                    publishers_max=publishers_max,
                )
    return found


def _number_of(headers: Mapping[str, bytes]) -> int | None:
    """The number that a message has; None if a hub can't have written it."""
    number = whole_number(headers.get(NUMBER, b"").decode("ascii", "replace"))
    return number if is_whole(number, 0, NUMBER_MAX) else None


class _Alone(NamedTuple):
    """What is known of one publisher from an ID on."""

    since: int
    newest: Newest | None


def _later(one: Newest | None, other: Newest | None) -> Newest | None:
    return max((each for each in (one, other) if each is not None), default=None)


class Numbers:
    """The newest number of each publisher in each topic of one partition: what was appended here is
    noted, what lies before is learned from the log. Thread-safe.

    Of a topic everything is known from `OwnedTopic.known_from` on. Where there is no room, the
    topic that was not asked for longest is forgotten: it is learned from the log again. Of a topic
    that more publishers have numbered than can be remembered, each is looked for by itself.

    Args:
        publishers_max: remembered at a time, of all topics.
    """

    def __init__(self, publishers_max: int = PUBLISHERS_MAX) -> None:
        self._max = publishers_max
        self._lock = threading.Lock()
        self._topics: collections.OrderedDict[OwnedTopic, dict[str, Newest]] = (
            collections.OrderedDict()
        )
        self._count = 0
        self._alone: collections.OrderedDict[tuple[OwnedTopic, str], _Alone] = (
            collections.OrderedDict()
        )
        """Of publishers that were looked for one by one."""

    @property
    def publishers_max(self) -> int:
        """So many are remembered at a time."""
        return self._max

    def knows(self, owned: OwnedTopic, publisher: str, since: int) -> bool:
        """Whether all that a publisher numbered from an ID on is known."""
        alone = self._alone.get((owned, publisher))
        return since >= owned.known_from or (alone is not None and since >= alone.since)

    def newest(self, owned: OwnedTopic, publisher: str, since: int) -> Newest | None:
        """The newest message of a publisher from an ID on; it may be an older one.

        Raises:
            UnknownNumbersError: that must be learned first.
        """
        with self._lock:
            if since < owned.known_from:
                alone = self._alone.get((owned, publisher))
                if alone is None or since < alone.since:
                    raise UnknownNumbersError(
                        "the numbers that publishers have used are not known yet", topic=owned.name
                    )
                self._alone.move_to_end((owned, publisher))
                return alone.newest
            found = self._topics.get(owned)
            if found is None:
                return None
            self._topics.move_to_end(owned)
            return found.get(publisher)

    def leave_out(self, publish: Publish) -> Newest | None:
        """Take out of a publish the messages that the topic has already; its newest one of the
        publisher, if there is one.

        Raises:
            UnknownNumbersError: that must be learned first.
        """
        numbered = publish.numbered
        if numbered is None:
            return None
        newest = self.newest(publish.owned, numbered.publisher, numbered.since)
        if newest is not None:
            first = numbered.number + publish.dropped
            had = min(max(0, newest.number - first + 1), len(publish.messages))
            if had:
                publish.dropped += had
                publish.messages = publish.messages[had:]
        return newest

    def note(self, publishes: Iterable[tuple[Publish, int]]) -> None:
        """Messages were appended, with IDs from the number beside them on."""
        for publish, first in publishes:
            if publish.numbered is not None:
                newest = Newest(publish.last, first + len(publish.messages) - 1)
                key = publish.owned, publish.numbered.publisher
                with self._lock:
                    if (alone := self._alone.get(key)) is not None:
                        self._alone[key] = _Alone(alone.since, _later(alone.newest, newest))
                    self._take_in(publish.owned, {publish.numbered.publisher: newest})
                    self._make_room()

    def learn(self, owned: OwnedTopic, since: int, until: int, found: Mapping[str, Newest]) -> None:
        """What the log has of a topic from one ID on, up to another: no more publishers than are
        remembered at a time.
        """
        with self._lock:
            if until < owned.known_from:
                return  # It was forgotten meanwhile what lies behind.
            self._take_in(owned, found)
            owned.known_from = min(owned.known_from, since)
            self._make_room()

    def learn_alone(
        self, owned: OwnedTopic, publisher: str, since: int, until: int, found: Newest | None
    ) -> None:
        """What the log has of one publisher in a topic from one ID on, up to another."""
        with self._lock:
            if until < owned.known_from or owned.left:
                return  # It was forgotten meanwhile what lies behind.
            here = self._topics.get(owned, {}).get(publisher)
            self._alone[owned, publisher] = _Alone(since, _later(found, here))
            for _ in range(len(self._alone) - self._max):
                self._alone.popitem(last=False)

    def drop(self, owned: OwnedTopic) -> None:
        """A topic is not this hub's any more."""
        with self._lock:
            self._count -= len(self._topics.pop(owned, ()))
            for key in [*filter(lambda key: key[0] is owned, self._alone)]:
                del self._alone[key]

    def _take_in(self, owned: OwnedTopic, found: Mapping[str, Newest]) -> None:
        known = self._topics.setdefault(owned, {})
        self._topics.move_to_end(owned)
        self._count -= len(known)
        for publisher, newest in found.items():
            if publisher not in known or known[publisher].number < newest.number:
                known[publisher] = newest
        self._count += len(known)

    def _make_room(self) -> None:
        while self._count > self._max:
            owned, known = self._topics.popitem(last=False)
            self._count -= len(known)
            last = max((newest.id for newest in known.values()), default=-1)
            owned.known_from = max(owned.known_from, last + 1)
