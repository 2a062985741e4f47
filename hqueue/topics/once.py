"""Publishing messages that their publisher has numbered: each once."""

from __future__ import annotations

import collections
import dataclasses
import threading
from typing import Any

from hqueue.errors import InvalidInputError
from hqueue.message_id import MessageID, MessageIDs
from hqueue.rpc.services import load
from hqueue.runtime.fork import register
from hqueue.topics.calls import HubCalls
from hqueue.topics.settings import HubClientSettings

__all__ = ["NUMBER_MAX", "PublishedOnce", "PublishingOnce"]

NUMBER_MAX = 2**63 - 1


@dataclasses.dataclass(frozen=True)
class PublishedOnce:
    """What became of messages that were published once.

    Args:
        dropped: how many of the first ones the topic had already.
        ids: the IDs of the others, which were appended.
        newest: the topic's newest message of this publisher: as ``since`` after a restart it saves
            the hub reading.
    """

    dropped: int
    ids: MessageIDs
    newest: MessageID


class PublishingOnce:
    """Publishes once, and remembers for each topic where its newest message is. Thread-safe.

    Args:
        calls: of hubs.
    """

    def __init__(self, calls: HubCalls) -> None:
        self._calls = calls
        self._message_id = load("subscriber").TMessageID
        self._newest: collections.OrderedDict[tuple[str, str], MessageID] = (
            collections.OrderedDict()
        )
        self.after_fork_in_child()
        register(self)

    def after_fork_in_child(self) -> None:
        self._lock = threading.RLock()

    def publish(
        self, queue: str, topic: str, sent: list[Any], number: int, since: MessageID | None
    ) -> PublishedOnce:
        """As `HubClient.publish_once`, of the messages as the IDL has them."""
        publisher, after = self._publisher(), self._since(queue, topic, since)
        done, _ = self._calls.call(
            queue,
            topic,
            lambda client, to: client.publishOnce(queue, publisher, topic, sent, number, after, to),
            repeatable=True,
        )
        newest = MessageID(done.newest.timestamp, done.newest.sequenceID)
        with self._lock:
            self._newest[queue, topic] = newest
            self._newest.move_to_end((queue, topic))
            for _ in range(len(self._newest) - self._calls.settings.owners_max):
                self._newest.popitem(last=False)
        first, count = newest, 0
        if done.published is not None:
            first = MessageID(done.published.id.timestamp, done.published.id.sequenceID)
            count = done.published.count
        return PublishedOnce(done.dropped, MessageIDs(int(first), count), newest)

    def newest(self, queue: str, topic: str, since: MessageID | None) -> int | None:
        """As `HubClient.newest_number`."""
        publisher, after = self._publisher(), self._since(queue, topic, since)
        found, _ = self._calls.call(
            queue,
            topic,
            lambda client, to: client.newestNumber(queue, publisher, topic, after, to),
            repeatable=True,
        )
        number: int | None = found.number
        return number

    def _publisher(self) -> str:
        name = self._calls.settings.publisher
        if name == HubClientSettings.publisher:
            raise InvalidInputError(
                "numbers count by the publisher's name: connect with one of its own",
                publisher=name,
            )
        return name

    def _since(self, queue: str, topic: str, given: MessageID | None) -> Any:
        with self._lock:
            last = self._newest.get((queue, topic))
        since = max((each for each in (given, last) if each is not None), default=None)
        return None if since is None else self._message_id(since.timestamp, since.sequence)
