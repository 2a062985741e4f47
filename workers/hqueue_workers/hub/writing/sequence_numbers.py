"""Idempotent publishing: which sequence numbers of its publishers a topic already has."""

from __future__ import annotations

import collections
import threading
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from hqueue import BufferFullError, Message
from hqueue.settings.names import is_name
from hqueue.settings.numbers import is_whole, whole_number
from hqueue_workers.hub.limits import HubLimits
from hqueue_workers.hub.writing.owned_topic import (
    OwnedTopic,
    Publish,
    PublishSequence,
    UnknownSequenceNumbersError,
)

__all__ = [
    "PUBLISHER",
    "SEQUENCE_NUMBER",
    "SEQUENCE_NUMBER_MAX",
    "LastMessage",
    "SequenceNumbers",
    "last_messages_of",
    "with_sequence_numbers",
]

PUBLISHER, SEQUENCE_NUMBER = "hqueue.publisher", "hqueue.number"
"""The headers that carry both; the number in decimal digits. Stored messages have these names."""

SEQUENCE_NUMBER_MAX = 2**63 - 1


class LastMessage(NamedTuple):
    """A publisher's last message in a topic, by its sequence numbers."""

    sequence_number: int
    id: int


def with_sequence_numbers(
    messages: Sequence[Message], sequence: PublishSequence | None
) -> tuple[Sequence[Message], int]:
    """Messages as they are stored, and their size. The given messages have no headers of the
    system.
    """
    made = messages
    if sequence is not None:
        publisher = sequence.publisher.encode()
        made = [
            Message(
                message.topic,
                message.value,
                message.key,
                (*message.headers, (PUBLISHER, publisher), (SEQUENCE_NUMBER, b"%d" % number)),
            )
            for number, message in enumerate(messages, sequence.first)
        ]
    return made, sum(message.size for message in made)


def last_messages_of(
    messages: Iterable[Message],
    publishers_max: int | None = None,
    only: Container[str] | None = None,
) -> dict[str, LastMessage]:
    """The last message of each publisher with sequence numbers among some messages that were read,
    or only of the publishers in `only`.

    Raises:
        BufferFullError: there are more publishers.
    """
    found: dict[str, LastMessage] = {}
    for message in messages:
        if not message.headers:
            continue
        headers = dict(message.headers)
        name, number = (
            headers.get(PUBLISHER, b"").decode("ascii", "replace"),
            _sequence_number_of(headers),
        )
        if number is None or not is_name(name) or (only is not None and name not in only):
            continue
        if name not in found or found[name].sequence_number < number:
            found[name] = LastMessage(number, int(message.id))  # type: ignore[attr-defined]
            if publishers_max is not None and len(found) > publishers_max:
                raise BufferFullError(
                    "too many publishers use sequence numbers in the topic",
                    publishers_max=publishers_max,
                )
    return found


def _sequence_number_of(headers: Mapping[str, bytes]) -> int | None:
    """The sequence number of a message; None if no hub can have written it."""
    number = whole_number(headers.get(SEQUENCE_NUMBER, b"").decode("ascii", "replace"))
    return number if is_whole(number, 0, SEQUENCE_NUMBER_MAX) else None


class _Alone(NamedTuple):
    """What is known of one publisher, from an ID on."""

    since: int
    last_message: LastMessage | None


def _later(one: LastMessage | None, other: LastMessage | None) -> LastMessage | None:
    return max((each for each in (one, other) if each is not None), default=None)


