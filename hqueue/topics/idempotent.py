"""Idempotent publishing: each message once, by the sequence numbers that its publisher gives."""

from __future__ import annotations

import collections
import dataclasses
import threading
from typing import Any

from hqueue.errors import InvalidInputError
from hqueue.message_id import MessageID, MessageIDs
from hqueue.rpc.messages import InTurns
from hqueue.rpc.services import load
from hqueue.runtime.fork import register
from hqueue.runtime.steps import Work
from hqueue.topics.calls import HubCalls
from hqueue.topics.exchanges import HubMethod
from hqueue.topics.settings import HubClientSettings

__all__ = ["SEQUENCE_NUMBER_MAX", "IdempotentPublishResult", "IdempotentPublisher"]

SEQUENCE_NUMBER_MAX = 2**63 - 1


@dataclasses.dataclass(frozen=True)
class IdempotentPublishResult:
    """The result of an idempotent publish.

    Args:
        duplicates: how many of the first messages the topic had already. They were left out.
        ids: the IDs of the others, which were appended.
        last_id: the ID of the topic's last message of this publisher. Give it as ``since`` after a
            restart, so that the hub reads less.
    """

    duplicates: int
    ids: MessageIDs
    last_id: MessageID


class IdempotentPublisher:
    """Publishes idempotently, and remembers for each topic where its last message is. Thread-safe.
    Its calls are work, for `HubCalls` to carry out.

    Args:
        calls: of hubs.
    """

    def __init__(self, calls: HubCalls) -> None:
        self._calls = calls
        self._message_id = load("subscriber").TMessageID
        self._last_ids: collections.OrderedDict[tuple[str, str], MessageID] = (
            collections.OrderedDict()
        )
        self.after_fork_in_child()
        register(self)

    def after_fork_in_child(self) -> None:
        self._lock = threading.RLock()

    def publish(
        self, queue: str, topic: str, sent: list[Any], first: int, since: MessageID | None
    ) -> Work[Any, IdempotentPublishResult]:
        """Like `HubTopic.publish_idempotent`, of the messages as the IDL has them.

        Args:
            first: the sequence number of the first message.
        """
        publisher, after = self._publisher(), self._since(queue, topic, since)
        arguments = queue, publisher, topic, InTurns(sent), first, after
        method = HubMethod("publishOnce", arguments, sent)
        done, _ = yield from self._calls.call.steps(queue, topic, method, repeatable=True)
        last_id = MessageID(done.newest.timestamp, done.newest.sequenceID)
        with self._lock:
            self._last_ids[queue, topic] = last_id
            self._last_ids.move_to_end((queue, topic))
            for _ in range(len(self._last_ids) - self._calls.settings.owners_max):
                self._last_ids.popitem(last=False)
        begin, count = last_id, 0
        if done.published is not None:
            begin = MessageID(done.published.id.timestamp, done.published.id.sequenceID)
            count = done.published.count
        return IdempotentPublishResult(done.dropped, MessageIDs(int(begin), count), last_id)

    def last_sequence_number(
        self, queue: str, topic: str, since: MessageID | None
    ) -> Work[Any, int | None]:
        """Like `HubTopic.last_sequence_number`."""
        publisher, after = self._publisher(), self._since(queue, topic, since)
        given = queue, publisher, topic, after
        method = HubMethod("newestNumber", given, only_reads=True)
        found, _ = yield from self._calls.call.steps(queue, topic, method, repeatable=True)
        number: int | None = found.number
        return number

    def _publisher(self) -> str:
        name = self._calls.settings.publisher
        if name == HubClientSettings.publisher:
            raise InvalidInputError(
                "sequence numbers are counted by the publisher's name: connect with a publisher "
                "name of your own",
                publisher=name,
            )
        return name

    def _since(self, queue: str, topic: str, given: MessageID | None) -> Any:
        with self._lock:
            last = self._last_ids.get((queue, topic))
        since = max((each for each in (given, last) if each is not None), default=None)
        return None if since is None else self._message_id(since.timestamp, since.sequence)