class SequenceNumbers:
    """The last sequence number of each publisher in each topic of one partition. It notes what is
    appended here, and learns older ones from the log. Thread-safe.

    Everything about a topic is known from `OwnedTopic.known_from` on. If there is no room, the
    topic that was unused for longest is dropped, and learned from the log again when it is needed.
    If a topic has more publishers than can be remembered, each publisher is looked for separately.

    Args:
        publishers_max: the most publishers to remember at a time, of all topics.
    """

    def __init__(self, publishers_max: int = HubLimits.publishers_max) -> None:
        self._max = publishers_max
        self._lock = threading.Lock()
        self._topics: collections.OrderedDict[OwnedTopic, dict[str, LastMessage]] = (
            collections.OrderedDict()
        )
        self._count = 0
        self._alone: collections.OrderedDict[tuple[OwnedTopic, str], _Alone] = (
            collections.OrderedDict()
        )
        """Of publishers that were looked for one by one."""

    @property
    def publishers_max(self) -> int:
        """The most publishers that are remembered at a time."""
        return self._max

    def knows(self, owned: OwnedTopic, publisher: str, since: int) -> bool:
        """Whether all sequence numbers of a publisher from an ID on are known."""
        alone = self._alone.get((owned, publisher))
        return since >= owned.known_from or (alone is not None and since >= alone.since)

    def last_message(self, owned: OwnedTopic, publisher: str, since: int) -> LastMessage | None:
        """The last message of a publisher from an ID on; it may be an older one.

        Raises:
            UnknownSequenceNumbersError: it must be learned first.
        """
        with self._lock:
            if since < owned.known_from:
                alone = self._alone.get((owned, publisher))
                if alone is None or since < alone.since:
                    raise UnknownSequenceNumbersError(
                        "the hub does not know yet which sequence numbers publishers have used",
                        topic=owned.name,
                    )
                self._alone.move_to_end((owned, publisher))
                return alone.last_message
            found = self._topics.get(owned)
            if found is None:
                return None
            self._topics.move_to_end(owned)
            return found.get(publisher)

    def leave_out(self, publish: Publish) -> LastMessage | None:
        """Remove from a publish the messages that the topic already has. Returns the last of the
        publisher's messages in the topic, if there is one.

        Raises:
            UnknownSequenceNumbersError: the sequence numbers must be learned first.
        """
        sequence = publish.sequence
        if sequence is None:
            return None
        last_message = self.last_message(publish.owned, sequence.publisher, sequence.since)
        if last_message is not None:
            first = sequence.first + publish.duplicates
            had = min(max(0, last_message.sequence_number - first + 1), len(publish.messages))
            if had:
                publish.duplicates += had
                publish.messages = publish.messages[had:]
        return last_message

    def note(self, publishes: Iterable[tuple[Publish, int]]) -> None:
        """Note messages that were appended, each publish with IDs from the number beside it on."""
        for publish, first in publishes:
            if publish.sequence is not None:
                last_message = LastMessage(
                    publish.last_sequence_number, first + len(publish.messages) - 1
                )
                key = publish.owned, publish.sequence.publisher
                with self._lock:
                    if (alone := self._alone.get(key)) is not None:
                        self._alone[key] = _Alone(
                            alone.since, _later(alone.last_message, last_message)
                        )
                    self._take_in(publish.owned, {publish.sequence.publisher: last_message})
                    self._make_room()

    def learn(
        self, owned: OwnedTopic, since: int, until: int, found: Mapping[str, LastMessage]
    ) -> None:
        """Add what the log has of a topic between two IDs, of no more publishers than are
        remembered at a time.
        """
        with self._lock:
            if until < owned.known_from:
                return  # What lies after `until` was forgotten meanwhile.
            self._take_in(owned, found)
            owned.known_from = min(owned.known_from, since)
            self._make_room()

    def learn_alone(
        self, owned: OwnedTopic, publisher: str, since: int, until: int, found: LastMessage | None
    ) -> None:
        """Add what the log has of one publisher in a topic between two IDs."""
        with self._lock:
            if until < owned.known_from or owned.left:
                return  # What lies after `until` was forgotten meanwhile.
            here = self._topics.get(owned, {}).get(publisher)
            self._alone[owned, publisher] = _Alone(since, _later(found, here))
            for _ in range(len(self._alone) - self._max):
                self._alone.popitem(last=False)

    def drop(self, owned: OwnedTopic) -> None:
        """Drop a topic that this hub no longer owns."""
        with self._lock:
            self._count -= len(self._topics.pop(owned, ()))
            for key in [*filter(lambda key: key[0] is owned, self._alone)]:
                del self._alone[key]

    def _take_in(self, owned: OwnedTopic, found: Mapping[str, LastMessage]) -> None:
        known = self._topics.setdefault(owned, {})
        self._topics.move_to_end(owned)
        self._count -= len(known)
        for publisher, last_message in found.items():
            if (
                publisher not in known
                or known[publisher].sequence_number < last_message.sequence_number
            ):
                known[publisher] = last_message
        self._count += len(known)

    def _make_room(self) -> None:
        while self._count > self._max:
            owned, known = self._topics.popitem(last=False)
            self._count -= len(known)
            last = max((last_message.id for last_message in known.values()), default=-1)
            owned.known_from = max(owned.known_from, last + 1)
